"""Model introspection: finds the attentions of a model, their configuration, and its dimensions."""

from dataclasses import dataclass

from peasy.looking.label import Part
from peasy.models.protocol import Model
from peasy.models.translator import LOOK, RecurrentTranslator
from peasy.nn.attention import Attention
from peasy.nn.feedforward import FeedForward
from peasy.nn.place import Place


def parts_of(model: Model) -> tuple[Part, ...]:
    """Return every attention of a model in execution order; empty for a model without attention.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> [part.place.layer for part in parts_of(build(preset("gpt-tiny"), seed=None))]
    [0, 1]
    """
    if isinstance(model, RecurrentTranslator):
        return (Part(LOOK, 1, (0,), cross=True),)
    return tuple(_part(module) for module in model.modules() if isinstance(module, Attention))


def _part(attention: Attention) -> Part:
    kv_head = tuple(head * attention.key_heads // attention.heads for head in range(attention.heads))
    causal = attention.place.stack == "decoder" and not attention.cross
    options = (attention.window, causal, attention.cross, attention.scale, attention.softcap)
    return Part(attention.place, attention.heads, kv_head, *options)


@dataclass(frozen=True)
class Widths:
    """Dimensions of a model: residual stream, head, feed-forward, layers per stack, vocabulary; 0 = it has none."""

    stream: int
    head: int
    inner: int
    layers: dict[str, int]
    scores: int = 0


def widths_of(model: Model) -> Widths:
    """Return the dimensions of a model."""
    heads = [module.d_head for module in model.modules() if isinstance(module, Attention)]
    inner = [module.up.out_features for module in model.modules() if isinstance(module, FeedForward)]
    d_model = getattr(model.config, "d_model", 0)
    default_head = d_model if isinstance(model, RecurrentTranslator) else 0
    return Widths(d_model, max(heads, default=default_head), max(inner, default=0), _layers(model), _scores(model))


def _scores(model: Model) -> int:
    target_size: int | None = getattr(model.config, "target_vocabulary", None)
    size: int = getattr(model.config, "vocabulary", 0)
    return target_size or size


def _layers(model: Model) -> dict[str, int]:
    paths = [module.place for module in model.modules() if isinstance(module, Attention | FeedForward)]
    counts: dict[str, int] = {}
    for path in paths:
        counts[path.stack] = max(counts.get(path.stack, 0), path.layer + 1)
    return counts or {"decoder": getattr(model.config, "layers", 0)}


def default_stack(model: Model) -> str:
    """Return the stack used when none is named: the decoder, or the encoder of an encoder-only model."""
    return "encoder" if type(model.config).kind == "encoder" else "decoder"


def attention_places(model: Model, stack: str | None = None) -> list[Place]:
    """Return the paths of a stack's attentions, including cross-attention."""
    return [info.place for info in parts_of(model) if stack is None or info.place.stack == stack]
