"""Common slips that explain whole rows of wrong weights: forgotten scale or mask, softmax over columns, division by
the plain sum. The cells stay wrong and the reason names the slip; later cells computed from them count as `follows`
even if they were computed from more digits than were written."""

from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np

from peasy.formula.normalise import softmax
from peasy.worked.checking.cell import CellContent, CellMark, WrittenNumber
from peasy.worked.checking.derivations import Array, mask_scores
from peasy.worked.checking.table import AlignedTable
from peasy.worked.solver import FormulaSettings


@dataclass(frozen=True)
class Slip:
    """One slip: its description, for the reason of a cell, and the weights it gives."""

    description: str
    values: Array


def find_slip(
    table: AlignedTable, wrong_rows: Set[int], rules: FormulaSettings, scores: Array, scaled: Array
) -> Slip | None:
    """Return the slip that explains every cell of all wrong rows, or None."""
    return next(
        (
            slip
            for slip in _candidate_slips(rules, scores, scaled)
            if wrong_rows and _explains(slip.values, table, wrong_rows)
        ),
        None,
    )


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


def _explains(values: Array, table: AlignedTable, rows: Set[int]) -> bool:
    return all(_matches(content, values[cell]) for cell, content in table.cells.items() if cell[0] in rows)


def _matches(content: CellContent, value: float) -> bool:
    return (
        value == 0
        if content is CellMark.MASKED
        else isinstance(content, WrittenNumber) and content.is_rounding_of(value)
    )
