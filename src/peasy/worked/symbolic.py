"""Symbolic form of an example: q_i*k_j for scores, and each context as a weighted sum of v_j."""

from collections.abc import Callable
from dataclasses import dataclass

from peasy.worked.label import format_number, format_operand, token_label
from peasy.worked.solver import WorkedExample

MASKED_SIGN = "x"
"""Sign for a masked cell."""


@dataclass(frozen=True)
class SymbolTable:
    """Table of symbols; `name` is its step."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SymbolicExample:
    """Three symbolic tables (q*k, weights, weights times v) and the sum of each row."""

    tables: tuple[SymbolTable, ...]
    sums: tuple[tuple[str, str], ...]


def to_symbols(worked: WorkedExample, decimals: int = 4, head: int = 0) -> SymbolicExample:
    """Return the example in symbols; tokens count from 0, so token 3 has the query q_3.

    >>> from peasy.worked import load_example, solve
    >>> to_symbols(solve(load_example("easy-peasy"))).sums[1]
    ('peasy', '0.4*v_0 + 0.6*v_1')
    """
    rows = tuple(f"{token_label(token)}(q_{i})" for i, token in enumerate(worked.tokens))
    columns = tuple(f"{token_label(token)}(k_{j})" for j, token in enumerate(worked.keys))
    tables = [SymbolTable("scores", rows, columns, _cells(worked, lambda i, j: f"q_{i}*k_{j}"))]
    weights = worked.find_values("weights", head)
    sums: tuple[tuple[str, str], ...] = ()
    if weights is not None:
        shares = _cells(worked, lambda i, j: format_number(float(weights[i, j]), decimals))
        products = _cells(worked, lambda i, j: f"{format_operand(float(weights[i, j]), decimals)}*v_{j}")
        tables += [SymbolTable("weights", rows, columns, shares), SymbolTable("context", rows, columns, products)]
        sums = tuple(
            (token_label(token), " + ".join(part for part in row if part != MASKED_SIGN) or "0")
            for token, row in zip(worked.tokens, products, strict=True)
        )
    return SymbolicExample(tuple(tables), sums)


def weighted_sum_of_words(worked: WorkedExample, row: int, decimals: int = 4, head: int = 0) -> str:
    """Return one row as a weighted sum of words: `0.57 Orange + 0.43 Apple`; zero weights are left out."""
    weights = worked.find_values("weights", head)
    assert weights is not None
    shares = zip(weights[row], worked.keys, strict=True)
    parts = [f"{format_operand(float(share), decimals)} {token_label(token)}" for share, token in shares if share != 0]
    return " + ".join(parts) or "0"


def _cells(worked: WorkedExample, write: Callable[[int, int], str]) -> tuple[tuple[str, ...], ...]:
    mask = worked.attention_mask
    return tuple(
        tuple(MASKED_SIGN if mask is not None and not mask[i, j] else write(i, j) for j in range(len(worked.keys)))
        for i in range(len(worked.tokens))
    )
