"""Checks of whole rows: length, sum of weights, and the range a weighted sum can reach."""

import numpy as np

from peasy.worked.checking.cell import FLOAT_TOLERANCE, CellContent, CellMark, WrittenNumber, read_cell
from peasy.worked.checking.derivations import format_sum
from peasy.worked.checking.step_aliases import table_caption
from peasy.worked.checking.table import AlignedTable, RowFinding
from peasy.worked.number import format_number, format_operand


def length_findings(table: AlignedTable, exact: np.ndarray | None) -> list[RowFinding]:
    """Find rows of a wrong length and rows without a token."""
    findings = []
    for index, row in table.misfits:
        label = "" if index is None else table.rows[index]
        if index is None:
            reason = f"There should be {len(table.rows)} rows, one for each token; this row is extra."
            findings.append(RowFinding(table_caption(table.node), " ".join(row), "extra", reason, table.description))
            continue
        reason = f"{len(row)} {_cell_or_cells(len(row))} instead of {len(table.columns)}"
        if exact is not None and not np.isnan(exact[index]).any():
            reason += f": {_format_row(exact[index], row)}"
        findings.append(RowFinding(table_caption(table.node), label, "length", f"{reason}.", table.description))
        if table.step == "weights":
            findings += _sum_finding(table, label, [read_cell(text) for text in row])
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
                findings.append(RowFinding(table_caption(table.node), table.rows[row], name, reason, table.description))
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
    numbers = [number for number in contents if isinstance(number, WrittenNumber)]
    if not numbers or any(
        not isinstance(number, WrittenNumber) and number is not CellMark.MASKED for number in contents
    ):
        return []
    total, spare = sum(number.value for number in numbers), _max_rounding_error(numbers)
    if abs(total - 1) < max(
        spare - FLOAT_TOLERANCE, FLOAT_TOLERANCE
    ):  # strictly below: the bound needs every number to be a half
        return []
    terms = format_sum([number.value for number in numbers], format_operand)
    reason = f"{terms} = {format_number(total)}, but weights sum to 1"
    reason += f" (rounding explains {format_number(spare)} at most)." if spare else "."
    return [RowFinding(table_caption(table.node), label, "sum", reason, table.description)]


def _max_rounding_error(numbers: list[WrittenNumber]) -> float:
    """Maximum rounding error of the sum: half a unit for each number, at the most decimals in the row.

    The most decimals, because .4 in `.38 .4 .24` means .40. Rows of whole numbers are exact.
    """
    rounded = [number.decimals for number in numbers if number.decimals is not None]
    finest = max(rounded, default=0)
    return 0.5 * 10.0**-finest * len(rounded) if finest > 0 else 0.0


def _format_row(exact: np.ndarray, row: tuple[str, ...]) -> str:
    contents = [read_cell(text) for text in row]
    finest = max((content.decimals or 0 for content in contents if isinstance(content, WrittenNumber)), default=4)
    return " ".join("x" if content == -np.inf else f"{content:.{max(finest, 0)}f}" for content in exact)


def _cell_or_cells(count: int) -> str:
    return "cell" if count == 1 else "cells"
