"""Checks of whole rows: length, sum of weights, the range a weighted sum can reach, and common slips.

A slip explains whole rows of wrong weights: forgotten scale or mask, softmax over columns, division by the plain sum.
The cells stay wrong and the reason names the slip; later cells computed from them count as `follows` even if they were
computed from more digits than were written.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np

from peasy.formula.normalise import softmax
from peasy.worked.checking.cell import FLOAT_TOLERANCE, CellContent, CellMark, WrittenNumber, read_cell
from peasy.worked.checking.derivations import Array, format_sum, mask_scores
from peasy.worked.checking.table import AlignedTable, RowFinding
from peasy.worked.label import format_number, format_operand
from peasy.worked.solver import FormulaSettings


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
        if len(reachable) and not np.isnan(reachable).any():
            finding = _range_finding(content, float(reachable.min()), float(reachable.max()), len(reachable))
            if finding and (finding[0] == "outside" or not verdict):  # already reported as wrong
                name, reason = finding
                reason = reason.format(text=table.texts[row, column].strip(), column=table.columns[column])
                findings.append(table.finding(table.rows[row], name, reason))
    return findings


def _range_finding(number: WrittenNumber, low: float, high: float, num_keys: int) -> tuple[str, str] | None:
    bounds = f"the values of column {{column}} lie between {format_number(low)} and {format_number(high)}"
    if number.low > high or number.high < low:
        return "outside", f"{{text}} is out of range: {bounds}, and so does every weighted mean of them."
    if num_keys > 1 and low < high and number.value in (low, high):
        end = "at most" if number.value == high else "at least"
        return (
            "extreme",
            f"The values of column {{column}} are {end} {format_number(number.value)}, so {{text}} needs weight 1 "
            "on one word and 0 on all others, which softmax never gives.",
        )
    return None


def _sum_finding(table: AlignedTable, label: str, contents: list[CellContent]) -> list[RowFinding]:
    numbers = [content for content in contents if isinstance(content, WrittenNumber)]
    if not numbers or len(numbers) + contents.count(CellMark.MASKED) < len(contents):
        return []
    total, spare = sum(number.value for number in numbers), _max_rounding_error(numbers)
    # strictly below: the bound needs every number to be a half
    if abs(total - 1) < max(spare - FLOAT_TOLERANCE, FLOAT_TOLERANCE):
        return []
    terms = format_sum([number.value for number in numbers], format_operand)
    reason = f"{terms} = {format_number(total)}, but weights sum to 1"
    reason += f" (rounding explains {format_number(spare)} at most)." if spare else "."
    return [table.finding(label, "sum", reason)]


def _max_rounding_error(numbers: list[WrittenNumber]) -> float:
    """Maximum rounding error of the sum: half a unit for each number, at the most decimals in the row.

    The most decimals, because .4 in `.38 .4 .24` means .40. Rows of whole numbers are exact.
    """
    rounded = [number.decimals for number in numbers if number.decimals is not None]
    finest = max(rounded, default=0)
    return 0.5 * 10.0**-finest * len(rounded) if finest > 0 else 0.0


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
        if all(_matches(content, slip.values[cell]) for cell, content in cells):
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


def _matches(content: CellContent, value: float) -> bool:
    if content is CellMark.MASKED:
        return value == 0
    return isinstance(content, WrittenNumber) and content.is_rounding_of(value)
