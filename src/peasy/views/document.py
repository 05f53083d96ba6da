"""Document model: headings, paragraphs, formulas, labelled matrices, tables and figures as frozen dataclasses.

`render/` draws a document; nothing here depends on an output format. Numbers are not rounded here: `decimals` is set
once per document and applied by the renderer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from peasy.parameters import Record

if TYPE_CHECKING:
    import numpy as np

Cell = float | str | None
"""A number, a string (symbol, verdict), or an empty cell."""

CellFormula = Callable[[int, int, Callable[[str, int, int], str]], str]
"""Writes row and column of a matrix as a formula; the last argument gives the address of a cell of any matrix."""


class Heading(Record):
    """Section heading; `number` is set where sections are numbered."""

    text: str
    number: int | None = None

    @property
    def prefix(self) -> str:
        """The number as written before the text: "1. ", or nothing."""
        return "" if self.number is None else f"{self.number}. "


class Paragraph(Record):
    """Paragraph of plain text; `tone` is "plain", "note" (an aside), "main" (shown in pictures), "good", "bad"."""

    text: str
    tone: str = "plain"

    @property
    def sign(self) -> str:
        """Mark before the text of a good or bad verdict, so that colour is not the only sign."""
        return {"good": "✓ ", "bad": "✗ "}.get(self.tone, "")


class Formula(Record):
    """Display formula, in the subset of TeX that `render/tex.py` supports."""

    tex: str


class Arithmetic(Record):
    """Calculation of one number, line by line: `0.7071 = 1 / 1.4142`. The last line is the number itself."""

    title: str
    lines: tuple[str, ...]


class Matrix(Record):
    """Matrix with labelled rows and columns, shaded by value where `shaded`.

    `row_axis` and `column_axis` name the axes (query, key, d_model, ...). `marks` are (row, column) of highlighted
    cells. `explain(row, column)` returns the arithmetic of one cell. `shades` are the values to shade by where the
    cells themselves are words (a predicted token, shaded by its probability). `formula` writes a calculated cell as a
    formula of a spreadsheet, or "" if it has none.
    """

    name: str
    values: tuple[tuple[Cell, ...], ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str = ""
    column_axis: str = ""
    tex: str = ""
    description: str = ""
    shaded: bool = False
    marks: frozenset[tuple[int, int]] = frozenset()
    explain: Callable[[int, int], Arithmetic] | None = field(default=None, compare=False)
    shades: tuple[tuple[float | None, ...], ...] = ()
    formula: CellFormula | None = field(default=None, compare=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self.rows), len(self.columns)


class Table(Record):
    """Table with column headers; cells are text or numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


class Plane(Record):
    """Scatter plot of named points or arrows (word vectors, a projection).

    `groups` holds the cluster of each point, `neighbours` the indices of the points nearest to it, nearest first.
    """

    title: str
    points: tuple[tuple[str, float, float], ...]
    x_axis: str = ""
    y_axis: str = ""
    arrows: bool = False
    lines: tuple[tuple[float, float, float, float], ...] = ()
    groups: tuple[str, ...] = ()
    neighbours: tuple[tuple[int, ...], ...] = ()


class Curves(Record):
    """Line plot: each line is a name with its (x, y) points."""

    title: str
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    x_axis: str = ""
    y_axis: str = ""


class Node(Record):
    """Node of an architecture diagram: name, description, size, and the nodes inside it, first to last.

    `repeat` identical nodes are stacked and drawn once.
    """

    name: str
    description: str = ""
    note: str = ""
    nodes: tuple["Node", ...] = ()
    repeat: int = 1

    @property
    def times(self) -> str:
        """The number of repetitions as written before the name: "12 × ", or nothing."""
        return f"{self.repeat} × " if self.repeat > 1 else ""

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "Node"]]:
        """Yield this node and all nodes inside it, each with its depth."""
        yield depth, self
        for block in self.nodes:
            yield from block.walk(depth + 1)


class Diagram(Record):
    """Architecture diagram: columns of nodes, drawn from bottom to top; as text, first to last."""

    title: str
    columns: tuple[tuple[Node, ...], ...]

    def walk(self) -> Iterator[tuple[int, Node]]:
        """Yield all nodes with their depth, column by column."""
        for column in self.columns:
            for block in column:
                yield from block.walk()


class Rows(Record, eq=False):
    """Exact rows of tiled heat maps: `values` is [down, across, row, column]."""

    positions: tuple[int, ...]
    values: "np.ndarray"


class Vectors(Record, eq=False):
    """Queries `[down, across, row, width]` and keys `[down, across, column, width]` behind the weights of heat maps.

    A score is their dot product times `scale`, limited by `softcap` where there is one.
    """

    query: "np.ndarray"
    key: "np.ndarray"
    scale: float
    softcap: float | None = None


class Maps(Record, eq=False):
    """Grid of heat maps of one shape, one of them selected: layers by heads, or one head over checkpoints.

    `values` is [down, across, row, column]; NaN is an empty cell (a masked key). `rows` and `columns` are token labels,
    `down` and `across` label the maps. If `tile_size` is above 1, each cell of `values` covers a square of tokens with
    that side, reduced by `reduction` ("mean" or "max"), and `exact_rows` may hold some rows at full resolution. With
    `vectors`, a cell can be expanded to its arithmetic; without them, `command` is the start of a command line that
    shows it.
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
    description: str = ""
    selected: tuple[int, int] = (0, 0)
    tile_size: int = 1
    reduction: str = ""
    exact_rows: Rows | None = None
    vectors: Vectors | None = None
    command: str = ""

    @property
    def count(self) -> int:
        """Number of maps."""
        return len(self.down) * len(self.across)

    def name(self, down: int, across: int) -> str:
        """Return the name of one map: "layer 2, head 3"."""
        labels = ((self.down_axis, self.down[down]), (self.across_axis, self.across[across]))
        return ", ".join(f"{axis} {label}".strip() for axis, label in labels if label)


class Links(Record, eq=False):
    """Bipartite graph of two token sequences, lines drawn by weight: `weights` is [left, right].

    With `ribbons`, each side is a row of words and links are bands (an alignment); otherwise each side is a column (as
    in BertViz). `gold` are (left, right) pairs of a reference alignment.
    """

    title: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    weights: "np.ndarray"
    left_axis: str = "query"
    right_axis: str = "key"
    description: str = ""
    ribbons: bool = False
    min_weight: float = 0.02
    gold: tuple[tuple[int, int], ...] = ()

    def strongest(self, limit: int) -> list[tuple[int, int, float]]:
        """Return (left, right, weight) of links with at least `min_weight`, the strongest first."""
        import numpy as np  # only here: --help must not import NumPy

        weights = np.nan_to_num(np.asarray(self.weights, dtype=float))
        left, right = np.nonzero(weights >= self.min_weight)
        order = np.argsort(-weights[left, right], kind="stable")[:limit]
        return [(int(left[i]), int(right[i]), float(weights[left[i], right[i]])) for i in order]


class CacheFigure(Record):
    """KV cache use per decoding step.

    `tokens` are prompt and generated tokens; `steps` are (cached positions, computed positions), from the first token.
    """

    title: str
    tokens: tuple[str, ...]
    steps: tuple[tuple[int, int], ...]
    description: str = ""


DocumentPart = (
    Heading | Paragraph | Formula | Arithmetic | Matrix | Table | Plane | Curves | Diagram | Maps | Links | CacheFigure
)


class Document(Record):
    """Document: a title and its parts, in order. `decimals` is the number of decimals shown.

    `settings` are lines `name: value` that state how the numbers were made, for formats that hold only tables.
    `picture` is the data of an interactive picture of a whole model (`ForwardPass`), for pages.
    A `fragment` is drawn without a preamble where a format has one (LaTeX).
    """

    title: str
    parts: tuple[DocumentPart, ...]
    decimals: int = 4
    settings: tuple[str, ...] = ()
    picture: Mapping[str, object] | None = None
    fragment: bool = False

    def with_note(self, note: str | None) -> "Document":
        """Return the document with a note at its end, if there is one."""
        return replace(self, parts=(*self.parts, Paragraph(note, "note"))) if note else self

    def matrices(self) -> Sequence[Matrix]:
        """Return all matrices, in order."""
        return [part for part in self.parts if isinstance(part, Matrix)]

    def has_numbers(self) -> bool:
        """Return True if any part shows rounded numbers; only then a note about rounding is needed."""
        cells = (cell for part in self.parts if isinstance(part, Table) for row in part.rows for cell in row)
        figures = Matrix | Plane | Curves | Maps | Links
        return any(isinstance(part, figures) for part in self.parts) or any(isinstance(c, float | int) for c in cells)


def short_title(text: str, model: str = "") -> str:
    """Return a text on one line, cut between words after at most 60 characters, with the name of the model.

    >>> short_title("one two three " * 9, "stories")
    'one two three one two three one two three one two three... (stories)'
    """
    return shorten(text, 60) + (f" ({model})" if model else "")


def shorten(text: str, length: int) -> str:
    """Return a text on one line, cut between words, or within a word that is longer than the line."""
    line = " ".join(text.split())
    cut = line[: length - 2].rpartition(" ")[0] or line[: length - 3]
    return line if len(line) <= length else f"{cut.rstrip(',;:')}..."


def capitalized_note(text: str) -> Paragraph:
    """Return a caveat as a note that begins with a capital letter."""
    return Paragraph(text[:1].upper() + text[1:], "note")


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: "1 token", "2,000 tokens"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Return a duration as text.

    >>> format_duration(7), format_duration(75), format_duration(3 * 3600 + 120)
    ('7 s', '1 min 15 s', '3 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
