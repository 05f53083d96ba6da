"""Verdict on a written cell: right, wrong, follows from an earlier mistake, or truncated; findings of whole rows.

A number is compared with all readings of its table: computed exactly, computed from earlier written tables, as written.
Symbolic cells are `q_3*k_2`, `0.4*v_0 + 0.6*v_1`, `0.57 Orange + 0.43 Apple`. Rows are checked for their length, the
sum of weights, the range a weighted sum can reach, and common slips: forgotten scale or mask, softmax over columns,
division by the plain sum. A slip explains whole rows of wrong weights; the cells stay wrong, and later cells computed
from them count as `follows` even if they were computed from more digits than were written.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from peasy.errors import InvalidInput, PeasyError
from peasy.formula.normalise import softmax
from peasy.worked.checking.cell import (
    FLOAT_TOLERANCE,
    CellContent,
    CellMark,
    SymbolicTerm,
    WrittenNumber,
    read_cell,
)  # fmt: skip
from peasy.worked.checking.derivations import Array, Derivation, format_sum, mask_scores
from peasy.worked.checking.table import AlignedTable, RowFinding
from peasy.worked.example import WrittenTable
from peasy.worked.label import format_number, format_operand
from peasy.worked.solver import FormulaSettings

Verdict = Literal["right", "wrong", "follows", "truncated"]

SEVERITY: tuple[Verdict, ...] = ("right", "truncated", "follows", "wrong")
"""Verdicts from least to most severe."""

_MASKED_SCORE_LIMIT = -1e4
"""A masked score at or below this counts as minus infinity."""

_INDEXED_SYMBOL = re.compile(r"([qkv])_(\d+)")
_ONE = WrittenNumber(1.0, 1.0, 1.0, None)
_INDEX_IN_TEXT = re.compile(r"\b[qkvQKV]_?\{?(\d+)")

_MAX_READINGS = 24
"""Maximum number of readings kept per table."""


@dataclass(frozen=True)
class TableReading:
    """One reading of a table. `clean` if it contains no mistake; `written` is the table it was written in."""

    values: np.ndarray
    clean: bool
    derivation: Derivation | None = None
    parents: tuple["TableReading", ...] = ()
    written: str = ""

    @property
    def mistaken_table(self) -> str:
        """Caption of the table whose mistake this reading contains."""
        if self.clean or self.written:
            return self.written
        return next(parent.mistaken_table for parent in self.parents if not parent.clean)

    def summary(self, row: int, column: int) -> str:
        """Return the arithmetic of one cell: `1·1 + 1·1 = 2`."""
        number = format_number(self.values[row, column])
        arithmetic = (
            self.derivation.explain(row, column, [parent.values for parent in self.parents]) if self.derivation else ""
        )
        return f"{arithmetic} = {number}" if arithmetic else f"It is given as {number}"


def derive_readings(
    derivations: Sequence[Derivation], readings: Mapping[str, list[TableReading]]
) -> list[TableReading]:
    """Return every reading of a table that follows from readings of earlier tables; the exact one first."""
    derived: list[TableReading] = []
    for route in derivations:
        for parents in product(*(readings.get(parent, []) for parent in route.parents)):
            try:
                values = route.compute(*(parent.values for parent in parents))
            except PeasyError:
                if not derived:
                    raise
                continue  # a reading with a mistake may not fit; the exact one did
            derived.append(TableReading(values, all(parent.clean for parent in parents), route, parents))
    return unique_readings(derived)


def written_readings(
    name: str, written: np.ndarray, wrong: np.ndarray, known: Sequence[TableReading]
) -> list[TableReading]:
    """Return the readings of a written table for later tables: corrected, and with its mistakes if it has any.

    Cells that are not written are filled in from known readings.
    """
    exact = exact_reading(known)
    right = np.full_like(written, np.nan) if exact is None else exact.values
    if right.shape != written.shape or np.isnan(written).all():
        return []
    filled = np.where(np.isnan(written), right, written)
    corrected = TableReading(np.where(wrong, right, filled), clean=True)
    return [corrected, TableReading(filled, clean=False, written=name)] if wrong.any() else [corrected]


def exact_reading(readings: Sequence[TableReading]) -> TableReading | None:
    """Return the first clean reading."""
    return next((version for version in readings if version.clean), None)


def readings_with_cell(readings: Sequence[TableReading], row: int, column: int) -> list[TableReading]:
    """Return the readings in which this cell is known."""
    return [version for version in readings if not np.isnan(version.values[row, column])]


def unique_readings(readings: Sequence[TableReading]) -> list[TableReading]:
    """Remove duplicate readings; clean ones first (the exact one stays at the front)."""
    distinct: list[TableReading] = []
    for reading in sorted(readings, key=lambda reading: not reading.clean):
        if not any(np.array_equal(reading.values, other.values, equal_nan=True) for other in distinct):
            distinct.append(reading)
    return distinct[:_MAX_READINGS]


@dataclass(frozen=True)
class CellVerdict:
    """Verdict on a cell with the expected value (None if known only from a mistaken table) and the reason."""

    verdict: Verdict
    expected: float | str | None
    reason: str


def judge_number(
    number: WrittenNumber, text: str, readings: Sequence[TableReading], row: int, column: int
) -> CellVerdict | None:
    """Judge a number by all readings of its table; None if no reading has the cell."""
    readings = readings_with_cell(readings, row, column)
    if not readings:
        return None
    exact = exact_reading(readings)
    expected = None if exact is None else float(exact.values[row, column])
    verdict, reading = find_verdict(number, readings, row, column)
    reason = (reading or exact or readings[0]).summary(row, column)
    if verdict == "wrong":
        reason += f", not {text}"
    elif verdict == "truncated":
        reason += f": cut off instead of rounded, which gives {expected:.{max(number.decimals or 0, 0)}f}"
    elif reading and verdict == "follows":
        reason += f": consistent with the mistake in {reading.mistaken_table}"
        reason += f"; without it {exact.summary(row, column)}" if exact else ""
    return CellVerdict(verdict, expected, f"{reason}.")


def find_verdict(
    number: WrittenNumber, readings: Sequence[TableReading], row: int, column: int
) -> tuple[Verdict, TableReading | None]:
    """Return the verdict and the reading that the number agrees with."""
    candidates: tuple[tuple[Verdict, bool, Callable[[WrittenNumber, float], bool]], ...] = (
        ("right", True, _agrees), ("follows", False, _agrees), ("truncated", True, _truncates),
        ("follows", False, _truncates),
    )  # fmt: skip
    for verdict, clean, agrees in candidates:
        for reading in readings:
            if reading.clean is clean and agrees(number, reading.values[row, column]):
                return verdict, reading
    return "wrong", None


def judge_masked(
    labels: tuple[str, str], masked: bool, readings: Sequence[TableReading], row: int, column: int
) -> CellVerdict | None:
    """Judge an `x`, which marks the key as masked for the query."""
    readings = readings_with_cell(readings, row, column)
    if masked or any(version.values[row, column] == -np.inf for version in readings):
        return CellVerdict("right", "x", "This key is masked.")
    if not readings:
        return None
    explanation = readings[0].summary(row, column)
    return CellVerdict(
        "wrong", float(readings[0].values[row, column]), f"{labels[1]} is not masked for {labels[0]}: {explanation}."
    )


def _agrees(number: WrittenNumber, exact: float) -> bool:
    return number.value <= _MASKED_SCORE_LIMIT if exact == -np.inf else number.is_rounding_of(exact)


def _truncates(number: WrittenNumber, exact: float) -> bool:
    return bool(np.isfinite(exact)) and number.is_truncation_of(exact)


@dataclass(frozen=True)
class SymbolIndexing:
    """Index convention of an author: `first` is the index of the first token (q_0 or q_1)."""

    first: int
    keys: tuple[str, ...]

    @classmethod
    def infer(cls, tables: Sequence[WrittenTable], keys: tuple[str, ...]) -> "SymbolIndexing":
        """Infer the convention: from 1 if index 0 never occurs but that of the last token does."""
        texts = (str(cell) for table in tables for row in table.cells for cell in row)
        indices = {int(index) for text in texts for index in _INDEX_IN_TEXT.findall(text[:200])}
        return cls(1 if 0 not in indices and len(keys) in indices else 0, keys)

    def symbol(self, letter: str, index: int) -> str:
        """Return a symbol such as `q_3` for a 0-based index."""
        return f"{letter}_{index + self.first}"

    def key_of(self, term: SymbolicTerm) -> int | None:
        """Return the index of the key whose value a term names, or None."""
        if len(term.names) != 1:
            return None
        match = _INDEXED_SYMBOL.fullmatch(term.names[0])
        if match:
            index = int(match[2]) - self.first
            return index if match[1] == "v" and 0 <= index < len(self.keys) else None
        folded = [key.casefold() for key in self.keys]
        return folded.index(term.names[0].casefold()) if term.names[0].casefold() in folded else None


def judge_symbols(
    table: AlignedTable, row: int, column: int, terms: tuple[SymbolicTerm, ...], symbols: SymbolIndexing
) -> CellVerdict:
    """Judge a cell such as `q_3*k_2`, or a single vector name."""
    names: tuple[str, ...] = ()
    if table.step in ("scores", "masked"):
        names = symbols.symbol("q", row), symbols.symbol("k", column)
    elif table.step in ("query", "key", "value"):
        names = (symbols.symbol(table.step[0], row),)
    else:
        raise InvalidInput(f'{table.location(row, column)}: "{table.texts[row, column].strip()}" is not a number.')
    expected, token = "*".join(names), table.rows[row]
    reason = f"The vector of {token} is {expected}"
    if len(names) == 2:
        reason = f"The query of {token} is {names[0]} and the key of {table.columns[column]} is {names[1]}: {expected}"
    if len(terms) == 1 and (terms[0].factor is None) and sorted(terms[0].names) == sorted(names):
        return CellVerdict("right", expected, f"{reason}.")
    return CellVerdict("wrong", expected, f"{reason}, not {table.texts[row, column].strip()}.")


def judge_weighted_sum(
    table: AlignedTable,
    row: int,
    column: int,
    terms: tuple[SymbolicTerm, ...],
    symbols: SymbolIndexing,
    weights: Sequence[TableReading],
) -> CellVerdict | None:
    """Judge a weighted sum such as `0.4*v_0 + 0.6*v_1`: each value must have its weight."""
    in_columns = any(cell != (row, column) and cell[0] == row for cell in table.cells)
    verdict: Verdict = "right"
    expected_terms, reasons = [], []
    for term in terms:
        key = symbols.key_of(term)
        if key is None:
            raise InvalidInput(f'{table.location(row, column)}: "{term}" does not name a value.')
        expected_key = column if in_columns else key
        known = readings_with_cell(weights, row, expected_key)
        if not known:
            return None
        term_verdict: Verdict = "wrong"
        if expected_key == key:
            term_verdict, _ = find_verdict(term.factor or _ONE, known, row, key)
        name = term.names[0] if expected_key == key else symbols.symbol("v", expected_key)
        expected_terms.append(f"{format_number((exact_reading(known) or known[0]).values[row, expected_key])}*{name}")
        if term_verdict != "right":
            reasons.append(f"the weight on {symbols.keys[expected_key]} makes it {expected_terms[-1]}, not {term}")
        verdict = max(verdict, term_verdict, key=SEVERITY.index)
    reason = "; ".join(reasons) or "every value has its weight"
    return CellVerdict(verdict, " + ".join(expected_terms), f"{reason[0].upper()}{reason[1:]}.")


def missing_findings(table: AlignedTable, symbols: SymbolIndexing, weights: Sequence[TableReading]) -> list[RowFinding]:
    """Find weighted sums that leave out a key with a non-zero weight."""
    findings = []
    for row, cells in table.by_row().items():
        terms = [term for cell in cells.values() if isinstance(cell, tuple) for term in cell]
        if not terms or not weights:
            continue
        finest = max((term.factor.decimals or 0 for term in terms if term.factor), default=0)
        has_weight = np.nan_to_num(weights[0].values[row]) > 0.5 * 10.0**-finest
        named = {symbols.key_of(term) for term in terms}
        omitted = [key for index, key in enumerate(symbols.keys) if has_weight[index] and index not in named]
        if omitted:
            reason = f"The sum leaves out keys that have weight: {', '.join(omitted)}."
            findings.append(table.finding(table.rows[row], "missing", reason))
    return findings


def length_findings(table: AlignedTable, exact: np.ndarray | None) -> list[RowFinding]:
    """Find rows of a wrong length and rows without a token."""
    findings = []
    for index, row in table.misfits:
        if index is None:
            reason = f"There should be {len(table.rows)} rows, one for each token; this row is extra."
            findings.append(table.finding(" ".join(row), "extra", reason))
            continue
        contents = [read_cell(text) for text in row]
        reason = f"{len(row)} {'cell' if len(row) == 1 else 'cells'} instead of {len(table.columns)}"
        if exact is not None and not np.isnan(exact[index]).any():
            numbers = [content for content in contents if isinstance(content, WrittenNumber)]
            finest = max(0, max((number.decimals or 0 for number in numbers), default=4))
            reason += ": " + " ".join("x" if value == -np.inf else f"{value:.{finest}f}" for value in exact[index])
        findings.append(table.finding(table.rows[index], "length", f"{reason}."))
        if table.step == "weights":
            findings += _sum_finding(table, table.rows[index], contents)
    return findings


def sum_findings(table: AlignedTable, verdicts: dict[tuple[int, int], str]) -> list[RowFinding]:
    """Find rows of weights that do not sum to 1; rows whose cells are all right are skipped."""
    findings = []
    for row, cells in table.by_row().items():
        if len(cells) == len(table.columns) and not all(verdicts.get(cell) in ("right", "truncated") for cell in cells):
            findings += _sum_finding(table, table.rows[row], list(cells.values()))
    return findings


def range_findings(
    table: AlignedTable, verdicts: dict[tuple[int, int], str], value: np.ndarray, attention_mask: np.ndarray | None
) -> list[RowFinding]:
    """Find context cells that no softmax weights can give: outside all values, or exactly at their extremes."""
    findings = []
    for (row, column), content in table.cells.items():
        verdict = verdicts.get((row, column), "")
        if verdict not in ("", "wrong") or not isinstance(content, WrittenNumber) or column >= value.shape[1]:
            continue
        reachable = value[:, column] if attention_mask is None else value[attention_mask[row], column]
        if not len(reachable) or np.isnan(reachable).any():
            continue
        low, high = float(reachable.min()), float(reachable.max())
        text, values = table.texts[row, column].strip(), f"values of column {table.columns[column]}"
        if content.low > high or content.high < low:
            reason = f"{text} is out of range: the {values} lie between {format_number(low)} and {format_number(high)}"
            reason += ", and so does every weighted mean of them."
            findings.append(table.finding(table.rows[row], "outside", reason))
        elif len(reachable) > 1 and low < high and content.value in (low, high) and not verdict:  # not reported yet
            end = "at most" if content.value == high else "at least"
            reason = f"The {values} are {end} {format_number(content.value)}, so {text} needs weight 1 on one word and "
            reason += "0 on all others, which softmax never gives."
            findings.append(table.finding(table.rows[row], "extreme", reason))
    return findings


def _sum_finding(table: AlignedTable, label: str, contents: list[CellContent]) -> list[RowFinding]:
    numbers = [content for content in contents if isinstance(content, WrittenNumber)]
    if not numbers or len(numbers) + contents.count(CellMark.MASKED) < len(contents):
        return []
    # Half a unit for each number at the most decimals in the row, because .4 in `.38 .4 .24` means .40; whole numbers
    # are exact.
    rounded = [number.decimals for number in numbers if number.decimals is not None]
    finest = max(rounded, default=0)
    total, spare = sum(number.value for number in numbers), 0.5 * 10.0**-finest * len(rounded) if finest > 0 else 0.0
    # strictly below: the bound needs every number to be a half
    if abs(total - 1) < max(spare - FLOAT_TOLERANCE, FLOAT_TOLERANCE):
        return []
    terms = format_sum([number.value for number in numbers], format_operand)
    reason = f"{terms} = {format_number(total)}, but weights sum to 1"
    reason += f" (rounding explains {format_number(spare)} at most)." if spare else "."
    return [table.finding(label, "sum", reason)]


@dataclass(frozen=True)
class Slip:
    """One slip: its description, for the reason of a cell, and the weights it gives."""

    description: str
    values: Array


def find_slip(
    table: AlignedTable, wrong_rows: Set[int], rules: FormulaSettings, scores: Array, scaled: Array
) -> Slip | None:
    """Return the slip that explains every cell of all wrong rows, or None."""
    cells = [(cell, content) for cell, content in table.cells.items() if cell[0] in wrong_rows]
    for slip in _candidate_slips(rules, scores, scaled) if wrong_rows else ():
        if all(
            slip.values[cell] == 0
            if content is CellMark.MASKED
            else isinstance(content, WrittenNumber) and content.is_rounding_of(slip.values[cell])
            for cell, content in cells
        ):
            return slip
    return None


def _candidate_slips(rules: FormulaSettings, scores: Array, scaled: Array) -> Iterator[Slip]:
    if rules.normalise.name != "softmax":
        return
    masked = mask_scores(rules, scaled)
    if not np.array_equal(scores, scaled):
        yield Slip("the scores were not scaled", softmax(np, mask_scores(rules, scores)))
    if not np.array_equal(masked, scaled):
        yield Slip("the mask was not applied", softmax(np, scaled))
    yield Slip("softmax was taken over columns instead of rows", softmax(np, masked.T).T)
    unmasked = np.where(masked == -np.inf, 0, masked)
    yield Slip("the scores were divided by their sum, without e^x", unmasked / unmasked.sum(axis=-1, keepdims=True))
