"""Edits of activations as plain data, public as `peasy.edit`: ablation, cut edges, patching, steering.

`peasy.look(model, text, edit=peasy.edit.zero(layer=2, head=3))`. An edit acts on one step of one layer, in all heads or
in one, at all positions or at some. `layer` and `head` may be negative: -1 is the last. The keywords `**where`:

- `step`: query, key, value, weights (the attention pattern), context (output of a head), activation (inner layer of the
  MLP), output (what a sublayer adds to the residual stream) or residual (the stream before a layer). Default: context
  with a `head`, else the outputs of all sublayers of the layer.
- `positions`: words or positions of tokens; for weights the queries, for key and value the keys. Default: all.
- `part`: attention, cross_attention or feedforward. `stack`: encoder or decoder.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict, Unpack

from annotated_types import Ge

from peasy.errors import InvalidInput
from peasy.nn.module_path import Address
from peasy.parameters import TypedSettings

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

TokenRef = str | int
"""A word of the text, or the position of a token."""

TextOrIds = str | Sequence[int]
"""A text, or its token ids."""

Texts = str | Sequence[TextOrIds]
"""Name or file of a data set, or the texts themselves."""


class Where(TypedDict, total=False):
    """Keywords of the edits: where an edit acts, besides layer and head."""

    step: str
    positions: Sequence[TokenRef]
    part: str
    stack: str


class Site(TypedSettings):
    """Where an edit acts; None = all, or the default."""

    layer: int | None
    head: int | None = None
    step: str | None = None
    positions: Sequence[TokenRef] | None = None
    part: str | None = None
    stack: str | None = None

    def __str__(self) -> str:
        layer = "every layer" if self.layer is None else f"layer {self.layer}"
        what = f"head {self.head}" if self.head is not None else (self.part or "").replace("_", "-")
        where = f"{layer}, {what}" if what else layer
        where = where if self.step is None else f"{self.step} of {where}"
        at = "" if self.positions is None else f" at {', '.join(map(str, self.positions))}"
        return f"{where}{at}" + ("" if self.stack is None else f" ({self.stack})")


class Edit(TypedSettings, eq=False):
    """Base class of the edits; `description` is their summary, with the fields of the edit."""

    site: Site
    default_step: ClassVar[str] = "output"
    description: ClassVar[str]

    def summary(self) -> str:
        """Describe the edit."""
        shown = {name: _DESCRIBED[name](value) if name in _DESCRIBED else value for name, value in vars(self).items()}
        return self.description.format(**shown)


_DESCRIBED: dict[str, Callable[[Texts], str]] = {
    "data": lambda data: data if isinstance(data, str) else f"{len(data)} texts",
    "source": lambda source: f'"{source}"' if isinstance(source, str) else f"{len(source)} token ids",
}

EditLike = Edit | Callable[[Address, "Tensor"], "Tensor | None"]
"""An edit, or a function of an address and an activation that returns the changed activation."""


class ZeroAblation(Edit, eq=False):
    """Zero ablation."""

    description = "{site} set to zero"


class MeanAblation(Edit, eq=False):
    """Mean ablation: `by_position` takes the mean of each position over texts of equal length."""

    data: Texts
    by_position: bool = False
    description = "{site} set to its mean over {data}"


class ResampleAblation(Edit, eq=False):
    """Resample ablation: activations of a random text of a data set."""

    data: Texts
    seed: Annotated[int, Ge(0)] = 0
    description = "{site} from a random text of {data}"


class ActivationPatch(Edit, eq=False):
    """Activation patching from another text."""

    source: TextOrIds
    description = "{site} from {source}"


class Steering(Edit, eq=False):
    """Activation steering: a vector is added."""

    vector: "ArrayLike"
    factor: float = 1.0
    default_step = "residual"
    description = "{factor:g} times a vector added to {site}"


class Scaling(Edit, eq=False):
    """Activations multiplied by a factor."""

    factor: float
    description = "{site} times {factor:g}"


class UniformAttention(Edit, eq=False):
    """Uniform attention: the same weight for every visible key."""

    description = "{site} attends uniformly"


class CutEdge(Edit, eq=False):
    """Cut attention edge: a query no longer attends to a key; other weights are renormalised."""

    query: TokenRef
    key: TokenRef
    description = '"{query}" cannot attend to "{key}" in {site}'


def zero(layer: int, head: int | None = None, **where: Unpack[Where]) -> ZeroAblation:
    """Zero ablation: set a head's output, a sublayer's output or another step to zero.

    Zero is far from what later layers have seen: compare with `mean`, which stays in the usual range.

    >>> zero(layer=2, head=3).summary()
    'layer 2, head 3 set to zero'
    """
    return ZeroAblation(Site(layer, head, **where))


def mean(
    data: Texts, layer: int, head: int | None = None, *, by_position: bool = False, **where: Unpack[Where]
) -> MeanAblation:
    """Mean ablation: set an activation to its mean over all tokens of a data set (a name, a file or texts).

    With `by_position` each position has its own mean; the texts then need equally many tokens, as weights always do.

    >>> mean(["The oven", "A pizza"], layer=2, head=3).summary()
    'layer 2, head 3 set to its mean over 2 texts'
    """
    return MeanAblation(Site(layer, head, **where), data, by_position)


def resample(
    data: Texts, layer: int, head: int | None = None, *, seed: int = 0, **where: Unpack[Where]
) -> ResampleAblation:
    """Resample ablation: take activations from a random text of a data set that is at least as long.

    >>> resample("stories", layer=2).summary()
    'layer 2 from a random text of stories'
    """
    return ResampleAblation(Site(layer, head, **where), data, seed)


def patch(source: TextOrIds, layer: int, head: int | None = None, **where: Unpack[Where]) -> ActivationPatch:
    """Activation patching: replace activations by those of another text (or ids) at the same positions.

    Without `positions` both texts need equally many tokens.

    >>> patch("The soup came out", layer=1, step="residual", positions=[1]).summary()
    'residual of layer 1 at 1 from "The soup came out"'
    """
    return ActivationPatch(Site(layer, head, **where), source)


def steer(
    vector: "ArrayLike", layer: int, head: int | None = None, *, factor: float = 1.0, **where: Unpack[Where]
) -> Steering:
    """Activation steering: add a vector, times `factor`, to the residual stream before a layer, or to another step.

    >>> steer([0.0, 1.0], layer=1, factor=4).summary()
    '4 times a vector added to layer 1'
    """
    return Steering(Site(layer, head, **where), vector, factor)


def scale(factor: float, layer: int, head: int | None = None, **where: Unpack[Where]) -> Scaling:
    """Scale an activation: multiply it by a factor.

    >>> scale(0.5, layer=2, head=3, step="value").summary()
    'value of layer 2, head 3 times 0.5'
    """
    return Scaling(Site(layer, head, **where), factor)


def uniform(
    layer: int, head: int | None = None, *, part: str | None = None, stack: str | None = None
) -> UniformAttention:
    """Uniform attention: a head gives the same weight to every visible key.

    >>> uniform(layer=2, head=3).summary()
    'layer 2, head 3 attends uniformly'
    """
    return UniformAttention(Site(layer, head, part=part, stack=stack))


def cut(
    query: TokenRef, key: TokenRef, layer: int | None = None, head: int | None = None,
    *, part: str | None = None, stack: str | None = None,
) -> CutEdge:  # fmt: skip
    """Cut attention edge: `query` no longer attends to `key`, in one head or in all; other weights are renormalised.

    >>> cut("it", "pizza", layer=2).summary()
    '"it" cannot attend to "pizza" in layer 2'
    """
    return CutEdge(Site(layer, head, part=part, stack=stack), query, key)


def edit_summary(edit: EditLike) -> str:
    """Describe an edit, or a function by its name."""
    return edit.summary() if isinstance(edit, Edit) else f"function {getattr(edit, '__name__', type(edit).__name__)}"


def parse_heads(texts: Iterable[str]) -> list[tuple[int, int | None]]:
    """Parse layers and heads: 2.3 is layer 2, head 3; 2 is the whole layer.

    >>> parse_heads(["2.3", "1"])
    [(2, 3), (1, None)]
    """
    parsed = []
    for text in texts:
        layer, _, head = text.partition(".")
        if not layer.isdecimal() or not (head.isdecimal() or text == layer):
            raise InvalidInput(f'"{text}" is not a head.', hint="2.3 is layer 2, head 3; 2 is the whole layer.")
        parsed.append((int(layer), int(head) if head else None))
    return parsed


def parse_cut(text: str) -> tuple[TokenRef, TokenRef]:
    """Parse an attention edge query:key; numbers are positions.

    >>> parse_cut("it:pizza"), parse_cut("8:1")
    (('it', 'pizza'), (8, 1))
    """
    query, colon, key = text.partition(":")
    if not (query and colon and key):
        hint = "it:pizza stops the word it from attending to the word pizza."
        raise InvalidInput(f'"{text}" is not a pair query:key.', hint=hint)
    return int(query) if query.isdecimal() else query, int(key) if key.isdecimal() else key
