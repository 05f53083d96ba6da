"""Calculations in running text, reduced to names and numbers: `a = softmax(s) = [0.6, 0.4]` is `a = [0.6, 0.4]`.

Notes write a vector several times in one line, at first as a formula; they write the rows of a matrix below each other,
alone or with names (`K1 = [1, 0]`, `K_love = [0, 1]`), and vectors inside of sentences.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from peasy.worked.checking.step_aliases import parse_caption

_NUMBER = r"[-+−]?(?:\d+(?:/\d+(?![\d./]))?(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_ROW = rf"\[\s*{_NUMBER}(?:(?:\s*[,;]\s*|\s+){_NUMBER})*\s*\]"
_VALUE = re.compile(rf"(?:{_ROW}|\[\s*{_ROW}(?:\s*,?\s*{_ROW})*\s*,?\s*\])")
_REMARK = r"\s*(?:[#%←(—–]|<-|//).*"
_RESULT = re.compile(rf"\s*({_VALUE.pattern})\s*[.,;]?(?:{_REMARK})?")
_ROW_LINE = re.compile(rf"(?P<lead>.*?[=:≈]\s*|\s*)(?P<row>{_ROW})\s*,?(?:{_REMARK})?")
_CONTINUED = re.compile(r"\s*(?:=|≈|\+)\s*\S")
_EQUALS = re.compile(r"(?<![<>!])[=≈](?!=)")
_ENDS_IN_NUMBER = re.compile(rf"[=≈]\s*{_NUMBER}\s*\Z")
_CLAUSE = re.compile(r"(?:[:;,]|\.(?!\d))\s+(?![\[\d]|[^\[\]]*\])")
_INDEXED = re.compile(r"(\w*?[A-Za-z])(?:_?\{?(\d+|[₀-₉]+)\}?|_(\w+)|_\{(?:\\text\{)?(\w+)\}+|\[(\w+)\]|\((.+)\))")
_IN_SENTENCE = re.compile(
    rf"(?<![-+×·⋅*/@] )(?<![-+×·⋅*/@\w])([A-Za-z](?:\w{{0,3}}|_\{{\w+\}}))\s*=\s*({_VALUE.pattern})(?!\s*[-+×·⋅*/@^=])"
)
_BULLET = re.compile(r"^\s*(?:[-*•>]\s+|\d+[.)]\s+|\$)*")
_CALL = re.compile(r"(.*?)\s*\(\[.*|(.*?)\s*\[[^\]]*[,\s].*")
_WORDS = re.compile(r"(?:[^\W\d_]+[,:]?\s+)+(\S+)")
_OF_VECTORS = re.compile(r"\]\s*(?:\\times|\\cdot|[×·⋅*@])\s*\[")
_BY_ROOT = re.compile(r"/\s*\(?(?:√|\\?(?:\w+\.)?sqrt)")
_OPERAND = re.compile(r"(?<!array)(?<!tensor)[×·⋅*+/(]\s*\[|\]\s*(?:[×·⋅*+/^]|\)?\s*=)|\[[^\[\]]*[a-z×·*]\(?[^\[\]]*\]")
_DRAWN = re.compile(r"\](?:\s{2,}|,\s{3,})\[|^\s*\[[^\[\]]*\]\s*[x×@·*]\s*\[")
"""Sign of matrices beside each other, as in a product drawn with letters."""
_NUMBER_FIRST = re.compile(rf"{_NUMBER}(?:\s+[^\W\d]\w*)?")
"""A number of its own, also before the next name: `y = 1 w = [0.1, -0.2]`."""
_TWO = re.compile(r"\]\s+[^\W\d]\w*(?:\s+\w+)*$")
"""Sign of two statements in one clause: `k1 = [1, 0] and k2 = [0, 1]`."""

_MAX_LINE = 600
"""Maximum length of a line that is read as a calculation."""

_VECTORS = ("x", "source", "query", "key", "value", "context", "output")
"""Steps whose rows may have names of their own."""


def reduce_statements(lines: Iterable[str], fenced: bool) -> Iterator[str]:
    """Yield lines with their calculations as `name = numbers`; in sentences (not `fenced`) as code blocks.

    >>> list(reduce_statements(["K1 = [1, 0]", "K2 = [0, 1]", "w = softmax([1, 0])", "  = [0.73, 0.27]"], True))
    ['K = [[1, 0], [0, 1]]', 'w = [0.73, 0.27]']
    """
    rows: dict[str, dict[str, str]] = {}
    for line in _joined(_without_drawings(lines) if fenced else lines):
        found = list(_statements(line, fenced)) if len(line) < _MAX_LINE else []
        if rows and line.strip() and not all(_row_name(name) for name, _ in found or [("", "")]):
            yield from _written(rows, fenced)
        for name, value in found:
            indexed = _row_name(name) if not value.startswith("[[") else None
            if indexed is None:
                yield from _fence([f"{name} = {value}"], fenced)
            else:
                rows.setdefault(indexed[0], {})[indexed[1]] = value
        if not found and not (fenced and _OPERAND.search(line.replace("inf", "0"))):
            yield line
    yield from _written(rows, fenced)


def _without_drawings(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without paragraphs that draw a product: matrices beside each other."""
    for is_blank, group in groupby(lines, lambda line: not line.strip()):
        paragraph = list(group)
        if is_blank or not any(_DRAWN.search(line[:_MAX_LINE]) for line in paragraph):
            yield from paragraph


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; one that begins with an equals sign, or is only a row of numbers, belongs to the one above."""
    text, rows = "", list[str]()
    for line in lines:
        row = _ROW_LINE.fullmatch(line) if len(line) < _MAX_LINE else None
        alone = row is not None and not row["lead"].strip()
        is_other = "[" in line and _ENDS_IN_NUMBER.search(text)  # sum = 22.05, then a vector
        if _CONTINUED.match(line) and len(rows) < 2 and _EQUALS.search(text) and not is_other:
            text, rows = f"{_with_rows(text, rows)} {line.strip()}", []
        elif row and alone and rows and row["row"].count(",") == rows[0].count(","):
            rows.append(row["row"])
        else:
            yield from filter(None, [_with_rows(text, rows)])
            is_start = row is not None and len(_EQUALS.findall(row["lead"])) <= 1
            text, rows = (row["lead"], [row["row"]]) if row and is_start else (line, [])
            if not is_start and not _EQUALS.search(line):
                text = ""
                yield line
    yield from filter(None, [_with_rows(text, rows)])


def _with_rows(lead: str, rows: list[str]) -> str:
    return f"{lead}[{', '.join(rows)}]" if len(rows) > 1 else lead + "".join(rows)


def _statements(line: str, fenced: bool) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a line: of a chain of equals signs, or of each vector in a sentence."""
    if line.lstrip().startswith(("|", "#")) or "\\begin" in line:
        return
    plain = line.replace("`", "").replace("**", "")
    for clause in _CLAUSE.split(plain):
        vectors = [] if fenced else _IN_SENTENCE.findall(clause)
        yield from _chain(clause) or [each for each in vectors if parse_caption(each[0]) or _row_name(each[0])]


def _chain(text: str) -> list[tuple[str, str]]:
    """Return the names of a chain of equals signs, each with the numbers at its end."""
    first, *others = (part.strip() for part in _EQUALS.split(text))
    result = _RESULT.fullmatch(others[-1]) if others else None
    name = _name(first)
    is_other = any(_TWO.search(part) or _NUMBER_FIRST.fullmatch(part) for part in others[:-1])
    if result is None or not name or len(name) > 40 or is_other:
        return []
    if parse_caption(name) == ("weights", None) and any(map(_OF_VECTORS.search, others[:-1])):
        return []  # softmax([1, 0]) × [1, 2] = ...: no longer the weights
    if parse_caption(name) == ("scores", None) and any(map(_BY_ROOT.search, others[:-1])):
        name = "scaled"
    names = [name, *(part for part in others[:-1] if re.fullmatch(r"\w+|\w+\[\w+\]", part))]
    given = [each for each in names if (_row_name(each) or ("source",))[0] != "source"]
    return [(each, result[1]) for each in (given if len(names) > 1 and given else names)]


def _name(text: str) -> str:
    """Return what the left side of an equals sign names: `keys are k1` names k1, `softmax([1, 0])` the softmax.

    A product such as `0.4 * v1` names nothing.
    """
    text = _BULLET.sub("", text).strip(" $")
    if call := _CALL.fullmatch(text):
        text = call[1] or call[2] or ""
    if parse_caption(text) or _row_name(text):
        return text
    words = _WORDS.fullmatch(text)
    if words and (parse_caption(words[1]) or _row_name(words[1])):
        return words[1]
    return "" if re.search(r"^[\d.(]|[-+×·⋅*/@]", text) else text


def _row_name(name: str) -> tuple[str, str] | None:
    """Return the matrix and the row that a name means: `K_love` is row love of K; None if it is a whole table."""
    match = None if parse_caption(name) else _INDEXED.fullmatch(name)
    named = parse_caption(match[1]) if match else None
    if match is None or named is None or named[0] not in _VECTORS:
        return None
    base = "source" if match[1] in ("h", "s") else match[1]  # states of an encoder
    return base, next(filter(None, match.groups()[1:]), "")


def _written(rows: dict[str, dict[str, str]], fenced: bool) -> Iterator[str]:
    """Yield the matrices of the rows so far, and forget them; one row alone stays a vector, with its number."""
    texts = []
    for name, each in rows.items():
        (row, value), *others = each.items()
        number = f"_{row}" if row.isdecimal() else ""
        texts.append(f"{name} = [{', '.join(each.values())}]" if others else f"{name}{number} = {value}")
    rows.clear()
    yield from _fence(texts, fenced)


def _fence(lines: list[str], fenced: bool) -> list[str]:
    return lines if fenced or not lines else ["```", *lines, "```"]
