"""What is shown, as plain data: a document of headings, sentences, formulas, labelled matrices, tables and pictures.

`render/` draws a document; nothing here knows how it will look. Numbers stay numbers: rounding is said
once per document (`decimals`) and done by whoever draws.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

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
    `marks` are (row, column) of cells to point out. `explain(row, column)` gives one cell's arithmetic.
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
    """Named points or arrows in two dimensions (the word plane, a projection)."""

    title: str
    points: tuple[tuple[str, float, float], ...]
    x_axis: str = ""
    y_axis: str = ""
    arrows: bool = False
    lines: tuple[tuple[float, float, float, float], ...] = ()


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


Part = Heading | Paragraph | Formula | Arithmetic | Matrix | Table | Plane | Curves | Diagram


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
    return isinstance(part, Matrix | Plane | Curves)
