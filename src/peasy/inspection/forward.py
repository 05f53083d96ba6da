"""Forward pass of one input through any model, with optional tap and intervention; attentions and sizes of a model."""

import torch
from torch import Tensor

from peasy.checkpoint.loaded_model import ModelBundle
from peasy.errors import InvalidInput
from peasy.inspection.results import AttentionInfo, TokenProbability
from peasy.inspection.words import token_piece
from peasy.models.protocol import Model
from peasy.models.rnn_translator import RecurrentTranslator
from peasy.nn.attention import Attention
from peasy.nn.feedforward import FeedForward
from peasy.nn.intervention import InterventionLike
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import Activation, Tap
from peasy.parameters import Record


def attentions_of(model: Model) -> tuple[AttentionInfo, ...]:
    """Return every attention of a model in execution order; empty for a model without attention.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> [info.path.layer for info in attentions_of(build(preset("gpt-tiny"), seed=None))]
    [0, 1]
    """
    if isinstance(model, RecurrentTranslator):
        return (AttentionInfo(ModulePath("decoder", 0, "cross_attention"), 1, (0,), cross=True),)
    infos = []
    for module in model.modules():
        if isinstance(module, Attention):
            path, heads, cross = module.path, module.num_heads, module.is_cross
            kv_head, causal = tuple(h * module.num_kv_heads // heads for h in range(heads)), path.stack == "decoder"
            options = (module.window, causal and not cross, cross, module.scale, module.softcap)
            infos.append(AttentionInfo(path, heads, kv_head, *options))
    return tuple(infos)


class ModelDims(Record):
    """Dimensions of a model: residual stream, head, feed-forward, layers per stack, vocabulary; 0 = it has none."""

    d_model: int
    d_head: int
    d_ff: int
    num_layers: dict[str, int]
    vocab_size: int = 0


def dims_of(model: Model) -> ModelDims:
    """Return the dimensions of a model."""
    config, modules = model.config, list(model.modules())
    d_model: int = getattr(config, "d_model", 0)
    target_size, vocab_size = (int(getattr(config, name, None) or 0) for name in ("target_vocab_size", "vocab_size"))
    heads = [module.d_head for module in modules if isinstance(module, Attention)]
    inner = [module.up.out_features for module in modules if isinstance(module, FeedForward)]
    layers: dict[str, int] = {}
    for module in modules:
        if isinstance(module, Attention | FeedForward):
            layers[module.path.stack] = max(layers.get(module.path.stack, 0), module.path.layer + 1)
    d_head = max(heads, default=d_model if isinstance(model, RecurrentTranslator) else 0)
    layers = layers or {"decoder": getattr(config, "num_layers", 0)}
    return ModelDims(d_model, d_head, max(inner, default=0), layers, target_size or vocab_size)


def default_stack(model: Model) -> str:
    """Return the stack used when none is named: the decoder, or the encoder of an encoder-only model."""
    return "encoder" if type(model.config).kind == "encoder" else "decoder"


class ModelInput(Record):
    """Token ids of one input; for an encoder-decoder model, `ids` is the source and `target` the decoder input."""

    ids: tuple[int, ...]
    target: tuple[int, ...] | None = None

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Ids of the stack that gives the logits: the target, or the only sequence."""
        return self.ids if self.target is None else self.target

    def lengths(self, model: Model) -> dict[str, int]:
        """Return the sequence length of each stack."""
        if model.is_encoder_decoder:
            return {"encoder": len(self.ids), "decoder": len(self.target or ())}
        return {default_stack(model): len(self.ids)}


def check_input(model: Model, model_input: ModelInput) -> None:
    """Raise if the input is empty, too long, or has a missing or unexpected target."""
    if not model_input.ids:
        raise InvalidInput("The text is empty.", hint="Give at least one word.")
    if model.is_encoder_decoder and not model_input.target:
        raise InvalidInput("This encoder-decoder model needs a target.", hint="Give target=.")
    if not model.is_encoder_decoder and model_input.target is not None:
        raise InvalidInput("Only an encoder-decoder model has a target.", hint="Leave out target=.")
    context = model.config.max_seq_len
    longest = max(len(model_input.ids), len(model_input.target or ()))
    if context is not None and longest > context:
        message = f"The text has {longest:,} tokens; this model reads at most {context:,}."
        raise InvalidInput(message, hint="Give a shorter text.")


@torch.inference_mode()
def forward_logits(
    model: Model,
    model_input: ModelInput,
    tap: Tap | None = None,
    intervention: InterventionLike | None = None,
    *,
    all_positions: bool = False,
) -> Tensor | None:
    """Return the logits after the last token `[vocab_size]`, or after each; None without an LM head."""
    hidden = forward_hidden(model, model_input, tap, intervention)
    has_logits = getattr(model, "lm_head", True) is not None
    if tap is not None and "logits" in tap.steps:
        if not has_logits:
            raise InvalidInput("This model has no LM head: there are no logits.", hint='Choose steps=["final"].')
        rows, stack = tap.resolve_rows(hidden.shape[1]), default_stack(model)
        path = ModulePath(stack, dims_of(model).num_layers.get(stack, 0), "stream")
        tap.callback(Activation(path, "logits", model.logits(hidden[:, list(rows)]), rows=rows))
    if not has_logits:
        return None
    logits = model.logits(hidden if all_positions else hidden[:, -1:])[0]
    return logits if all_positions else logits[-1]


@torch.inference_mode()
def forward_hidden(
    model: Model, model_input: ModelInput, tap: Tap | None = None, intervention: InterventionLike | None = None
) -> Tensor:
    """Return the final hidden states `[1, time, d_model]`."""
    ids, source = (torch.tensor([row], device=model.device) for row in (model_input.output_ids, model_input.ids))
    return model.hidden(ids, tap=tap, intervention=intervention, source=source if model.is_encoder_decoder else None)


def likeliest_tokens(loaded: ModelBundle, logits: Tensor, count: int) -> tuple[TokenProbability, ...]:
    """Return the most likely next tokens with their probabilities."""
    best = logits.float().softmax(dim=-1).topk(min(count, len(logits)))
    tokenizer = loaded.target_tokenizer or loaded.tokenizer
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple(TokenProbability(token_piece(tokenizer, id), id, p) for id, p in pairs)
