"""Symbolic form of an example: q_i*k_j for scores, and each context as a weighted sum of v_j."""

from collections.abc import Callable
from dataclasses import dataclass

from peasy.worked.label import visible
from peasy.worked.number import bracket, show
from peasy.worked.work import Worked

HIDDEN = "x"
"""Sign for a masked cell."""


@dataclass(frozen=True)
class SymbolTable:
    """Table of symbols; `name` is its step."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Symbolic:
    """Three symbolic tables (q*k, weights, weights times v) and the sum of each row."""

    tables: tuple[SymbolTable, ...]
    sums: tuple[tuple[str, str], ...]


def symbolise(worked: Worked, decimals: int = 4, head: int = 0) -> Symbolic:
    """Return the example in symbols; tokens count from 0, so token 3 has the query q_3.

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
        products = _cells(worked, lambda i, j: f"{bracket(float(weights[i, j]), decimals)}*v_{j}")
        tables += [SymbolTable("weights", rows, columns, shares), SymbolTable("context", rows, columns, products)]
        sums = tuple(
            (visible(token), " + ".join(part for part in row if part != HIDDEN) or "0")
            for token, row in zip(worked.tokens, products, strict=True)
        )
    return Symbolic(tuple(tables), sums)


def in_words(worked: Worked, row: int, decimals: int = 4, head: int = 0) -> str:
    """Return one row as a weighted sum of words: `0.57 Orange + 0.43 Apple`; zero weights are left out."""
    weights = worked.find("weights", head)
    assert weights is not None
    shares = zip(weights[row], worked.keys, strict=True)
    parts = [f"{bracket(float(share), decimals)} {visible(token)}" for share, token in shares if share != 0]
    return " + ".join(parts) or "0"


def _cells(worked: Worked, write: Callable[[int, int], str]) -> tuple[tuple[str, ...], ...]:
    mask = worked.may_look
    return tuple(
        tuple(HIDDEN if mask is not None and not mask[i, j] else write(i, j) for j in range(len(worked.keys)))
        for i in range(len(worked.tokens))
    )
