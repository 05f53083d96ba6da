"""Verdict on a written cell: right, wrong, follows from an earlier mistake, truncated; findings of whole rows.

A number is compared with all readings of its table. Symbolic cells are `q_3*k_2`, `0.4*v_0 + 0.6*v_1`, `0.57 Orange +
0.43 Apple`. Rows are checked for their length, the sum of weights, totals, and the range a weighted sum can reach.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from peasy.parameters import Record
from peasy.worked.checking.cell import FLOAT_TOLERANCE, CellContent, CellMark, SymbolicTerm, WrittenNumber, read_or_mark
from peasy.worked.checking.readings import TableReading
from peasy.worked.checking.slips import explain_cell
from peasy.worked.checking.table import FLOAT32_DECIMALS, FLOAT32_TOLERANCE, MASKED_SCORE, AlignedTable, RowFinding
from peasy.worked.example import WrittenTable
from peasy.worked.graph import format_sum
from peasy.worked.intervals import Interval
from peasy.worked.label import format_number, format_operand

Verdict = Literal["right", "wrong", "follows", "truncated"]

_SEVERITY: tuple[Verdict, ...] = ("right", "truncated", "follows", "wrong")
"""Verdicts from least to most severe."""

_INDEXED_SYMBOL = re.compile(r"([qkv])_(\d+)")
_ONE = WrittenNumber(1.0, 1.0, 1.0, None)
_INDEX_IN_TEXT = re.compile(r"\b[qkvQKV]_?\{?(\d+)")


class CellVerdict(Record):
    """Verdict on a cell with the expected value (None if known only from a mistaken table) and the reason.

    `choices` is the number of different texts of the same decimals that would have been right: 1 if it is exact.
    """

    verdict: Verdict
    expected: float | str | None
    reason: str
    choices: float = 1.0


def clean_reading(readings: Sequence[TableReading]) -> TableReading | None:
    """Return the reading without mistakes, if there is one."""
    return next((reading for reading in readings if reading.clean), None)


def judge_number(
    number: WrittenNumber, text: str, readings: Sequence[TableReading], row: int, column: int, with_reason: bool = True
) -> CellVerdict | None:
    """Judge a number by all readings of its table; None if no reading has the cell."""
    readings = [reading for reading in readings if reading.knows(row, column)]
    if not readings:
        return None
    clean = clean_reading(readings)
    expected = None if clean is None else float(clean.point[row, column])
    verdict, reading = _find_verdict(number, readings, row, column)
    is_cut = verdict == "truncated"
    verdict = "wrong" if is_cut and number.decimals == 0 else verdict  # 1 for 1.66
    bucket = max(number.high - number.low, 1e-6)
    choices = 1 + float((reading or readings[0]).bounds.width[row, column]) / bucket
    if not with_reason:
        return CellVerdict(verdict, expected, "", choices)
    reason = (reading or clean or readings[0]).summary(row, column)
    if is_cut:
        reason += f": cut off instead of rounded, which gives {expected:.{max(number.decimals or 0, 0)}f}"
    elif verdict == "wrong":
        reason += f", not {text}"
        for reading in sorted(readings, key=lambda each: not each.clean):
            if slip := explain_cell(number, text, reading, row, column):
                follows = "" if reading.clean else f"consistent with the mistake in {reading.mistaken_table}, but "
                reason += f": {follows}{slip}"
                break
    elif reading and verdict == "follows":
        reason += f": consistent with the mistake in {reading.mistaken_table}"
        reason += f"; without it {clean.summary(row, column)}" if clean else ""
    return CellVerdict(verdict, expected, f"{reason}.", choices)


def _find_verdict(
    number: WrittenNumber, readings: Sequence[TableReading], row: int, column: int
) -> tuple[Verdict, TableReading | None]:
    """Return the verdict and the reading that the number agrees with."""
    candidates: tuple[tuple[Verdict, bool, bool], ...] = (
        ("right", True, False), ("truncated", True, True), ("follows", False, False), ("follows", False, True),
    )  # fmt: skip
    for verdict, clean, cut in candidates:
        for reading in readings:
            if reading.clean is clean and _agrees(number, reading, row, column, cut):
                return verdict, reading
    return "wrong", None


def _agrees(number: WrittenNumber, reading: TableReading, row: int, column: int, cut: bool) -> bool:
    low, high = float(reading.bounds.low[row, column]), float(reading.bounds.high[row, column])
    if high == -np.inf:
        return number.value <= MASKED_SCORE
    return number.may_be_cut(low, high) if cut else number.may_be(low, high)


def judge_masked(
    labels: tuple[str, str], masked: bool, readings: Sequence[TableReading], row: int, column: int
) -> CellVerdict | None:
    """Judge an `x`, which marks the key as masked for the query."""
    readings = [reading for reading in readings if reading.knows(row, column)]
    if masked or any(reading.bounds.high[row, column] == -np.inf for reading in readings):
        return CellVerdict("right", "x", "This key is masked.")
    if not readings:
        return None
    reason = f"{labels[1]} is not masked for {labels[0]}: {readings[0].summary(row, column)}."
    return CellVerdict("wrong", float(readings[0].point[row, column]), reason)


class SymbolIndexing(Record):
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
) -> CellVerdict | None:
    """Judge a cell such as `q_3*k_2`, or a single vector name."""
    names: tuple[str, ...] = ()
    if table.step in ("scores", "masked"):
        names = symbols.symbol("q", row), symbols.symbol("k", column)
    elif table.step in ("query", "key", "value") and sum(cell[0] == row for cell in table.cells) == 1:
        names = (symbols.symbol(table.step[0], row),)
    if not names or not any(_INDEXED_SYMBOL.fullmatch(name) for term in terms for name in term.names):
        return None
    expected, token = "*".join(names), table.rows[row]
    reason = f"The vector of {token} is {expected}"
    if len(names) == 2:
        reason = f"The query of {token} is {names[0]} and the key of {table.columns[column]} is {names[1]}: {expected}"
    if len(terms) == 1 and (terms[0].factor is None) and sorted(terms[0].names) == sorted(names):
        return CellVerdict("right", expected, f"{reason}.")
    return CellVerdict("wrong", expected, f"{reason}, not {table.texts[row, column].strip()}.")


def judge_weighted_sum(
    table: AlignedTable, row: int, column: int, terms: tuple[SymbolicTerm, ...], symbols: SymbolIndexing,
    weights: Sequence[TableReading],
) -> CellVerdict | None:  # fmt: skip
    """Judge a weighted sum such as `0.4*v_0 + 0.6*v_1`: each value must have its weight."""
    in_columns = any(cell != (row, column) and cell[0] == row for cell in table.cells)
    verdict: Verdict = "right"
    expected_terms, reasons = [], []
    for term in terms:
        key = symbols.key_of(term)
        if key is None:
            return None
        expected_key = column if in_columns else key
        known = [reading for reading in weights if reading.knows(row, expected_key)]
        if not known:
            return None
        term_verdict: Verdict = "wrong"
        if expected_key == key:
            printed = [each if each.route else replace(each, bounds=Interval.exact(each.point)) for each in known]
            term_verdict, _ = _find_verdict(term.factor or _ONE, printed, row, key)  # a sum repeats given weights
        name = term.names[0] if expected_key == key else symbols.symbol("v", expected_key)
        expected_terms.append(f"{format_number((clean_reading(known) or known[0]).point[row, expected_key])}*{name}")
        if term_verdict != "right":
            reasons.append(f"the weight on {symbols.keys[expected_key]} makes it {expected_terms[-1]}, not {term}")
        verdict = max(verdict, term_verdict, key=_SEVERITY.index)
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
        has_weight = np.nan_to_num(weights[0].point[row]) > 0.5 * 10.0**-finest
        named = {symbols.key_of(term) for term in terms}
        keys = zip(symbols.keys, has_weight, strict=False)  # a table of weights may have fewer columns
        omitted = [key for index, (key, is_used) in enumerate(keys) if is_used and index not in named]
        if omitted:
            reason = f"The sum leaves out keys that have weight: {', '.join(omitted)}."
            findings.append(table.finding(table.rows[row], "missing", reason))
    return findings


def total_findings(table: AlignedTable, clean: TableReading | None) -> list[RowFinding]:
    """Find wrong cells in a row or column headed "sum": neither the sum of the written nor of the right numbers."""
    findings = []
    if not table.row_totals and not table.column_totals:
        return []
    numbers, written = table.values()
    whole = np.isfinite(numbers) & (table.decimals == 0)  # whole numbers are added exactly
    written = Interval(np.where(whole, numbers, written.low), np.where(whole, numbers, written.high))
    readings = [written, *([clean.bounds] if clean is not None and clean.bounds.shape == written.shape else [])]
    for axis, totals, labels in ((1, table.row_totals, table.rows), (0, table.column_totals, table.columns)):
        for index, text in totals.items():
            number = read_or_mark(text)
            lines = [bounds[index] if axis else bounds[:, index] for bounds in readings]
            if not isinstance(number, WrittenNumber) or not lines[0].is_known.all():
                continue
            ranges = [(_finite_sum(line.low), _finite_sum(line.high)) for line in lines if line.is_known.all()]
            if not any(number.may_be(*bounds) for bounds in ranges):
                line = np.nan_to_num(numbers[index] if axis else numbers[:, index], neginf=0.0)
                reason = f"{format_sum(line.tolist(), format_operand)} = {format_number(float(line.sum()))}"
                label = labels[index] if axis else f"sum of column {labels[index]}"
                findings.append(table.finding(label, "total", f"{reason}, not {text.strip()}."))
    return findings


def _finite_sum(numbers: np.ndarray) -> float:
    """Return the sum; masked scores (-∞) count as nothing."""
    return float(np.where(np.isfinite(numbers), numbers, 0.0).sum())


def length_findings(table: AlignedTable, exact: np.ndarray | None) -> list[RowFinding]:
    """Find rows of a wrong length and rows without a token."""
    findings = []
    if not any(isinstance(read_or_mark(text), WrittenNumber) for _, row in table.misfits for text in row):
        return []  # formulas
    for index, row in table.misfits:
        if index is None:
            reason = f"There should be {len(table.rows)} rows, one for each token; this row is extra."
            findings.append(table.finding(" ".join(row), "extra", reason))
            continue
        contents = [read_or_mark(text) for text in row]
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
    table: AlignedTable, verdicts: dict[tuple[int, int], str], value: Interval, attention_mask: np.ndarray | None
) -> tuple[list[RowFinding], list[str]]:
    """Find context cells that no softmax weights can give, outside all values; remark on those at their extremes.

    An extreme needs weight 1 on one word, which softmax only comes near to.
    """
    findings, remarks = [], []
    for (row, column), content in table.cells.items():
        verdict = verdicts.get((row, column), "")
        if verdict not in ("", "wrong") or not isinstance(content, WrittenNumber) or column >= value.shape[1]:
            continue
        reachable = value[:, column] if attention_mask is None else value[attention_mask[row], column]
        if not len(reachable.low) or not reachable.is_known.all():
            continue
        least, most = float(reachable.middle.min()), float(reachable.middle.max())
        text, values = table.texts[row, column].strip(), f"values of column {table.columns[column]}"
        if content.low > float(reachable.high.max()) or content.high < float(reachable.low.min()):
            between = f"between {format_number(least)} and {format_number(most)}"
            reason = f"{text} is out of range: the {values} lie {between}, and so does every weighted mean of them."
            findings.append(table.finding(table.rows[row], "outside", reason))
        is_open = not verdict and most - least > FLOAT_TOLERANCE
        for end, extreme in (("at most", most), ("at least", least)) if is_open else ():
            if abs(content.value - extreme) < FLOAT_TOLERANCE:
                remarks.append(
                    f"{table.caption}, row {table.rows[row]}: the {values} are {end} {format_number(extreme)}, "
                    f"so {text} needs weight 1 on one word and 0 on all others."
                )
    return findings, remarks


def _sum_finding(table: AlignedTable, label: str, contents: list[CellContent]) -> list[RowFinding]:
    numbers = [content for content in contents if isinstance(content, WrittenNumber)]
    if not numbers or len(numbers) + contents.count(CellMark.MASKED) < len(contents):
        return []
    if all(number.decimals == 0 for number in numbers) and max(number.value for number in numbers) > 1:
        return []  # no weights: predicted tokens, sizes
    # Half a unit for each number at the usual decimals of the row, because .4 in `.38 .4 .24` means .40; whole numbers
    # are exact. Of decimals that differ much, as in `.00094 .969 .0302`, the fewest count.
    rounded = [number.decimals for number in numbers if number.decimals is not None]
    usual, count = Counter(rounded).most_common(1)[0] if rounded else (0, 0)
    if count < 2 and rounded:
        usual = min(rounded) if max(rounded) - min(rounded) > 1 else max(rounded)
    total, spare = sum(number.value for number in numbers), 0.5 * 10.0**-usual * len(rounded) if usual > 0 else 0.0
    spare = max(spare, FLOAT32_TOLERANCE) if usual >= FLOAT32_DECIMALS else spare
    # strictly below: the bound needs every number to be a half
    if abs(total - 1) < max(spare - FLOAT_TOLERANCE, FLOAT_TOLERANCE):
        return []
    terms = format_sum([number.value for number in numbers], format_operand)
    reason = f"{terms} = {format_number(total)}, but weights sum to 1"
    reason += f" (rounding explains {format_number(spare)} at most)." if spare else "."
    return [table.finding(label, "sum", reason)]
