"""Symbolic form of an example: q_i*k_j for scores and a sum of v_j for each context, or any step in its inputs."""

from collections.abc import Callable, Sequence

from peasy.parameters import Record
from peasy.worked.expressions import cell_formulas, symbolic_formula
from peasy.worked.label import format_number, format_operand, token_label
from peasy.worked.solver import WorkedExample, WorkedStep

_MASKED_SIGN = "x"
"""Sign for a masked cell."""


class SymbolTable(Record):
    """Table of symbols; `name` is its step."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    row_axis: str = "q"
    column_axis: str = "k"


class SymbolicExample(Record):
    """Symbolic tables, and the sum of each row: of attention q*k, weights and weights times v."""

    tables: tuple[SymbolTable, ...]
    sums: tuple[tuple[str, str], ...]


def to_symbols(worked: WorkedExample, decimals: int = 4, scope: str = "") -> SymbolicExample:
    """Return the example in symbols; tokens count from 0, so token 3 has the query q_3.

    >>> from peasy.worked import load_example, solve
    >>> to_symbols(solve(load_example("easy-peasy"))).sums[1]
    ('peasy', '0.4*v_0 + 0.6*v_1')
    """
    rows = tuple(f"{token_label(token)}(q_{i})" for i, token in enumerate(worked.tokens))
    columns = tuple(f"{token_label(token)}(k_{j})" for j, token in enumerate(worked.keys))
    tables = [SymbolTable("scores", rows, columns, _cells(worked, lambda i, j: f"q_{i}*k_{j}"))]
    weights = worked.find_values("weights", scope)
    sums: tuple[tuple[str, str], ...] = ()
    if weights is not None:
        shares = _cells(worked, lambda i, j: format_number(float(weights[i, j]), decimals))
        products = _cells(worked, lambda i, j: f"{format_operand(float(weights[i, j]), decimals)}*v_{j}")
        tables += [SymbolTable("weights", rows, columns, shares), SymbolTable("context", rows, columns, products)]
        sums = tuple(
            (token_label(token), " + ".join(part for part in row if part != _MASKED_SIGN) or "0")
            for token, row in zip(worked.tokens, products, strict=True)
        )
    return SymbolicExample(tuple(tables), sums)


def steps_in_symbols(worked: WorkedExample, steps: Sequence[WorkedStep]) -> SymbolicExample:
    """Return the cells of computed steps in the symbols of their inputs: `x[0,0]*w[0,1] + x[0,1]*w[1,1]`.

    >>> from peasy.worked import load_example, solve
    >>> worked = solve(load_example("cross-entropy"))
    >>> steps_in_symbols(worked, worked.select("d_logits")).tables[0].cells[0][1]
    'd_token_loss[0,0]*(probabilities[0,1]*(targets[0,0] + targets[0,1] + targets[0,2]) - targets[0,1])'
    """
    tables = []
    for step in steps:
        formulas = cell_formulas(worked.graph, worked.values, step.name)
        if formulas is not None:
            cells = tuple(tuple(symbolic_formula(cell, _cell_symbol) for cell in row) for row in formulas)
            tables.append(SymbolTable(step.name, step.rows, step.columns, cells, step.row_axis, step.column_axis))
    return SymbolicExample(tuple(tables), ())


def _cell_symbol(node: str, row: int, column: int) -> str:
    return f"{node.rpartition('.')[2]}[{row},{column}]"


def weighted_sum_of_words(worked: WorkedExample, row: int, decimals: int = 4) -> str:
    """Return one row as a weighted sum of words: `0.57 Orange + 0.43 Apple`; zero weights are left out."""
    weights = worked.find_values("weights")
    assert weights is not None
    shares = zip(weights[row], worked.keys, strict=True)
    parts = [f"{format_operand(float(share), decimals)} {token_label(token)}" for share, token in shares if share != 0]
    return " + ".join(parts) or "0"


def _cells(worked: WorkedExample, write: Callable[[int, int], str]) -> tuple[tuple[str, ...], ...]:
    mask = worked.attention_mask
    return tuple(
        tuple(_MASKED_SIGN if mask is not None and not mask[i, j] else write(i, j) for j in range(len(worked.keys)))
        for i in range(len(worked.tokens))
    )
