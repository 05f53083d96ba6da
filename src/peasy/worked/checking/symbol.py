"""Tables of names instead of numbers: `q_3*k_2`, `0.4*v_0 + 0.6*v_1`, `0.57 Orange + 0.43 Apple`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peasy.errors import InvalidInput
from peasy.worked.checking.cell import Number, Term
from peasy.worked.checking.name import caption
from peasy.worked.checking.table import Placed, RowFinding
from peasy.worked.checking.verdict import GRAVITY, Judged, Verdict, settle
from peasy.worked.checking.version import Version, best, knowing
from peasy.worked.example import Written
from peasy.worked.number import show

_INDEXED = re.compile(r"([qkv])_(\d+)")
_INDEX_IN_TEXT = re.compile(r"\b[qkvQKV]_?\{?(\d+)")


@dataclass(frozen=True)
class Symbols:
    """How an author counts: q_0 or q_1 first. Words stand for themselves."""

    first: int
    keys: tuple[str, ...]

    @classmethod
    def of(cls, tables: Sequence[Written], keys: tuple[str, ...]) -> "Symbols":
        """Counting from 1 if the author never writes an index of 0 but writes the one of the last token."""
        texts = (str(cell) for table in tables for row in table.cells for cell in row)
        indices = {int(index) for text in texts for index in _INDEX_IN_TEXT.findall(text[:200])}
        return cls(1 if 0 not in indices and len(keys) in indices else 0, keys)

    def name(self, letter: str, index: int) -> str:
        """`q_3` for the fourth query, if the author counts from 0."""
        return f"{letter}_{index + self.first}"

    def key_of(self, term: Term) -> int | None:
        """Which key's value a term takes a share of; None if its names mean no one value."""
        if len(term.names) != 1:
            return None
        found = _INDEXED.fullmatch(term.names[0])
        if found:
            index = int(found[2]) - self.first
            return index if found[1] == "v" and 0 <= index < len(self.keys) else None
        folded = [key.casefold() for key in self.keys]
        return folded.index(term.names[0].casefold()) if term.names[0].casefold() in folded else None


def judge_names(table: Placed, row: int, column: int, terms: tuple[Term, ...], symbols: Symbols) -> Judged:
    """The verdict on `q_3*k_2`, or on a vector's name alone."""
    names = _expected(table.step, row, column, symbols)
    if names is None:
        raise InvalidInput(f'{table.where(row, column)}: "{table.texts[row, column].strip()}" is not a number.')
    right, who = "*".join(names), table.rows[row]
    why = f"{who} has {right}"
    if len(names) == 2:
        why = f"{who} asks with {names[0]} and {table.columns[column]} offers {names[1]}: {right}"
    if len(terms) == 1 and (terms[0].factor is None) and sorted(terms[0].names) == sorted(names):
        return Judged("right", right, f"{why}.")
    return Judged("wrong", right, f"{why}, not {table.texts[row, column].strip()}.")


def judge_shares(
    table: Placed, row: int, column: int, terms: tuple[Term, ...], symbols: Symbols, weights: Sequence[Version]
) -> Judged | None:
    """The verdict on `0.4*v_0 + 0.6*v_1`: each value with the weight that belongs to it."""
    in_columns = any(place != (row, column) and place[0] == row for place in table.cells)
    verdict, right, whys = "right", [], []
    for term in terms:
        key = symbols.key_of(term)
        if key is None:
            raise InvalidInput(f'{table.where(row, column)}: "{term}" names no value.')
        wanted = column if in_columns else key
        known = knowing(weights, row, wanted)
        if not known:
            return None
        found = _share_verdict(term, known, row, wanted) if wanted == key else "wrong"
        name = term.names[0] if wanted == key else symbols.name("v", wanted)
        right.append(f"{show((best(known) or known[0]).values[row, wanted])}*{name}")
        if found != "right":
            whys.append(f"the weight on {symbols.keys[wanted]} makes it {right[-1]}, not {term}")
        verdict = max(verdict, found, key=GRAVITY.index)
    why = "; ".join(whys) or "each value has the weight that belongs to it"
    return Judged(verdict, " + ".join(right), f"{why[0].upper()}{why[1:]}.")  # type: ignore[arg-type]


def missing_findings(table: Placed, symbols: Symbols, weights: Sequence[Version]) -> list[RowFinding]:
    """Rows of `0.4*v_0 + ...` that leave out a key which has a weight."""
    found = []
    for row, cells in table.by_row().items():
        terms = [term for cell in cells.values() if isinstance(cell, tuple) for term in cell]
        if not terms or not weights:
            continue
        finest = max((term.factor.decimals or 0 for term in terms if term.factor), default=0)
        heavy = np.nan_to_num(weights[0].values[row]) > 0.5 * 10.0**-finest
        named = {symbols.key_of(term) for term in terms}
        left_out = [key for index, key in enumerate(symbols.keys) if heavy[index] and index not in named]
        if left_out:
            why = f"There is weight on {', '.join(left_out)} too, which the sum leaves out."
            found.append(RowFinding(caption(table.node), table.rows[row], "missing", why, table.says))
    return found


def _expected(step: str, row: int, column: int, symbols: Symbols) -> tuple[str, ...] | None:
    """The names that belong in a cell of this table; None for tables that are never written with names."""
    if step in ("scores", "masked"):
        return symbols.name("q", row), symbols.name("k", column)
    letters = {"query": "q", "key": "k", "value": "v"}
    return (symbols.name(letters[step], row),) if step in letters else None


def _share_verdict(term: Term, known: Sequence[Version], row: int, key: int) -> Verdict:
    return settle(term.factor or Number(1.0, 1.0, 1.0, None), known, row, key)[0]
