"""Logit lens: the residual stream of every layer, decoded by the final norm and LM head."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.inspection.forward import ModelInput, forward_hidden
from peasy.inspection.introspect import default_stack, dims_of
from peasy.inspection.label import Tokens
from peasy.inspection.results import LensTable
from peasy.models.protocol import Model
from peasy.nn.intervention import InterventionLike
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
    """Return the top tokens of each layer at each position; the last layer is the model's own output."""
    stack: Any = getattr(model, default_stack(model), None)
    if not hasattr(stack, "blocks") or getattr(model, "lm_head", None) is None:
        raise InvalidInput(f"{name or 'This model'} has no layers with an LM head: the logit lens needs both.")
    residuals: list[Activation] = []
    tap = Tap(residuals.append, steps=["residual"], parts=["stream"], stacks=[stack.name], rows=rows)
    forward_hidden(model, model_input, tap, intervention)
    positions = rows if rows is not None else tuple(range(len(tokens)))
    decoded = [_decode_layer(model, stack, residual.array, top_k) for residual in residuals]
    pieces = tuple(tuple(_pieces(row, tokenizer) for row in ids.tolist()) for ids, _ in decoded)
    probabilities = np.stack([layer_probabilities.cpu().numpy() for _, layer_probabilities in decoded])
    layers = tuple(residual.path.layer for residual in residuals)
    assert layers == tuple(range(dims_of(model).num_layers[stack.name] + 1))
    return LensTable(name, tokens, layers, tuple(p % len(tokens) for p in positions), pieces, probabilities)


def _decode_layer(model: Model, stack: Any, residual: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    normed = residual if stack.norm is None else stack.norm(residual)
    probabilities = torch.softmax(model.logits(normed)[0].float(), dim=-1)
    top = probabilities.topk(top_k)
    return top.indices, top.values


def _pieces(ids: list[int], tokenizer: Tokenizer | None) -> tuple[str, ...]:
    return tuple(f"#{id}" if tokenizer is None else tokenizer.piece(id) for id in ids)
