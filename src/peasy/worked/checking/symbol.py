"""Checks of symbolic cells: `q_3*k_2`, `0.4*v_0 + 0.6*v_1`, `0.57 Orange + 0.43 Apple`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peasy.errors import InvalidInput
from peasy.worked.checking.cell import SymbolicTerm, WrittenNumber
from peasy.worked.checking.table import AlignedTable, RowFinding
from peasy.worked.checking.verdict import (
    SEVERITY,
    CellVerdict,
    TableReading,
    Verdict,
    exact_reading,
    find_verdict,
    readings_with_cell,
)
from peasy.worked.example import WrittenTable
from peasy.worked.label import format_number

_INDEXED_SYMBOL = re.compile(r"([qkv])_(\d+)")
_ONE = WrittenNumber(1.0, 1.0, 1.0, None)
_INDEX_IN_TEXT = re.compile(r"\b[qkvQKV]_?\{?(\d+)")


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
    names = _expected_symbols(table.step, row, column, symbols)
    if names is None:
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


def _expected_symbols(step: str, row: int, column: int, symbols: SymbolIndexing) -> tuple[str, ...] | None:
    """Return the symbols expected in a cell; None for tables that are never symbolic."""
    if step in ("scores", "masked"):
        return symbols.symbol("q", row), symbols.symbol("k", column)
    letters = {"query": "q", "key": "k", "value": "v"}
    return (symbols.symbol(letters[step], row),) if step in letters else None
