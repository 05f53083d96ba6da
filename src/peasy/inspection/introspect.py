"""Model introspection: finds the attentions of a model, their configuration, and its dimensions."""

from dataclasses import dataclass

from peasy.inspection.label import AttentionInfo
from peasy.models.protocol import Model
from peasy.models.rnn_translator import ATTENTION_PATH, RecurrentTranslator
from peasy.nn.attention import Attention
from peasy.nn.feedforward import FeedForward
from peasy.nn.module_path import ModulePath


def attentions_of(model: Model) -> tuple[AttentionInfo, ...]:
    """Return every attention of a model in execution order; empty for a model without attention.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> [info.path.layer for info in attentions_of(build(preset("gpt-tiny"), seed=None))]
    [0, 1]
    """
    if isinstance(model, RecurrentTranslator):
        return (AttentionInfo(ATTENTION_PATH, 1, (0,), cross=True),)
    return tuple(_attention_info(module) for module in model.modules() if isinstance(module, Attention))


def _attention_info(attention: Attention) -> AttentionInfo:
    kv_head = tuple(head * attention.num_kv_heads // attention.num_heads for head in range(attention.num_heads))
    causal = attention.path.stack == "decoder" and not attention.is_cross
    options = (attention.window, causal, attention.is_cross, attention.scale, attention.softcap)
    return AttentionInfo(attention.path, attention.num_heads, kv_head, *options)


@dataclass(frozen=True)
class ModelDims:
    """Dimensions of a model: residual stream, head, feed-forward, layers per stack, vocabulary; 0 = it has none."""

    d_model: int
    d_head: int
    d_ff: int
    num_layers: dict[str, int]
    vocab_size: int = 0


def dims_of(model: Model) -> ModelDims:
    """Return the dimensions of a model."""
    heads = [module.d_head for module in model.modules() if isinstance(module, Attention)]
    inner = [module.up.out_features for module in model.modules() if isinstance(module, FeedForward)]
    d_model = getattr(model.config, "d_model", 0)
    default_head = d_model if isinstance(model, RecurrentTranslator) else 0
    return ModelDims(
        d_model, max(heads, default=default_head), max(inner, default=0), _num_layers(model), _vocab_size(model)
    )


def _vocab_size(model: Model) -> int:
    target_size: int | None = getattr(model.config, "target_vocab_size", None)
    size: int = getattr(model.config, "vocab_size", 0)
    return target_size or size


def _num_layers(model: Model) -> dict[str, int]:
    paths = [module.path for module in model.modules() if isinstance(module, Attention | FeedForward)]
    counts: dict[str, int] = {}
    for path in paths:
        counts[path.stack] = max(counts.get(path.stack, 0), path.layer + 1)
    return counts or {"decoder": getattr(model.config, "num_layers", 0)}


def default_stack(model: Model) -> str:
    """Return the stack used when none is named: the decoder, or the encoder of an encoder-only model."""
    return "encoder" if type(model.config).kind == "encoder" else "decoder"


def attention_paths(model: Model, stack: str | None = None) -> list[ModulePath]:
    """Return the paths of a stack's attentions, including cross-attention."""
    return [info.path for info in attentions_of(model) if stack is None or info.path.stack == stack]
