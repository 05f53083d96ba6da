"""What can be said of a row as a whole: its length, its sum, and what a weighted sum can reach."""

import numpy as np

from peasy.worked.checking.cell import NOISE, Content, Mark, Number, read_cell
from peasy.worked.checking.name import caption
from peasy.worked.checking.route import listed
from peasy.worked.checking.table import Placed, RowFinding
from peasy.worked.number import bracket, show


def unfit_findings(table: Placed, exact: np.ndarray | None) -> list[RowFinding]:
    """Rows of a wrong length, and rows that no token has."""
    found = []
    for index, row in table.misfits:
        label = "" if index is None else table.rows[index]
        if index is None:
            why = f"There are {len(table.rows)} rows, one for each token; this one is too many."
            found.append(RowFinding(caption(table.node), " ".join(row), "extra", why, table.says))
            continue
        why = f"{len(row)} {_cells(len(row))} where {len(table.columns)} belong"
        if exact is not None and not np.isnan(exact[index]).any():
            why += f": {_at_own_decimals(exact[index], row)}"
        found.append(RowFinding(caption(table.node), label, "length", f"{why}.", table.says))
        if table.step == "weights":
            found += _sum_finding(table, label, [read_cell(text) for text in row])
    return found


def sum_findings(table: Placed, verdicts: dict[tuple[int, int], str]) -> list[RowFinding]:
    """Weights that do not sum to 1. A row in which every cell was found right needs no further proof."""
    found = []
    for row, cells in table.by_row().items():
        if len(cells) == len(table.columns) and not all(verdicts.get(at) in ("right", "cut") for at in cells):
            found += _sum_finding(table, table.rows[row], list(cells.values()))
    return found


def reach_findings(
    table: Placed, verdicts: dict[tuple[int, int], str], value: np.ndarray, may_look: np.ndarray | None
) -> list[RowFinding]:
    """Context cells that no weights could give: beyond all values, or at the very largest or smallest of them."""
    found = []
    for (row, column), content in table.cells.items():
        verdict = verdicts.get((row, column), "")
        if verdict not in ("", "wrong") or not isinstance(content, Number) or column >= value.shape[1]:
            continue
        reachable = value[:, column] if may_look is None else value[may_look[row], column]
        if len(reachable) and not np.isnan(reachable).any():
            finding = _reach(content, float(reachable.min()), float(reachable.max()), len(reachable))
            if finding and (finding[0] == "outside" or not verdict):  # what is known to be wrong needs no suspicion
                name, why = finding
                why = why.format(text=table.texts[row, column].strip(), column=table.columns[column])
                found.append(RowFinding(caption(table.node), table.rows[row], name, why, table.says))
    return found


def _reach(number: Number, least: float, most: float, words: int) -> tuple[str, str] | None:
    bounds = f"the values of column {{column}} lie between {show(least)} and {show(most)}"
    if number.low > most or number.high < least:
        return "outside", f"{{text}} cannot be reached: {bounds}, and weights that sum to 1 stay between them."
    if words > 1 and least < most and number.value in (least, most):
        end = "at most" if number.value == most else "at least"
        return (
            "extreme",
            f"The values of column {{column}} reach {end} {show(number.value)}, so {{text}} needs weight 1 "
            "on one word and 0 on all others: that is not a softmax result.",
        )
    return None


def _sum_finding(table: Placed, label: str, contents: list[Content]) -> list[RowFinding]:
    numbers = [each for each in contents if isinstance(each, Number)]
    if not numbers or any(not isinstance(each, Number) and each is not Mark.HIDDEN for each in contents):
        return []
    total, spare = sum(each.value for each in numbers), _rounding(numbers)
    if abs(total - 1) < max(spare - NOISE, NOISE):  # the bound itself would need every number to be a half
        return []
    why = f"{listed([each.value for each in numbers], bracket)} = {show(total)}, but weights sum to 1"
    why += f" (rounding explains {show(spare)} at most)." if spare else "."
    return [RowFinding(caption(table.node), label, "sum", why, table.says)]


def _rounding(numbers: list[Number]) -> float:
    """By how much rounding can move the sum: half a unit for each number, at the finest place in the row.

    The finest place, because who writes .38 .4 .24 means .40. Whole numbers alone are taken as they stand.
    """
    rounded = [each.decimals for each in numbers if each.decimals is not None]
    finest = max(rounded, default=0)
    return 0.5 * 10.0**-finest * len(rounded) if finest > 0 else 0.0


def _at_own_decimals(exact: np.ndarray, row: tuple[str, ...]) -> str:
    contents = [read_cell(text) for text in row]
    finest = max((each.decimals or 0 for each in contents if isinstance(each, Number)), default=4)
    return " ".join("x" if each == -np.inf else f"{each:.{max(finest, 0)}f}" for each in exact)


def _cells(count: int) -> str:
    return "cell" if count == 1 else "cells"
