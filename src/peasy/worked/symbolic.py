"""Attention in letters: which query meets which key, and each context as a sum of weighted values."""

from collections.abc import Callable
from dataclasses import dataclass

from peasy.worked.label import visible
from peasy.worked.number import bracket, show
from peasy.worked.work import Worked

HIDDEN = "x"
"""What stands where a query may not look."""


@dataclass(frozen=True)
class SymbolTable:
    """A table of letters: `name` is the step it stands for."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Symbolic:
    """Three tables (q*k, the weights, weights times v) and the sum of each row."""

    tables: tuple[SymbolTable, ...]
    sums: tuple[tuple[str, str], ...]


def symbolise(worked: Worked, decimals: int = 4, head: int = 0) -> Symbolic:
    """The example in letters: tokens are counted from 0, so that token 3 asks with q_3.

    >>> from peasy.worked import load_example, work
    >>> symbolise(work(load_example("easy-peasy"))).sums[1]
    ('peasy', '0.4*v_0 + 0.6*v_1')
    """
    rows = tuple(f"{visible(token)}(q_{i})" for i, token in enumerate(worked.tokens))
    columns = tuple(f"{visible(token)}(k_{j})" for j, token in enumerate(worked.keys))
    tables = [SymbolTable("scores", rows, columns, _cells(worked, lambda i, j: f"q_{i}*k_{j}"))]
    weights = worked.find("weights", head)
    sums: tuple[tuple[str, str], ...] = ()
    if weights is not None:
        shares = _cells(worked, lambda i, j: show(float(weights[i, j]), decimals))
        parts = _cells(worked, lambda i, j: f"{bracket(float(weights[i, j]), decimals)}*v_{j}")
        tables += [SymbolTable("weights", rows, columns, shares), SymbolTable("context", rows, columns, parts)]
        sums = tuple(
            (visible(token), " + ".join(part for part in row if part != HIDDEN) or "0")
            for token, row in zip(worked.tokens, parts, strict=True)
        )
    return Symbolic(tuple(tables), sums)


def in_words(worked: Worked, row: int, decimals: int = 4, head: int = 0) -> str:
    """One row as a sum of words: `0.57 Orange + 0.43 Apple`; words that weigh nothing are left out."""
    weights = worked.find("weights", head)
    assert weights is not None
    shares = zip(weights[row], worked.keys, strict=True)
    parts = [f"{bracket(float(share), decimals)} {visible(token)}" for share, token in shares if share != 0]
    return " + ".join(parts) or "0"


def _cells(worked: Worked, write: Callable[[int, int], str]) -> tuple[tuple[str, ...], ...]:
    seen = worked.may_look
    return tuple(
        tuple(HIDDEN if seen is not None and not seen[i, j] else write(i, j) for j in range(len(worked.keys)))
        for i in range(len(worked.tokens))
    )
