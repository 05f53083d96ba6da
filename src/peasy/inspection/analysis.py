"""Analyses of one text: logit lens, attention rollout, and the similarity of two sentences by word pairs."""

import numpy as np
import torch

from peasy.errors import InvalidInput
from peasy.inspection.forward import ModelInput, default_stack, dims_of, forward_hidden
from peasy.inspection.results import Array, AttentionRecord, LensTable, Similarity, Tokens
from peasy.inspection.words import token_piece
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model
from peasy.nn.intervention import InterventionLike
from peasy.nn.stack import Stack
from peasy.nn.tap import Activation, Tap
from peasy.tokenization import Tokenizer


@torch.inference_mode()
def logit_lens(
    model: Model,
    model_input: ModelInput,
    tokens: Tokens,
    tokenizer: Tokenizer | None,
    *,
    rows: tuple[int, ...] | None = None,
    top_k: int = 3,
    intervention: InterventionLike | None = None,
    name: str = "",
) -> LensTable:
    """Decode the residual stream of every layer by the final norm and LM head: top tokens at each position.

    The last layer is the model's own output.
    """
    stack = getattr(model, default_stack(model), None)
    if not isinstance(stack, Stack) or getattr(model, "lm_head", None) is None:
        raise InvalidInput(f"{name or 'This model'} has no layers with an LM head: the logit lens needs both.")
    residuals: list[Activation] = []
    tap = Tap(residuals.append, steps=["residual"], parts=["stream"], stacks=[stack.name], rows=rows)
    forward_hidden(model, model_input, tap, intervention)
    layers = tuple(residual.path.layer for residual in residuals)
    assert layers == tuple(range(dims_of(model).num_layers[stack.name] + 1))
    pieces, probabilities = [], []
    for residual in residuals:
        normed = residual.array if stack.norm is None else stack.norm(residual.array)
        shares = torch.softmax(model.logits(normed)[0].float(), dim=-1)
        top = shares.topk(min(top_k, shares.shape[-1]))
        probabilities.append(top.values.cpu().numpy())
        pieces.append(tuple(tuple(token_piece(tokenizer, id) for id in row) for row in top.indices.tolist()))
    positions = tuple(position % len(tokens) for position in (range(len(tokens)) if rows is None else rows))
    return LensTable(name, tokens, layers, positions, tuple(pieces), np.stack(probabilities))


def attention_rollout(record: AttentionRecord, stack: str) -> Array:
    """Return the attention rollout `[query, key]`: the share of each input token in each final vector; rows sum to 1.

    It is the product of the head-averaged weights of all layers, each mixed half with the identity.
    """
    captures = {p: c for p, c in record.by_path("weights").items() if p.stack == stack and p.part == "attention"}
    attentions = [info for info in record.attentions if info.path.stack == stack and info.path.part == "attention"]
    if sorted(captures) != [info.path for info in attentions] or not attentions:
        raise InvalidInput("Rollout needs the weights of every layer.", hint="Leave out layers= and heads=.")
    count = len(record.axes(attentions[0].path)[0])
    product = np.eye(count, dtype=np.float64)
    for info in attentions:
        capture = captures[info.path]
        if capture.array.shape[1] != count or len(capture.heads) != info.num_heads:
            raise InvalidInput("Rollout needs all rows and heads.", hint="Leave out queries= and heads=.")
        product = (0.5 * capture.array.astype(np.float64).mean(axis=0) + 0.5 * np.eye(count)) @ product
    rollout: Array = (product / product.sum(axis=1, keepdims=True)).astype(np.float32)
    return rollout


def explain_similarity(model: Model, first: Tokens, second: Tokens, name: str = "") -> Similarity:
    """Decompose the cosine of two mean-pooled sentence vectors into a sum over pairs of words.

    Each pair of tokens contributes the dot product of its vectors, divided by both token counts and both norms.
    """
    if not isinstance(model, Encoder):
        raise InvalidInput(f"{name or 'This model'} is a {type(model.config).kind}: only an encoder embeds sentences.")
    if model.config.pooling != "mean":
        message = f"{name or 'This encoder'} pools by {model.config.pooling}, not by the mean."
        raise InvalidInput(message, hint="Only mean pooling can be decomposed into words.")
    if model.config.dense is not None and model.config.dense.activation is not None:
        message = f"{name or 'This encoder'} has a {model.config.dense.activation} after pooling."
        raise InvalidInput(message, hint="Only mean pooling, alone or before a linear layer, can be decomposed.")
    hidden = (forward_hidden(model, ModelInput(tokens.ids)) for tokens in (first, second))
    with torch.inference_mode():  # a linear layer of the mean is the mean of the layer
        vectors = hidden if model.dense is None else map(model.dense, hidden)
        left, right = (states[0].double().cpu().numpy() for states in vectors)
    norms = np.linalg.norm(left.mean(0)) * np.linalg.norm(right.mean(0))
    token_pairs = left @ right.T / (len(left) * len(right) * norms)
    word_pairs = np.stack([token_pairs[list(positions)].sum(0) for positions in first.word_positions])
    word_pairs = np.stack([word_pairs[:, list(positions)].sum(1) for positions in second.word_positions], axis=1)
    return Similarity(name, first, second, word_pairs, token_pairs, float(token_pairs.sum()))
