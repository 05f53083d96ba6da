"""What is shown, as plain data: a document of headings, sentences, formulas, labelled matrices, tables and pictures.

`render/` draws a document; nothing here knows how it will look. Numbers stay numbers: rounding is said
once per document (`decimals`) and done by whoever draws.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Cell = float | str | None
"""A number, a text (symbols, verdicts), or nothing."""


@dataclass(frozen=True)
class Heading:
    """The start of a section; `number` as in "3." where the sections are counted."""

    text: str
    number: int | None = None


@dataclass(frozen=True)
class Paragraph:
    """One or more plain sentences; `tone` is "plain", "note" (an aside), "good" or "bad"."""

    text: str
    tone: str = "plain"


@dataclass(frozen=True)
class Formula:
    """A formula on its own line, in TeX of the small set that `render/tex.py` knows."""

    tex: str


@dataclass(frozen=True)
class Arithmetic:
    """How one number came about, line by line: `0.7071 = 1 / 1.4142`. The last line is the number itself."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """Numbers with labelled rows and columns, shaded by size where `shaded`.

    `row_axis` and `column_axis` say in words what rows and columns are (query, key, d_model, ...).
    `marks` are (row, column) of cells to point out. `explain(row, column)` gives one cell's arithmetic. `shades` are
    the numbers to shade by where the cells themselves are words (what a layer would say, by how sure it is).
    """

    name: str
    values: tuple[tuple[Cell, ...], ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str = ""
    column_axis: str = ""
    tex: str = ""
    says: str = ""
    shaded: bool = False
    marks: frozenset[tuple[int, int]] = frozenset()
    explain: Callable[[int, int], Arithmetic] | None = field(default=None, compare=False)
    shades: tuple[tuple[float | None, ...], ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns."""
        return len(self.rows), len(self.columns)


@dataclass(frozen=True)
class Table:
    """Plain columns with a header each; cells are text or numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


@dataclass(frozen=True)
class Plane:
    """Named points or arrows in two dimensions (the word plane, a projection).

    `groups` name the kind of each point, and `neighbours` the places of the points nearest to it, nearest first.
    """

    title: str
    points: tuple[tuple[str, float, float], ...]
    x_axis: str = ""
    y_axis: str = ""
    arrows: bool = False
    lines: tuple[tuple[float, float, float, float], ...] = ()
    groups: tuple[str, ...] = ()
    neighbours: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Curves:
    """Lines over a common axis, each a name with its (x, y) points."""

    title: str
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    x_axis: str = ""
    y_axis: str = ""


@dataclass(frozen=True)
class Block:
    """A box of a diagram: what it is, what it does, how large it is, and the boxes inside, first to last.

    `times` equal boxes stand on top of each other and are drawn once.
    """

    name: str
    says: str = ""
    note: str = ""
    blocks: tuple["Block", ...] = ()
    times: int = 1

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "Block"]]:
        """This box and all inside it, each with its depth."""
        yield depth, self
        for block in self.blocks:
            yield from block.walk(depth + 1)


@dataclass(frozen=True)
class Diagram:
    """How something is built: columns of boxes, read upwards as figure 1 is; in words, from the first to the last."""

    title: str
    columns: tuple[tuple[Block, ...], ...]

    def walk(self) -> Iterator[tuple[int, Block]]:
        """All boxes with their depth, column by column."""
        for column in self.columns:
            for block in column:
                yield from block.walk()


@dataclass(frozen=True, eq=False)
class Rows:
    """Single rows of maps in full, where the maps themselves are tiled: `values` is [down, across, row, column]."""

    places: tuple[int, ...]
    values: "np.ndarray"


@dataclass(frozen=True, eq=False)
class Vectors:
    """Queries `[down, across, row, width]` and keys `[down, across, column, width]` that the numbers of maps came from.

    A score is their product times `scale`, kept within `softcap` where there is one.
    """

    query: "np.ndarray"
    key: "np.ndarray"
    scale: float
    softcap: float | None = None


@dataclass(frozen=True, eq=False)
class Maps:
    """Heat maps of one shape on a grid, one of them chosen: layers by heads, or one head over checkpoints.

    `values` is [down, across, row, column], and NaN is what is not there (a key that may not be looked at). `rows` and
    `columns` name the tokens, `down` and `across` the maps. Above `tile` 1 each cell of `values` stands for a square
    of so many tokens, `reduced` by "mean" or "max"; then `exact` may hold some rows in full. With `vectors` a cell can
    be opened to its arithmetic; without them, `command` is the start of a line that shows it.
    """

    title: str
    values: "np.ndarray"
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    down: tuple[str, ...] = ("",)
    across: tuple[str, ...] = ("",)
    row_axis: str = "query"
    column_axis: str = "key"
    down_axis: str = "layer"
    across_axis: str = "head"
    says: str = ""
    chosen: tuple[int, int] = (0, 0)
    tile: int = 1
    reduced: str = ""
    exact: Rows | None = None
    vectors: Vectors | None = None
    command: str = ""

    @property
    def count(self) -> int:
        """How many maps there are."""
        return len(self.down) * len(self.across)

    def name(self, down: int, across: int) -> str:
        """What one map is called: "layer 2, head 3"."""
        said = ((self.down_axis, self.down[down]), (self.across_axis, self.across[across]))
        return ", ".join(f"{axis} {label}".strip() for axis, label in said if label)


@dataclass(frozen=True, eq=False)
class Links:
    """Lines between two rows of words, as strong as their weight: `weights` is [left, right].

    `ribbons` sets the words of both sides beside each other and joins them by bands (an alignment); without it each
    side is a column (the classic view of a head). `known` are (left, right) that are known to belong together.
    """

    title: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    weights: "np.ndarray"
    left_axis: str = "query"
    right_axis: str = "key"
    says: str = ""
    ribbons: bool = False
    least: float = 0.02
    known: tuple[tuple[int, int], ...] = ()

    def strongest(self, most: int) -> list[tuple[int, int, float]]:
        """(left, right, weight) of links of at least `least`, the strongest first."""
        import numpy as np  # only here: a page of help needs no arrays

        weights = np.nan_to_num(np.asarray(self.weights, dtype=float))
        left, right = np.nonzero(weights >= self.least)
        order = np.argsort(-weights[left, right], kind="stable")[:most]
        return [(int(left[i]), int(right[i]), float(weights[left[i], right[i]])) for i in order]


@dataclass(frozen=True)
class Cache:
    """What each step of generation had to compute and what it took from the cache.

    `tokens` are prompt and answer; `steps` are (places reused, places computed) and count from the first token.
    """

    title: str
    tokens: tuple[str, ...]
    steps: tuple[tuple[int, int], ...]
    says: str = ""


Part = Heading | Paragraph | Formula | Arithmetic | Matrix | Table | Plane | Curves | Diagram | Maps | Links | Cache


@dataclass(frozen=True)
class Document:
    """A title and what stands below it, in order. `decimals` is how many a drawn number gets.

    `settings` are lines `name: value` that say how the numbers were made, for formats that hold only tables.
    """

    title: str
    parts: tuple[Part, ...]
    decimals: int = 4
    settings: tuple[str, ...] = ()

    def matrices(self) -> Sequence[Matrix]:
        """All matrices, in order."""
        return [part for part in self.parts if isinstance(part, Matrix)]

    def has_numbers(self) -> bool:
        """Whether anything in it is rounded when drawn: a table of words alone needs no word about rounding."""
        return any(_has_numbers(part) for part in self.parts)


def _has_numbers(part: Part) -> bool:
    if isinstance(part, Table):
        return any(isinstance(cell, float | int) for row in part.rows for cell in row)
    return isinstance(part, Matrix | Plane | Curves | Maps | Links)
