"""Calculations in running text, `1*0 + 2*1 = 2`, `softmax([1, 0]) = [0.73, 0.27]`: every link of a chain is judged.

Both sides of an equals sign are evaluated on intervals: a decimal is everything that rounds to it, a whole number is
exact. A link is wrong only if it is certain what is written: where a calculation begins or ends is a guess, or the
numbers differ by a unit (percent, thousands), a link that does not hold is left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from peasy.parameters import Record
from peasy.worked.checking.cell import (
    NumberArray,
    WrittenNumber,
    evaluate_array,
    nest_rows,
    normalise_notation,
    numbers_of,
    read_number,
)  # fmt: skip
from peasy.worked.checking.checker import CheckedCell, CheckedExample, CheckedTable, check
from peasy.worked.checking.verdict import Verdict
from peasy.worked.example import Example
from peasy.worked.label import format_number

Numbers = tuple[float, ...]

TITLE = "calculations"
_MAX_LINE, _MAX_SIDE = 1_000, 300
"""Maximum length of a line, and of one side of an equals sign, in characters."""

_FENCE = re.compile(r"\s*(?:```|~~~)\s*(\S*)")
_NO_TEXT = re.compile(r"https?://\S+|</?[a-zA-Z][^<>]*>|\b0x\w+")
_SIGNS = (
    (r"(?<=[\d)])\s*\*\*\s*(?=[\d(.-])", "^"), (r"(?<=[\d)])\s*(?:[x×]|\\times(?![a-zA-Z]))\s*(?=[-−\d(.])", " × "),
    (r"÷", "/"), (r"~(?=\d)", " ∼ "), (r"[x×]\s*(?=\[)", "×"),
    (r"\]\s*(?:\.|•|∙)\s*(?=\[)", "] * "), (r"(?<=[)\]])\s*(?:→|⇒|⟶|[-=]>)\s*(?=\[)", " = "),
    (r"(?i)\\operatorname\{softmax\}|\bsoftmax\b", "softmax"), (r"ᵀ|\^\{?\\top\b\}?|\^\{T\}", "^T"),
    (r"(?<!\\)&|\\\\(?:\[[^\]]*\])?|\\[\[\]()]", " "), (r"\\(?:big|Big|bigg|Bigg)[lr]?\b", " "),
)  # fmt: skip
_EQUALS = re.compile(r"(?<![<>!=:])=(?![=>])|==")
_CONTINUED = re.compile(r"\s*&?\s*(?:=(?!=)|≈|\\approx\b)")
_EXPONENT = re.compile(r"⁻?[⁰¹²³⁴-⁹]+")
_PLAIN_EXPONENT = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_HAS_RESULT = re.compile(r"[=≈]|\\approx|[)\]]\s*(?:→|⇒|⟶|->)\s*\[")
_RUN = r"(?:\s|\d|[.,;+*×@/^(){}\[\]√%∞-]|(?<=\^)T|exp|frac|softmax|inf\b|(?<![^\W\d_])e(?=\s*\^))*"
_BEFORE, _AFTER = re.compile(_RUN + r"\Z"), re.compile(_RUN)
_BULLET = re.compile(r"^\s*(?:[-*+•>]\s+|//+\s*|\(?\d+[.)]\s+)+")
_OPERATION = re.compile(r"[\d)}%\]]\s*[-+*×@/^]|√|exp|frac|softmax|e\s*\^")
_SHAPE = re.compile(r"[\d\s()*]*\d × \d[\d\s()*×]*")
_SCIENTIFIC = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*[*×]\s*10\s*\^\s*[{(]?\s*([-+]?\d{1,3})\s*[})]?")
_POWER_OF_TEN = re.compile(r"10\s*\^.*")
_IN_BRACKETS = re.compile(r"(-?[\d.]+%?)\s+\(([^()]*)\)")
"""A result with another form of it: `0.99 (99%)`, `0.25 (1/4)`."""
_THOUSANDS = re.compile(r"(?<![\d.])([1-9]\d{0,2})\.(\d{3})(?![\d.])")
_TOKEN_START = re.compile(r"(?<![\d.,])[\d.,]|[-+(√{\[]|exp|frac|softmax|e\s*\^")
_ENDS = re.compile(r"[\d)\]}%.∞T]")
_OF_FUNCTION = re.compile(r"\b(?:log|ln|max|min|sum|mean|norm|tanh|sigmoid|relu|cos|sin)\s*\Z", re.IGNORECASE)
_LIST = re.compile(r"\s*[,;]\s*-?[\d.]+(?![\d.]|\s*[-+*×/^(√=])")
"""More numbers after a result: `e^0, e^1 = 1, 2.72`."""
_UNIT = re.compile(
    r"\s*(?:[kKMGTB]\b|[KMGT]i?B\b|°|\(?mod\b|mill|bill|thousand|hundred|bytes|bits|Mio|Mrd|Tsd|tausend|degrees|!)"
)


class Calculation(Record):
    """One link of a chain of equals signs: its line, both sides as written, and whether its ends are certain."""

    line: int
    left: str
    right: str
    earlier: tuple[str, ...] = ()
    is_certain: bool = True

    def verdict(self) -> Verdict | None:
        """Return the verdict; None if it is not certain what is calculated."""
        right = self.result
        sides = [side for side in map(evaluate_array, (self.left, *self.earlier)) if side is not None]
        verdicts = [_compare(side, right) for side in sides] if right is not None else []
        if verdict := next((each for each in ("right", "truncated") if each in verdicts), None):
            return verdict
        is_shape = bool(_SHAPE.fullmatch(self.right)) and (  # b × 6 × 2 = 2 × 6 × 2, 448/7 = 64 × 64
            bool(_SHAPE.fullmatch(self.left)) or len(set(re.findall(r"\d+", self.right))) == 1
        )
        is_shape |= bool(re.fullmatch(r"\(\d+( × \d+)+\)", self.left))  # (3 × 2) = 3 samples, 2 features
        # an order of magnitude; 4 matrices of 512^2 = 4·512^2
        left = re.escape(self.left)
        times_number = re.fullmatch(rf"\d+\s*[*×]\s*{left}|{left}\s*[*×]\s*\d+", self.right)
        is_other = bool(_POWER_OF_TEN.fullmatch(self.right) or times_number)
        is_judged = verdicts[:1] == ["wrong"] and None not in verdicts
        if not is_judged or not self.is_certain or is_shape or is_other:
            return None
        one, other = (_THOUSANDS.sub(r"\1\2", side) for side in (self.left, self.right))  # 1,536 + 512 = 2,048
        is_whole = (one, other) != (self.left, self.right) and Calculation(0, one, other).verdict() == "right"
        return "right" if is_whole else "wrong"

    @property
    def result(self) -> NumberArray | None:
        """The right side; its numbers match everything that rounds to them, unless they are calculated with."""
        if scientific := _SCIENTIFIC.fullmatch(self.right):
            digits, power = scientific.groups()
            return read_number(f"{digits}e{power}")  # with as many digits as are written
        if number := read_number(self.right):
            return number
        array = evaluate_array(self.right)
        return array if array is None or _OPERATION.search(self.right) else _as_rounded(array)


def _as_rounded(array: NumberArray, usual: int | None = None) -> NumberArray:
    """Return an array with its whole numbers as rounded: a `1` among numbers of two decimals means 1.00."""
    if usual is None:
        usual = max(number.decimals or 0 for number in numbers_of(array))
    if isinstance(array, tuple):
        return tuple(_as_rounded(part, usual) for part in array)
    return array.at_decimals(usual) if array.decimals is None and array.low == array.high else array


def _compare(left: NumberArray, right: NumberArray, may_be_percent: bool = True) -> Verdict | None:
    """Return the verdict on the right side of an equals sign; None if shape or unit differ."""
    if isinstance(left, WrittenNumber) and isinstance(right, WrittenNumber):
        if right.may_be(left.low, left.high):
            return "right"
        if right.may_be_cut(left.low, left.high):
            return "truncated"
        is_whole = right.low == right.high == round(right.value) and abs(left.value - right.value) < 1
        return None if is_whole or (may_be_percent and _differ_by_unit(left, right)) else "wrong"
    if isinstance(left, WrittenNumber) or isinstance(right, WrittenNumber) or len(left) != len(right):
        return None
    verdicts = [_compare(one, other, False) for one, other in zip(left, right, strict=True)]
    return max(verdicts, key=(None, "right", "truncated", "wrong").index) if None not in verdicts else None


def find_calculations(text: str) -> Iterator[Calculation]:
    """Yield the calculations of a text, except in program text.

    >>> [(each.left, each.right, each.verdict()) for each in find_calculations("q·k = 1·0 + 2·1 = 3, so 3/√2 = 2.12")]
    [('1*0 + 2*1', '3', 'wrong'), ('3/√2', '2.12', 'right')]
    """
    if re.search(r"\d,\d", re.sub(r"\[[^\[\]]*\]", "", text)) and not re.search(r"\d\.\d", text):  # decimal commas
        text = re.sub(r"(?<=\d),(?=\d)", ".", text)
    if re.search(r"(?<![\w\\^])e\s*=", text):  # a variable: e = y - t
        text = re.sub(r"(?<![\w\\])e(?=\s*\^)", "e_", text)
    for number, line in _lines(nest_rows(text)):
        for cell in line.split("|"):
            yield from _chains(number, cell)


class TextCalculations:
    """Judged calculations of a text, and their vectors, which need not be read as tables again."""

    def __init__(self, text: str) -> None:
        self.judged = [(each, verdict) for each in find_calculations(text) if (verdict := each.verdict())]
        sides = [side for each, _ in self.judged for side in (each.left, each.right)]
        vectors = [vector for side in sides for vector in re.findall(r"\[[^\[\]]*\]", side)]
        self.vectors = {row for vector in vectors for row in _rows(evaluate_array(vector)) if row}
        self.right = {row for each, verdict in self.judged if verdict == "right" for row in _rows(each.result)}

    def check(self, example: Example) -> CheckedExample:
        """Check an example without tables that have no name and only repeat vectors of calculations.

        A vector that is calculated right, and that neither the tables nor a known mistake give, is of another example.
        """
        tables = [table for table in example.written if table.table or not self.repeats(map(_row_numbers, table.cells))]
        checked = check(replace(example, written=tuple(tables)))
        others = {
            row
            for table in checked.tables
            if len(table.written) == 1 and "wrong" in table.verdicts[0] and not table.has_slip
            if (row := _row_numbers(table.written[0])) in self.right
        }
        kept = [table for table in tables if len(table.cells) != 1 or _row_numbers(table.cells[0]) not in others]
        return check(replace(example, written=tuple(kept))) if others else checked

    def repeats(self, rows: Iterable[Numbers]) -> bool:
        """True if every row is a vector of calculations."""
        return self.vectors.issuperset(rows)

    def only_repeats(self, part: CheckedExample) -> bool:
        """True if nothing in the tables could be checked, and they only repeat vectors of calculations."""
        is_open = part.cells or part.rows or part.unread or not part.tables
        return not is_open and self.repeats(row for table in part.tables for row in map(_row_numbers, table.written))

    def checked(self, parts: Iterable[CheckedExample]) -> CheckedExample | None:
        """Return the checked calculations without those whose vectors are rows of checked tables, and judged there."""
        tables = [table for part in parts for table in part.tables if any(map(any, table.verdicts))]
        rows = {row for table in tables for row in map(_row_numbers, table.written) if row}
        judged = ((each, verdict) for each, verdict in self.judged if not rows.issuperset(_rows(each.result)))
        cells = tuple(_checked(calculation, verdict) for calculation, verdict in judged)
        lines, written = tuple(cell.row for cell in cells), tuple((cell.written,) for cell in cells)
        verdicts, reasons = tuple((cell.verdict,) for cell in cells), tuple((cell.reason,) for cell in cells)
        table = CheckedTable(TITLE, "Calculations in the text", lines, ("",), written, verdicts, reasons)
        text = CheckedExample("Calculations in the text", (table,), cells, (), is_running_text=True)
        return text if cells else None


def _rows(array: NumberArray | None) -> Iterator[Numbers]:
    """Yield the rows of an array as numbers; a number is no row of a table."""
    if isinstance(array, tuple) and any(isinstance(part, tuple) for part in array):
        yield from (row for part in array for row in _rows(part))
    else:
        yield tuple(number.value for number in numbers_of(array)) if isinstance(array, tuple) else ()


def _row_numbers(row: Sequence[str | int | float]) -> Numbers:
    """Return the numbers of a row of a table."""
    return tuple(number.value for text in row if (number := read_number(str(text))))


def _checked(calculation: Calculation, verdict: Verdict) -> CheckedCell:
    value, written = evaluate_array(calculation.left), calculation.result
    assert value is not None, "a judged calculation has a value"
    assert written is not None, "a judged calculation has a result"
    pairs = list(zip(numbers_of(value), numbers_of(written), strict=True))
    exact, number = next((pair for pair in pairs if _compare(*pair, False) == verdict), pairs[0])
    left = calculation.left.replace("frac", "\\frac")
    reason = f"{left} = {_format(value)}"
    reason += f", not {calculation.right}" if verdict == "wrong" else ""
    reason += ": cut off instead of rounded" if verdict == "truncated" else ""
    return CheckedCell(
        TITLE, f"line {calculation.line}", "", f"{left} = {calculation.right}", exact.value, verdict,
        f"{reason}.", number.decimals, value=number.value,
    )  # fmt: skip


def _format(value: NumberArray) -> str:
    if isinstance(value, WrittenNumber):
        return f"{value.value:.4g}" if 0 < abs(value.value) < 1e-3 else format_number(value.value)
    return f"[{', '.join(map(_format, value))}]"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines outside of program text; one that begins with an equals sign continues the last."""
    is_fenced, is_program, start, joined = False, False, 1, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if fence := _FENCE.match(line):
            is_fenced = not is_fenced
            is_program = is_fenced and bool(re.match(r"py|js|java|c|rust|go|julia|r\b", fence[1], re.IGNORECASE))
            line = ""
        if len(line) > _MAX_LINE:
            line = ""
        if is_program:  # of a program, comments and lines with signs that it cannot have
            code, _, comment = line.partition("#")
            line = code if re.search(r"[×·⋅≈√→]", code) else comment
        line = _NO_TEXT.sub(" ", line)
        if _CONTINUED.match(line) and joined and not joined.lstrip().startswith("+ "):
            joined += " " + line.strip()
            continue
        if _HAS_RESULT.search(joined):
            yield start, joined
        start, joined = number, line


def _chains(line: int, text: str) -> Iterator[Calculation]:
    text = _EXPONENT.sub(lambda match: f"^({match[0].translate(_PLAIN_EXPONENT)})", _BULLET.sub("", text))
    for sign, plain in _SIGNS:
        text = re.sub(sign, plain, text)
    parts = _EQUALS.split(normalise_notation(text))
    earlier: list[str] = []
    is_certain = True
    for left, right in pairwise(parts):
        if not (earlier and evaluate_array(left.strip())):
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
        if evaluate_array(expression) is None:
            continue
        if (
            expression[0] == "+"
            or _OF_FUNCTION.search(before)
            or re.search(r"(?:[\w)\]}'′_^]|\.\.\.?|…)\Z|(?:[-+*/^@×·∼]|\bx|[\d}]\s+:)\s*\Z", before)
        ):
            return "", False  # the rest of something longer
        is_sign = expression[0] == "-" and bool(re.search(r"[\w)\]]\s*\Z", before))
        is_label = bool(re.match(r"\d+\s+[-(]", expression)) or bool(re.search(r"\d\s*\Z", before))
        return expression, not (is_sign or is_label or ("," in expression and "[" not in expression))
    return "", False


def _first_expression(text: str) -> tuple[str, bool]:
    """Return the expression at the beginning of a text, and whether it certainly ends there."""
    text = text[:_MAX_SIDE].lstrip()
    run = _AFTER.match(text)
    for end in range(run.end() if run else 0, 0, -1):
        expression = text[:end].rstrip(" .,")
        if not _ENDS.match(text[end - 1]) or evaluate_array(expression) is None:
            continue
        remark = _IN_BRACKETS.fullmatch(expression)
        if remark and (not _OPERATION.search(remark[2]) or Calculation(0, remark[2], remark[1]).verdict() == "right"):
            expression = remark[1]
        after = text[len(expression) :]
        if re.match(r"\s*[*×/^+@]|\s*-\s*[\w(\[]|[\w(\[{]|[.,]\d", after) or _UNIT.match(after):
            return "", False
        if expression.endswith("]"):
            return expression, not re.match(r"\s+(?:[^\W\d_]\w?\b|√)", after)
        is_guess = re.match(r"\s*:\s*\d|\s*[-({\[–—]|\s+(?:[^\W\d_]\w?\b|√)", after) or _LIST.match(after)
        return expression, not is_guess and "," not in expression
    return "", False


def _differ_by_unit(left: WrittenNumber, right: WrittenNumber) -> bool:
    """True if two numbers differ by a factor of 100, 1000 or 1024, or a power of these: percent, thousands, bytes."""
    if left.value * right.value <= 0:
        return False
    factor = max(left.value / right.value, right.value / left.value)
    return factor > 50 and any(abs(factor / unit**n - 1) < 0.06 for unit in (100, 1000, 1024) for n in range(1, 5))
