"""Which attentions a model has, and what each of them is: found by walking through the model itself."""

from dataclasses import dataclass

from peasy.looking.label import Part
from peasy.models.protocol import Model
from peasy.models.translator import LOOK, RecurrentTranslator
from peasy.nn.attention import Attention
from peasy.nn.feedforward import FeedForward
from peasy.nn.place import Place


def parts_of(model: Model) -> tuple[Part, ...]:
    """Every attention of a model, in the order in which a text meets them; none for a model without.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> [part.place.layer for part in parts_of(build(preset("gpt-tiny"), seed=None))]
    [0, 1]
    """
    if isinstance(model, RecurrentTranslator):
        return (Part(LOOK, 1, (0,), cross=True),)
    return tuple(_part(module) for module in model.modules() if isinstance(module, Attention))


def _part(attention: Attention) -> Part:
    key_head = tuple(head * attention.key_heads // attention.heads for head in range(attention.heads))
    causal = attention.place.stack == "decoder" and not attention.cross
    how = (attention.window, causal, attention.cross, attention.scale, attention.softcap)
    return Part(attention.place, attention.heads, key_head, *how)


@dataclass(frozen=True)
class Widths:
    """How wide the vectors of a model are: the stream, each head, inside each feed-forward, and its scores."""

    stream: int
    head: int
    inner: int
    layers: dict[str, int]
    scores: int = 0


def widths_of(model: Model) -> Widths:
    """The widths of a model; what it has not is 0."""
    heads = [module.d_head for module in model.modules() if isinstance(module, Attention)]
    inner = [module.up.out_features for module in model.modules() if isinstance(module, FeedForward)]
    stream = getattr(model.config, "d_model", 0)
    own = stream if isinstance(model, RecurrentTranslator) else 0
    return Widths(stream, max(heads, default=own), max(inner, default=0), _layers(model), _scores(model))


def _scores(model: Model) -> int:
    own: int | None = getattr(model.config, "target_vocabulary", None)
    shared: int = getattr(model.config, "vocabulary", 0)
    return own or shared


def _layers(model: Model) -> dict[str, int]:
    places = [m.place for m in model.modules() if isinstance(m, Attention | FeedForward)]
    found: dict[str, int] = {}
    for place in places:
        found[place.stack] = max(found.get(place.stack, 0), place.layer + 1)
    return found or {"decoder": getattr(model.config, "layers", 0)}


def default_stack(model: Model) -> str:
    """The stack that is meant when nobody names one: the one that writes, else the only one."""
    return "encoder" if type(model.config).kind == "encoder" else "decoder"


def attention_places(model: Model, stack: str | None = None) -> list[Place]:
    """The places of a stack's attentions, cross-attention too."""
    return [part.place for part in parts_of(model) if stack is None or part.place.stack == stack]
