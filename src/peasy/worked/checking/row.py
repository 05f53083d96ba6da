"""Checks of whole rows: length, sum of weights, and the range a weighted sum can reach."""

import numpy as np

from peasy.worked.checking.cell import NOISE, Content, Mark, Number, read_cell
from peasy.worked.checking.name import caption
from peasy.worked.checking.route import listed
from peasy.worked.checking.table import Placed, RowFinding
from peasy.worked.number import bracket, show


def unfit_findings(table: Placed, exact: np.ndarray | None) -> list[RowFinding]:
    """Find rows of a wrong length and rows without a token."""
    findings = []
    for index, row in table.misfits:
        label = "" if index is None else table.rows[index]
        if index is None:
            why = f"There should be {len(table.rows)} rows, one for each token; this row is extra."
            findings.append(RowFinding(caption(table.node), " ".join(row), "extra", why, table.says))
            continue
        why = f"{len(row)} {_cells(len(row))} instead of {len(table.columns)}"
        if exact is not None and not np.isnan(exact[index]).any():
            why += f": {_at_own_decimals(exact[index], row)}"
        findings.append(RowFinding(caption(table.node), label, "length", f"{why}.", table.says))
        if table.step == "weights":
            findings += _sum_finding(table, label, [read_cell(text) for text in row])
    return findings


def sum_findings(table: Placed, verdicts: dict[tuple[int, int], str]) -> list[RowFinding]:
    """Find rows of weights that do not sum to 1; rows whose cells are all right are skipped."""
    findings = []
    for row, cells in table.by_row().items():
        if len(cells) == len(table.columns) and not all(verdicts.get(cell) in ("right", "cut") for cell in cells):
            findings += _sum_finding(table, table.rows[row], list(cells.values()))
    return findings


def reach_findings(
    table: Placed, verdicts: dict[tuple[int, int], str], value: np.ndarray, may_look: np.ndarray | None
) -> list[RowFinding]:
    """Find context cells that no softmax weights can give: outside all values, or exactly at their extremes."""
    findings = []
    for (row, column), content in table.cells.items():
        verdict = verdicts.get((row, column), "")
        if verdict not in ("", "wrong") or not isinstance(content, Number) or column >= value.shape[1]:
            continue
        reachable = value[:, column] if may_look is None else value[may_look[row], column]
        if len(reachable) and not np.isnan(reachable).any():
            finding = _reach(content, float(reachable.min()), float(reachable.max()), len(reachable))
            if finding and (finding[0] == "outside" or not verdict):  # already reported as wrong
                name, why = finding
                why = why.format(text=table.texts[row, column].strip(), column=table.columns[column])
                findings.append(RowFinding(caption(table.node), table.rows[row], name, why, table.says))
    return findings


def _reach(number: Number, least: float, most: float, words: int) -> tuple[str, str] | None:
    bounds = f"the values of column {{column}} lie between {show(least)} and {show(most)}"
    if number.low > most or number.high < least:
        return "outside", f"{{text}} is out of range: {bounds}, and so does every weighted mean of them."
    if words > 1 and least < most and number.value in (least, most):
        end = "at most" if number.value == most else "at least"
        return (
            "extreme",
            f"The values of column {{column}} are {end} {show(number.value)}, so {{text}} needs weight 1 "
            "on one word and 0 on all others, which softmax never gives.",
        )
    return None


def _sum_finding(table: Placed, label: str, contents: list[Content]) -> list[RowFinding]:
    numbers = [number for number in contents if isinstance(number, Number)]
    if not numbers or any(not isinstance(number, Number) and number is not Mark.HIDDEN for number in contents):
        return []
    total, spare = sum(number.value for number in numbers), _rounding(numbers)
    if abs(total - 1) < max(spare - NOISE, NOISE):  # strictly below: the bound needs every number to be a half
        return []
    why = f"{listed([number.value for number in numbers], bracket)} = {show(total)}, but weights sum to 1"
    why += f" (rounding explains {show(spare)} at most)." if spare else "."
    return [RowFinding(caption(table.node), label, "sum", why, table.says)]


def _rounding(numbers: list[Number]) -> float:
    """Maximum rounding error of the sum: half a unit for each number, at the most decimals in the row.

    The most decimals, because .4 in `.38 .4 .24` means .40. Rows of whole numbers are exact.
    """
    rounded = [number.decimals for number in numbers if number.decimals is not None]
    finest = max(rounded, default=0)
    return 0.5 * 10.0**-finest * len(rounded) if finest > 0 else 0.0


def _at_own_decimals(exact: np.ndarray, row: tuple[str, ...]) -> str:
    contents = [read_cell(text) for text in row]
    finest = max((content.decimals or 0 for content in contents if isinstance(content, Number)), default=4)
    return " ".join("x" if content == -np.inf else f"{content:.{max(finest, 0)}f}" for content in exact)


def _cells(count: int) -> str:
    return "cell" if count == 1 else "cells"
