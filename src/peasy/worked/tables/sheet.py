"""Sheet of notes: the tables and settings found in a text, and the example built from them."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

from peasy import config
from peasy.config import JsonDict
from peasy.errors import InvalidInput, did_you_mean
from peasy.formula.scoring import NORMALISATIONS, SCORINGS
from peasy.parameters import Record
from peasy.worked.checking.cell import CellMark, WrittenNumber, read_cell, read_number, read_or_mark
from peasy.worked.checking.step_aliases import parse_caption
from peasy.worked.checking.table import KEY_COLUMNS, KEY_ROWS, UNKNOWN_ROW, split_totals
from peasy.worked.example import Example, WrittenTable, example_names, load_example
from peasy.worked.solver import WorkedExample, find_node, solve
from peasy.worked.tables.arrays import PrintedArray

SETTINGS = (
    "title", "example", "tokens", "source_tokens", "causal", "window", "scoring", "scale", "normalise", "heads", "d_k",
)  # fmt: skip
"""Settings that a line `name: value` may set."""

_Rows = Sequence[Sequence[str]]

_MAX_TABLES = 500
"""Maximum number of tables in one file."""

_BY_QUERY = ("x", "query", "scores", "scaled", "masked", "powers", "weights", "context", "output", "concat")
_UNRELATED = {"x", "source", "context", "output", "concat"}
"""Vectors of one token with these names only, `x` and `attention(x)`, do not follow from each other."""
_STAGES = {
    "x": 0, "source": 0, "w_q": 1, "b_q": 1, "w_k": 1, "b_k": 1, "query": 2, "key": 2, "key_transposed": 2, "scores": 3,
    "scaled": 4, "masked": 5, "powers": 6, "sums": 6, "weights": 7, "w_v": 7, "b_v": 7, "value": 7, "context": 8,
    "concat": 9, "w_o": 9, "b_o": 9, "output": 10,
}  # fmt: skip
"""Stage of each table in the calculation; values may come as late as they are used."""

_SETTING_LINE = re.compile(
    r"\s*(?:[-*+]\s+)?[*_`]*([A-Za-z][A-Za-z _]{1,20}?)[*_`]*\s*[:=]\s*[*_`]*\s*(\S.*?)\s*[*_`]*\s*"
)
_SETTING_VALUES = re.compile(r"true|false|yes|no|-?[\d.]+|dot|cosine|scaled[- ]dot|softmax|sum|none", re.IGNORECASE)
_PRODUCT = re.compile(r"Q\s*K\s*(\^|ᵀ)")
_COSINE = re.compile(r"\\lVert|‖|\bcosine\b", re.IGNORECASE)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_OBJECT_PREFIX = re.compile(r"^(?:[A-Za-z_]\w*(?:\[\d+\])?\.)+(?=[A-Za-z_]\w*(?:\(|$))")
_ROUNDED = re.compile(r"^(?:np|torch)\.round\((.*?)(?:,\s*(?:decimals=)?\d+)?\)$|^(\w+)\.round\(.*\)$")
_INDEX = re.compile(r"_\{?(\d{1,2})\}?(?!\d)|\^\{?\((\d{1,2})\)\}?")
_OF_HEADS = ("w_q", "w_k", "w_v", "query", "key", "value")
_WORD_INDEX = re.compile(r"_\{(?:\\\w+\{)?([a-z]{4,})\}")
_ELISION = re.compile(r"\\[vd]dots|[⋮⋱]")
_TRANSPOSED = re.compile(r"\.T\b|\.(?:t|transpose)\([^()]*\)")


@dataclass
class Sheet:
    """Output of a reader: captioned tables and settings. A table whose caption names no step has the name ""."""

    tables: list[WrittenTable] = field(default_factory=list)
    settings: JsonDict = field(default_factory=dict)
    head: int | None = None
    inferred: list[JsonDict] = field(default_factory=list)
    literals: set[WrittenTable] = field(default_factory=set)
    """Tables that a program holds in its text: they are given there, not calculated."""
    adjacent: set[WrittenTable] = field(default_factory=set)
    """Tables that an author wrote directly below another one: they follow from it."""
    text: str = ""
    """Text with its calculations; "" if the file is no running text."""
    sequential: bool = False
    """True if tables are the output of a program, so that an input after results starts a new calculation."""

    def add(self, captions: Sequence[str], cells: _Rows, rows: Sequence[str], columns: Sequence[str]) -> None:
        """Add a table under the first caption that names a step. No labels: empty."""
        if len(self.tables) >= _MAX_TABLES:
            raise InvalidInput(f"There are more than {_MAX_TABLES} tables.", hint="Check a shorter file.")
        description, inferred = "", JsonDict()
        if self.network is not None:
            nodes = self.network.graph.nodes
            node = next(filter(None, (find_node(caption, nodes) for caption in captions)), None)
            name = node or next(iter(captions), "")
            is_table = any(cells) and (node is not None or _has_numbers(cells))
        elif named := next(filter(None, (_parse_symbol(caption, cells, self.has_heads) for caption in captions)), None):
            step, head = named[0], named[1] or self.head
            if head and step == "output" and "output" not in captions[0].lower():
                step = "context"  # O_1 = A_1 V_1
            is_column = len(cells) > 1 and all(len(row) == 1 for row in cells)
            if is_column and re.fullmatch(r"[\s$]*[qkvxz]\s*", captions[0]):  # a small letter: a vector of one token
                cells = [[row[0] for row in cells]]
            if step == "scores" and captions[0].strip(" $*#:") == "E" and any(len(row) != len(cells) for row in cells):
                step = "x"  # embeddings, not energies
            name = f"{step} head {head}" if head and step not in ("x", "source", "concat", "output") else step
            inferred, is_table = _infer_settings(step, captions, cells), True
        else:
            name, description, is_table = "", captions[0] if captions else "", _has_numbers(cells)
        if is_table and any(_ELISION.search(text) for row in cells for text in row):
            is_table = False  # abbreviated with dots
        if is_table:
            table = WrittenTable(name, tuple(map(tuple, cells)), tuple(rows), tuple(columns), description)
            self.tables.append(table)
            self.inferred.append(inferred)

    @property
    def has_heads(self) -> bool:
        """True if a table so far belongs to a head."""
        return any(" head " in table.table for table in self.tables)

    @property
    def network(self) -> WorkedExample | None:
        """The library's example that a line `example: layer-norm` names, unless it is one of attention."""
        name = str(self.settings.get("example", "")).replace("{-}", "-")  # as LaTeX writes a hyphen
        worked = _load_network(name) if name else None
        return worked if worked is not None and worked.example.steps else None

    def add_array(self, array: PrintedArray, is_program: bool = False) -> None:
        """Add an array printed by a program; in program text, one without a known name is left out.

        A vector is one row, named by a number in its name.
        """
        is_product = bool(array.captions) and "@" in array.captions[0]  # an expression that was printed
        captions = array.captions[:1] if is_product else array.captions
        named = next(filter(None, map(_parse_variable, captions)), None)
        is_trivial = not any(text.strip("01. ") for row in array.rows for text in row)
        if is_trivial and (named is None or named.step == "sums"):
            return  # a mask, or sums of weights
        if named and named.step == "x" and array.is_vector and self.sequential and "." not in "".join(array.rows[0]):
            return  # ids of tokens
        if named is None:
            if (not is_program or array.is_output) and not array.is_vector:
                self.add(array.captions[:1], array.rows, (), ())
            return
        rows = tuple(zip(*array.rows, strict=False)) if named.transposed else array.rows
        labels = () if not array.is_vector or named.step.startswith("b_") else (named.number or UNKNOWN_ROW,)
        self.sequential |= is_program
        self.add([f"{named.step} head {array.head}" if array.head else named.step], rows, labels, ())
        if is_program and not array.is_output:
            self.literals.add(self.tables[-1])

    def read_setting(self, line: str) -> bool:
        """Read a line such as `causal: true` as a setting; raise on a misspelt one; False for any other line."""
        match = _SETTING_LINE.fullmatch(line) if len(line) < 2000 else None
        if not match:
            return False
        name, value = match[1].strip().lower().replace(" ", "_").replace("normalize", "normalise"), match[2].strip()
        if name == "mask" and value.lower() in ("causal", "none"):
            name, value = "causal", str(value.lower() == "causal")
        if name in SETTINGS:
            if is_setting := _is_value(name, value):
                self.settings[name] = value
            return is_setting
        # `num_heads = 16` in a lecture is no misspelt setting
        is_typed = _SETTING_VALUES.fullmatch(value) and len(name) > 3 and not re.match(r"num_|n_|.*=", line)
        near = did_you_mean(name, SETTINGS[3:]) if is_typed else None
        if near and parse_caption(name) is None:
            raise InvalidInput(f'"{line.strip()[:60]}": there is no such setting.', hint=near)
        return False

    def examples(self, title: str) -> tuple[Example, ...]:
        """Build the examples from tables and settings: one, or several if the calculation starts again."""
        if self.network is not None:
            return (self._network_example(title, self.network.example),)
        if not any(table.table for table in self.tables):
            captions = [table.description for table in self.tables if table.description][:5]
            found = f" Captions found: {', '.join(captions)}." if captions else ""
            hint = "Put the step above each table: X, W_Q, W_K, W_V, Q, K, V, scores, scaled, weights, context."
            raise InvalidInput(f"No table has a caption that names its step.{found}", hint=hint)
        parts = [list(self.tables)] if self.sequential else _split_parts(self.tables)
        titles = [title] if len(parts) == 1 else [f"{title}, part {number + 1}" for number in range(len(parts))]
        return tuple(self.build(*part) for part in zip(titles, parts, strict=True))

    def _network_example(self, title: str, example: Example) -> Example:
        """Return a network with the tables of the sheet; those it is given replace its own numbers."""
        given = dict(example.given_nodes)
        for table in self.tables:
            numbers = [[read_number(str(cell)) for cell in row] for row in table.cells]
            if table.table in given and numbers and all(number is not None for row in numbers for number in row):
                given[table.table] = tuple(tuple(number.value for number in row if number) for row in numbers)
        return replace(example, title=title, given=given, written=tuple(self.tables))

    def build(self, title: str, tables: Sequence[WrittenTable]) -> Example:
        """Build the example of some of the tables."""
        settings = {name: _parse_value(name, value) for name, value in self.settings.items()}
        if "d_k" in settings and isinstance(settings["d_k"], int):
            settings.setdefault("scale", settings["d_k"] ** -0.5)
        settings.pop("d_k", None)
        inferred: JsonDict = {}
        for table, found in zip(self.tables, self.inferred, strict=True):
            inferred |= found if table in tables else {}
        if not {step for step, _ in filter(None, map(parse_caption, (table.table for table in tables)))} - _UNRELATED:
            tables = [replace(table, table="") if UNKNOWN_ROW in table.rows else table for table in tables]
        fields: JsonDict = {"title": title, **inferred, **settings}
        named = [split_totals(t, _step_of(t), {*t.rows} & {*t.columns})[0] for t in tables if t.table]
        heads = [parsed[1] or 1 for table in named if (parsed := parse_caption(table.table))]
        fields.setdefault("heads", max([1, *heads]))
        fields.setdefault("tokens", list(_infer_tokens(named)))
        keys = _infer_keys(named, len(fields["tokens"]))
        if keys:
            fields.setdefault("source_tokens", list(keys))
        return replace(config.read(Example, fields), written=tuple(_join_heads(tables)))


def _join_heads(tables: Sequence[WrittenTable]) -> list[WrittenTable]:
    """Return the tables with the projections of all heads, W_Q^(1) and W_Q^(2), beside each other as one."""
    joined = list(tables)
    for step in ("w_q", "w_k", "w_v"):
        parts = [table for table in joined if table.table.startswith(f"{step} head ")]
        if len({table.table for table in parts}) == len(parts) > 1 and len({len(table.cells) for table in parts}) == 1:
            rows = zip(*(table.cells for table in parts), strict=True)
            whole = replace(parts[0], table=step, cells=tuple(tuple(chain(*row)) for row in rows), columns=())
            joined = [whole if table is parts[0] else table for table in joined if table not in parts[1:]]
    return joined


def _parse_symbol(caption: str, cells: _Rows, has_heads: bool = False) -> tuple[str, int | None] | None:
    """Return the step and head that a caption names; the number of a matrix such as Q_1 or W_Q^{(1)} is its head.

    A_1 and Z_2 may also be results of layers or examples: they belong to heads only if queries, keys or values do.

    >>> _parse_symbol("Q_1", [["1"], ["2"]]), _parse_symbol("q_1", [["1", "2"]]), _parse_symbol("A_1", [["1"], ["0"]])
    (('query', 1), None, None)
    """
    if caption.count("(") != caption.count(")"):
        return parse_caption(caption)
    numbers = {number for pair in _INDEX.findall(caption) for number in pair if number}
    named = parse_caption(_INDEX.sub("", caption)) if len(numbers) == 1 < len(cells) else None
    if named and (has_heads or named[0] in _OF_HEADS):
        return named[0], int(numbers.pop())
    word = _WORD_INDEX.search(caption)
    return parse_caption(caption) or (parse_caption(word[1]) if word else None)


class Variable(Record):
    """Variable of a program as a table: its step, a number in its name, and whether it is stored transposed."""

    step: str
    number: str | None = None
    transposed: bool = False


def _parse_variable(text: str) -> Variable | None:
    """Return the step of an expression: `attn_weights`, `query_2`, `W_query.weight`, `W_q(x)`; None if it is no step.

    The weight of a torch Linear layer is stored transposed; a layer applied to inputs gives queries, keys or values.

    >>> _parse_variable("query_2"), _parse_variable("self.W_q.weight").transposed, _parse_variable("model.W_k(x)").step
    (Variable(step='query', number='2', transposed=False), True, 'key')
    """
    text = _ROUNDED.sub(r"\1\2", text.strip())
    if "@" in text and (product := parse_caption(_TRANSPOSED.sub("^T", text))):
        return Variable(product[0])
    transposes = len(_TRANSPOSED.findall(text)) + text.count(".weight")
    name = _TRANSPOSED.sub("", text.strip()).replace(".weight", "").replace(".data", "").replace(".bias", "_bias")
    name = _OBJECT_PREFIX.sub("", name)
    call = re.fullmatch(r"(\w+)\(\s*\w+\s*\)", name)
    parsed = parse_caption(call[1] if call else name)
    if parsed and call:
        return Variable({"w_q": "query", "w_k": "key", "w_v": "value"}.get(parsed[0], parsed[0]))
    if parsed:
        step = f"{parsed[0]} head {parsed[1]}" if parsed[1] else parsed[0]
        return Variable(step, transposed=transposes % 2 == 1)
    match = re.fullmatch(r"(.*?)_?(\d+)", name)
    parsed = parse_caption(match[1]) if match and match[1] else None
    return Variable(parsed[0], match[2]) if parsed and match else None


@lru_cache(maxsize=64)
def _load_network(name: str) -> WorkedExample:
    return solve(load_example(name))


def _has_numbers(cells: Sequence[Sequence[str]]) -> bool:
    """True if most cells of a table are numbers."""
    texts = [text for row in cells[:50] for text in row[:50] if text.strip()]
    return bool(texts) and sum(read_number(text) is not None for text in texts if len(text) < 50) > len(texts) / 2


def _split_parts(tables: Sequence[WrittenTable]) -> list[list[WrittenTable]]:
    """Split tables into calculations: a table that was already there with other numbers starts a new one.

    The new one keeps the tables that come before it in the calculation.
    """
    parts: list[list[WrittenTable]] = [[]]
    for table in tables:
        if parts[-1] and _is_scaled(table, parts[-1][-1]):
            table = replace(table, table=table.table.replace("scores", "scaled"))
        elif table.table.startswith("scores") and any(_is_softmax_of(table, other) for other in parts[-1]):
            table = replace(table, table=table.table.replace("scores", "weights"))
        if parse_caption(table.table) and any(_contradicts(table, other) for other in parts[-1]):
            parts.append([other for other in parts[-1] if comes_before(other, table)])
        parts[-1].append(table)
    return parts


def _is_scaled(table: WrittenTable, scores: WrittenTable) -> bool:
    """True if a table is called scores like the one before it, and most of its numbers are those times a factor."""
    if not table.table.startswith("scores") or table.table != scores.table or table.rows != scores.rows:
        return False
    numbers = [[read_number(str(cell)) for row in each.cells for cell in row] for each in (table, scores)]
    ratios = sorted(a.value / b.value for a, b in zip(*numbers, strict=False) if a and b and b.value)
    middle = ratios[len(ratios) // 2] if ratios else 1.0
    near = sum(abs(ratio - middle) <= 0.02 * abs(middle) for ratio in ratios)
    return len(numbers[0]) == len(numbers[1]) and abs(middle - 1) > 0.02 and near > len(ratios) / 2


def _is_softmax_of(table: WrittenTable, scores: WrittenTable) -> bool:
    """True if a table is called scores, S, like one before it, and its rows are shares that sum to 1."""
    if table.table != scores.table or table.cells == scores.cells or len(table.cells) != len(scores.cells):
        return False
    rows = [[number.value if (number := read_number(str(cell))) else -1.0 for cell in row] for row in table.cells]
    return all(row and min(row) >= 0 and abs(sum(row) - 1) < 0.02 for row in rows)


def comes_before(other: WrittenTable, table: WrittenTable) -> bool:
    """True if a table is calculated before another one."""
    first, second = parse_caption(other.table), parse_caption(table.table)
    return first is not None and second is not None and first != second and _STAGES[first[0]] <= _STAGES[second[0]]


def _contradicts(table: WrittenTable, other: WrittenTable) -> bool:
    """True if two tables are the same step with the same rows, and half of their numbers or more differ."""
    if table.table != other.table or table.rows != other.rows or UNKNOWN_ROW in table.rows:
        return False
    if [len(row) for row in table.cells] != [len(row) for row in other.cells]:
        return len(table.cells) == len(other.cells) or not table.rows
    pairs = [
        (read_number(str(a)), read_number(str(b)))
        for row, other_row in zip(table.cells, other.cells, strict=True)
        for a, b in zip(row, other_row, strict=True)
    ]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return bool(known) and sum(not a.may_be(b.low, b.high) for a, b in known) >= len(known) / 2


def split_labels(header: Sequence[str] | None, body: _Rows) -> tuple[list[list[str]], list[str], list[str]]:
    """Separate cells from the labels of rows and columns: a non-numeric header, and a first column of names.

    >>> split_labels(["", "I", "AI"], [["I", "0.2", "0.8"]])
    ([['0.2', '0.8']], ['I'], ['I', 'AI'])
    """
    rows = [list(row) for row in body]
    if header is not None and not any(text.strip() for text in header):
        header = None  # Markdown requires a header, which may be empty
    if header is not None and _is_numeric_row(header):
        rows, header = [list(header), *rows], None  # a header of numbers is the first row
    if header is None and len(rows) > 1 and all(len(row) > 1 and not row[0].strip() for row in rows):
        rows = [row[1:] for row in rows]  # an empty column of labels
    corner = "" if header is None else header[0]
    labelled = any(row and not _is_cell(row[0]) for row in rows)
    if header is not None and len(header) > 1:
        labelled |= not corner.strip() or "\\" in corner or "↓" in corner or _heads_labels(header, rows)
    columns = [text.strip() for text in header or ()]
    if not labelled:
        return rows, [], columns
    return [row[1:] for row in rows], [row[0].strip() if row else "" for row in rows], columns[1:]


def _heads_labels(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """True if a first column of whole numbers under a name is one of labels: the other columns are numbered.

    >>> _heads_labels(["Token", "Dim 1", "Dim 2"], [["0", "0.5", "0.1"], ["1", "0.2", "0.3"]])
    True
    """
    numbered = [bool(re.search(r"\d", name)) for name in header]
    whole = all(row and re.fullmatch(r"\s*\d+\s*", row[0]) for row in rows)
    return whole and not numbered[0] and all(numbered[1:])


def _infer_settings(step: str, captions: Sequence[str], cells: Sequence[Sequence[str]]) -> JsonDict:
    """Infer settings from a table: the formula above scores or weights, and crosses above the diagonal.

    An explicit setting line takes precedence.
    """
    settings: JsonDict = {}
    if step in ("masked", "weights") and len(cells) > 1:
        short = [row for row in cells if max(map(len, row), default=0) < 50]
        hidden = [[read_or_mark(text) is CellMark.MASKED for text in row] for row in short]
        if hidden == [[column > row for column in range(len(cells))] for row in range(len(cells))]:
            settings["causal"] = True
    formulas = [caption for caption in captions if "softmax" in caption and _PRODUCT.search(caption)]
    if step == "scores" and any(_COSINE.search(caption) for caption in captions):
        settings["scoring"] = "cosine"
    elif step == "weights" and formulas and not re.search(r"sqrt|√|/", formulas[0]):
        settings["scoring"] = "dot"
    return settings


def _is_numeric_row(header: Sequence[str]) -> bool:
    """True if a header is a row of numbers, not column numbers such as 0, 1, 2 or 1, 2, 3."""
    name, *rest = header
    if not name.strip() or re.search(r"\\\s|[↓→]", name) or not all(text.strip() and _is_cell(text) for text in rest):
        return False
    column_numbers = [[str(first + index) for index in range(len(rest))] for first in (0, 1)]
    return _is_cell(name) or (bool(rest) and [text.strip() for text in rest] not in column_numbers)


def _is_cell(text: str) -> bool:
    """True if a text can be a cell (number, mask sign, blank, symbolic product) and not a row label."""
    content = read_or_mark(text)
    terms = content if isinstance(content, tuple) else ()
    return content is not CellMark.UNREADABLE and all(len(term.names) > 1 or term.factor is not None for term in terms)


def _is_value(name: str, text: str) -> bool:
    """True if a text is the value of a setting, not a sentence: `Scale: why we divide`. Raise for an unknown word."""
    choices: dict[str, Collection[str]] = {
        "causal": _BOOLEANS, "scoring": SCORINGS, "normalise": NORMALISATIONS, "example": example_names(),
    }  # fmt: skip
    value = text.lower().replace(" ", "-").replace("{-}", "-")  # as LaTeX writes a hyphen
    known = choices.get(name, ())
    if name in ("title", "tokens", "source_tokens") or value in known or (not known and read_number(text) is not None):
        return True
    near = did_you_mean(value, known)
    if re.fullmatch(r"[\w-]+", text, re.ASCII) and (near or name != "example"):
        raise InvalidInput(f'"{name}: {text[:40]}": there is no such value.', hint=near)
    return False


def _parse_value(name: str, text: str) -> object:
    if name == "causal":
        return _BOOLEANS.get(text.lower(), text)
    if name in ("heads", "window", "d_k") and re.fullmatch(r"\d{1,6}", text):
        return int(text)
    if name == "scale":
        content = read_cell(text, "scale")
        return content.value if isinstance(content, WrittenNumber) else text
    if name in ("tokens", "source_tokens"):
        return [token.strip().strip("\"'") for token in (text.strip("[]").split(",") if "," in text else text.split())]
    return text.lower().replace(" ", "-") if name in ("scoring", "normalise") else text


def _row_number(table: WrittenTable) -> int:
    """Return the number of the row that a printed vector has in its name, such as 2 of q_2, or 0."""
    return int(table.rows[0]) if len(table.rows) == 1 and re.fullmatch(r"\d{1,2}", table.rows[0]) else 0


def _step_of(table: WrittenTable) -> str:
    named = parse_caption(table.table)
    assert named is not None, "only tables with a known step are kept"
    return named[0]


def _infer_tokens(tables: Sequence[WrittenTable]) -> tuple[str, ...]:
    """Infer the tokens from the row labels of X, from labels of another table, or number them."""
    by_query = [table for table in tables if _step_of(table) in _BY_QUERY]
    inputs = [table for table in by_query if _step_of(table) == "x"]
    inputs = [  # not one row of a larger table, whose token is unknown or numbered
        table for table in inputs if len(table.cells) > 1 or not (UNKNOWN_ROW in table.rows or _row_number(table))
    ]
    count = max((max(len(table.cells), _row_number(table)) for table in inputs or by_query), default=0)
    by_key = [table for table in tables if _step_of(table) in KEY_COLUMNS and table.columns]
    for table in by_key:
        if not inputs and len(table.columns) > count and set(table.rows) <= set(table.columns):
            return table.columns
    for table in by_query:
        if 0 < len(table.rows) == count and all(table.rows):
            return table.rows
    for table in by_key:
        if len(table.columns) == count and all(table.columns):
            return table.columns
    rest = max((len(table.cells) for table in tables if _step_of(table) in KEY_ROWS), default=1)
    return tuple(f"x_{index + 1}" for index in range(count or max(rest, 1)))


def _infer_keys(tables: Sequence[WrittenTable], queries: int) -> tuple[str, ...]:
    """Infer the source tokens (keys) if they differ from the queries' tokens."""
    by_key = [table for table in tables if _step_of(table) in KEY_ROWS and UNKNOWN_ROW not in table.rows]
    source = [table for table in by_key if _step_of(table) == "source"]
    has_inputs = any(_step_of(table) == "x" for table in tables)
    if not source and (has_inputs or (by_key and all(len(table.cells) <= queries for table in by_key))):
        return ()
    widths = [len(row) for table in tables if _step_of(table) in KEY_COLUMNS for row in table.cells]
    count = max((len(table.cells) for table in source or by_key), default=max(widths, default=queries))
    if not by_key and count == queries:
        return ()
    labelled = [table.rows for table in by_key if len(table.rows) == count and all(table.rows)]
    return labelled[0] if labelled else tuple(f"k_{index + 1}" for index in range(count))
