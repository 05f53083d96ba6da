"""Calculations in running text, `1*0 + 2*1 = 2`, `e^1.5 / (e^1.5 + e^0.2) = 0.79`: every link of a chain is judged.

Both sides of an equals sign are evaluated on intervals: a decimal is everything that rounds to it, a whole number is
exact. A link is wrong only if it is certain what is written: where a calculation begins or ends is a guess, or the
numbers differ by a unit (percent, thousands), a link that does not hold is left out.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from peasy.worked.checking.cell import WrittenNumber, evaluate, normalise_notation, read_number
from peasy.worked.checking.checker import CheckedCell, CheckedExample, CheckedTable
from peasy.worked.checking.verdict import Verdict
from peasy.worked.label import format_number

TITLE = "calculations"
_MAX_LINE, _MAX_SIDE = 1_000, 300
"""Maximum length of a line, and of one side of an equals sign, in characters."""

_FENCE = re.compile(r"\s*(?:```|~~~)\s*(\S*)")
_NO_TEXT = re.compile(r"https?://\S+|</?[a-zA-Z][^<>]*>|\b0x\w+")
_SIGNS = (
    (r"(?<=[\d)])\s*\*\*\s*(?=[\d(.-])", "^"), (r"(?<=[\d)])\s*(?:[x×]|\\times\b)\s*(?=[-−\d(.])", " × "), (r"÷", "/"),
    (r"²", "^2"), (r"³", "^3"), (r"(?<!\\)&|\\\\(?:\[[^\]]*\])?|\\[\[\]()]", " "),
    (r"\\(?:big|Big|bigg|Bigg)[lr]?\b", " "),
)  # fmt: skip
_EQUALS = re.compile(r"(?<![<>!=:])=(?![=>])|==")
_CONTINUED = re.compile(r"\s*&?\s*(?:=(?!=)|≈|\\approx\b)")
_RUN = r"(?:\s|\d|[.,+*×/^(){}√%-]|exp|frac|(?<![^\W\d_])e(?=\s*\^))*"
_BEFORE, _AFTER = re.compile(_RUN + r"\Z"), re.compile(_RUN)
_BULLET = re.compile(r"^\s*(?:[-*+•>]\s+|\(?\d+[.)]\s+)+")
_OPERATION = re.compile(r"[\d)}%]\s*[-+*×/^]|√|exp|frac|e\s*\^")
_SHAPE = re.compile(r"\d+(?: × \d+)+")
_TOKEN_START = re.compile(r"(?<![\d.,])[\d.,]|[-+(√{]|exp|frac|e\s*\^")
_UNIT = re.compile(
    r"\s*(?:[kKMGTB]\b|[KMGT]i?B\b|°|\(?mod\b|mill|bill|thousand|hundred|bytes|bits|Mio|Mrd|Tsd|tausend|degrees|!)"
)


@dataclass(frozen=True)
class Calculation:
    """One link of a chain of equals signs: its line, both sides as written, and whether its ends are certain."""

    line: int
    left: str
    right: str
    earlier: tuple[str, ...] = ()
    is_certain: bool = True

    def verdict(self) -> Verdict | None:
        """Return the verdict; None if it is not certain what is calculated."""
        left, right = evaluate(self.left), read_number(self.right) or evaluate(self.right)
        if left is None or right is None:
            return None
        sides = [left, *filter(None, map(evaluate, self.earlier))]
        if any(right.may_be(side.low, side.high) for side in sides):
            return "right"
        if any(right.may_be_cut(side.low, side.high) for side in sides):
            return "truncated"
        is_shape = bool(_SHAPE.fullmatch(self.left) and _SHAPE.fullmatch(self.right))  # b × 6 × 2 = 2 × 6 × 2
        is_certain = self.is_certain and not is_shape and not any(_differ_by_unit(side, right) for side in sides)
        return "wrong" if is_certain else None


def find_calculations(text: str) -> Iterator[Calculation]:
    """Yield the calculations of a text, except in program text.

    >>> [(each.left, each.right, each.verdict()) for each in find_calculations("q·k = 1·0 + 2·1 = 3, so 3/√2 = 2.12")]
    [('1*0 + 2*1', '3', 'wrong'), ('3/√2', '2.12', 'right')]
    """
    if re.search(r"\d,\d", text) and not re.search(r"\d\.\d", text):  # decimal commas
        text = re.sub(r"(?<=\d),(?=\d)", ".", text)
    for number, line in _lines(text):
        for cell in line.split("|"):
            yield from _chains(number, cell)


def check_calculations(text: str) -> CheckedExample | None:
    """Check the calculations of a text; None if there are none."""
    judged = [(each, verdict) for each in find_calculations(text) if (verdict := each.verdict())]
    if not judged:
        return None
    cells = tuple(_checked(calculation, verdict) for calculation, verdict in judged)
    rows, written = tuple(cell.row for cell in cells), tuple((cell.written,) for cell in cells)
    verdicts, reasons = tuple((cell.verdict,) for cell in cells), tuple((cell.reason,) for cell in cells)
    table = CheckedTable(TITLE, "Calculations in the text", rows, ("",), written, verdicts, reasons)
    return CheckedExample("Calculations in the text", (table,), cells, (), is_running_text=True)


def _checked(calculation: Calculation, verdict: Verdict) -> CheckedCell:
    value, written = evaluate(calculation.left), read_number(calculation.right)
    assert value is not None, "a judged calculation has a value"
    decimals, number = (None, math.nan) if written is None else (written.decimals, written.value)
    left = calculation.left.replace("frac", "\\frac")
    reason = f"{left} = {format_number(value.value)}"
    reason += f", not {calculation.right}" if verdict == "wrong" else ""
    reason += ": cut off instead of rounded" if verdict == "truncated" else ""
    return CheckedCell(
        TITLE, f"line {calculation.line}", "", f"{left} = {calculation.right}", value.value, verdict,
        f"{reason}.", decimals, value=number,
    )  # fmt: skip


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines outside of program text; one that begins with an equals sign continues the last."""
    is_fenced, is_program, start, joined = False, False, 1, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if fence := _FENCE.match(line):
            is_fenced = not is_fenced
            is_program = is_fenced and bool(re.match(r"py|js|java|c|rust|go|julia|r\b", fence[1], re.IGNORECASE))
            line = ""
        if is_program or len(line) > _MAX_LINE:
            line = ""
        line = _NO_TEXT.sub(" ", line)
        if _CONTINUED.match(line) and joined:
            joined += " " + line.strip()
            continue
        if "=" in joined or "≈" in joined or r"\approx" in joined:
            yield start, joined
        start, joined = number, line


def _chains(line: int, text: str) -> Iterator[Calculation]:
    for sign, plain in _SIGNS:
        text = re.sub(sign, plain, _BULLET.sub("", text))
    parts = _EQUALS.split(normalise_notation(text))
    earlier: list[str] = []
    is_certain = True
    for left, right in pairwise(parts):
        if not (earlier and evaluate(left.strip())):
            earlier, is_certain = [], True
            side, is_certain = _last_expression(left)
            if not side:
                continue
            earlier.append(side)
        result, ends_well = _first_expression(right)
        if not result:
            earlier = []
            continue
        if any(map(_OPERATION.search, earlier)):
            yield Calculation(line, earlier[-1], result, tuple(earlier[:-1]), is_certain and ends_well)
        earlier.append(result)


def _last_expression(text: str) -> tuple[str, bool]:
    """Return the expression at the end of a text, and whether it certainly begins there."""
    text = text[-_MAX_SIDE:].rstrip()
    run = _BEFORE.search(text)
    first = run.start() if run else len(text)
    for start in _TOKEN_START.finditer(text, first):
        expression, before = text[start.start() :], text[: start.start()]
        if evaluate(expression) is None:
            continue
        if expression[0] == "+" or re.search(r"(?:[\w)\]}'′_^]|\.\.\.?|…)\Z|(?:[-+*/^@×·]|\bx)\s*\Z", before):
            return "", False  # the rest of something longer
        is_sign = expression[0] == "-" and bool(re.search(r"[\w)\]]\s*\Z", before))
        is_label = bool(re.match(r"\d+\s+[-(]", expression)) or bool(re.search(r"\d\s*\Z", before))
        return expression, not (is_sign or is_label or "," in expression)
    return "", False


def _first_expression(text: str) -> tuple[str, bool]:
    """Return the expression at the beginning of a text, and whether it certainly ends there."""
    text = text[:_MAX_SIDE].lstrip()
    run = _AFTER.match(text)
    for end in range(run.end() if run else 0, 0, -1):
        expression = text[:end].rstrip(" .,")
        if text[end - 1].isspace() or evaluate(expression) is None:
            continue
        after = text[len(expression) :]
        if re.match(r"\s*[*×/^+@]|\s*-\s*[\w(\[]|[\w(\[{]|[.,]\d", after) or _UNIT.match(after):
            return "", False
        return expression, not re.match(r"\s*[-({\[–—]|\s+(?:[^\W\d_]\w?\b|√)", after) and "," not in expression
    return "", False


def _differ_by_unit(left: WrittenNumber, right: WrittenNumber) -> bool:
    """True if two numbers differ by a factor of 100, 1000 or 1024, or a power of these: percent, thousands, bytes."""
    if left.value * right.value <= 0:
        return False
    factor = max(left.value / right.value, right.value / left.value)
    return factor > 50 and any(
        abs(factor / unit**power - 1) < 0.06 for unit in (100, 1000, 1024) for power in (1, 2, 3, 4)
    )
