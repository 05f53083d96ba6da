r"""Which regular expressions of a tokenizer file may run: patterns can be written that take years on one line of text.

A pattern is taken when it is one of the well-known ones, which run in linear time, or when reading it
shows that it cannot do worse than look at the text once from each place. Everything else is refused
unread: no pattern is ever tried out to see how long it takes.
"""

import re
from dataclasses import dataclass

from peasy.errors import InvalidInput
from peasy.text.encoding import WORD

MOST_CHARACTERS = 2_000
MOST_WAYS = 200
TEXT_LIMIT = 10_000
"""Characters that a pattern may see which is neither well-known nor free of loops: at most a quarter second."""

_CONTRACTED = "'s|'t|'re|'ve|'m|'ll|'d"
_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_SIGNS_OR_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
_SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"

KNOWN = frozenset(
    [
        WORD, r"[\s\S]", r"\w+|[^\w\s]+", r"\s+", " ", r"\d", r"[0-9]", " {2,}", r"\p{N}{1,3}", r"[\r\n]",
        rf"{_CONTRACTED}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
        rf"{_CONTRACTED}|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+",
        *(rf"(?i:{_CONTRACTED})|{_LEAD}\p{{L}}+|{digits}{_SIGNS}{_TAIL}" for digits in (r"\p{N}{1,3}", r"\p{N}")),
        *(
            rf"{_LEAD}{_UPPER}*{_LOWER}+{end}|{_LEAD}{_UPPER}+{_LOWER}*{end}|{digits}{_SIGNS_OR_SLASH}{_TAIL}"
            for end in (rf"(?i:{_CONTRACTED})?", "")
            for digits in (r"\p{N}{1,3}", r"\p{N}")
        ),
    ]
)  # fmt: skip
"""The patterns of GPT-2, CLIP, Llama 3, Qwen 2 and 3, GPT-4o, Mistral's newer models, and peasy's own."""


@dataclass(frozen=True)
class Cost:
    """How a pattern can branch at one place: loops without end, ways to match apart from them, size written out."""

    loops: int = 0
    ways: int = 1
    size: int = 0

    def then(self, other: "Cost") -> "Cost":
        """One after the other."""
        return Cost(self.loops + other.loops, self.ways * other.ways, self.size + other.size)

    def either(self, other: "Cost") -> "Cost":
        """The one or the other."""
        return Cost(max(self.loops, other.loops), self.ways + other.ways, self.size + other.size)


def text_limit(pattern: str) -> int | None:
    """How many characters of text the pattern may be given (None: any number); a pattern that may not run is refused.

    >>> text_limit(r"[0-9]"), text_limit("x+y")
    (None, 10000)
    >>> text_limit("(a+)+b")
    Traceback (most recent call last):
    peasy.errors.InvalidInput: The tokenizer's pattern '(a+)+b' is refused: a repeat inside a repeat.
    """
    if pattern in KNOWN:
        return None
    if len(pattern) > MOST_CHARACTERS:
        raise _refused(pattern, f"it is longer than {MOST_CHARACTERS:,} characters")
    cost = _Reader(pattern).read()
    if cost.loops > 1:
        raise _refused(pattern, "several endless repeats in a row")
    if cost.size > MOST_CHARACTERS:
        raise _refused(pattern, f"written out it is longer than {MOST_CHARACTERS:,} characters")
    if cost.ways > MOST_WAYS:
        raise _refused(pattern, "too many ways to match the same text")
    return TEXT_LIMIT if cost.loops else None


class _Reader:
    """Reads a pattern from left to right and adds up what it can cost."""

    _QUANTIFIER = re.compile(r"([*+?])|\{(\d{0,6})(,?)(\d{0,6})\}")
    _ESCAPE = re.compile(r"\\(?:[pP]\{\^?\w+\}|x\{[0-9A-Fa-f]+\}|[^0-9gkKRXyYm])", re.DOTALL)
    _GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!]|[imsx-]*:|<[A-Za-z_]\w*>)|\((?!\?)")

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0

    def read(self) -> Cost:
        cost = self._either()
        if self.at < len(self.pattern):
            raise _refused(self.pattern, "a bracket closes that was never opened")
        return cost

    def _either(self) -> Cost:
        cost = self._sequence()
        while self._next() == "|":
            self.at += 1
            cost = cost.either(self._sequence())
        return cost

    def _sequence(self) -> Cost:
        cost = Cost()
        while self._next() not in ("", "|", ")"):
            cost = cost.then(self._repeated(self._item()))
        return cost

    def _repeated(self, inner: Cost) -> Cost:
        found = self._QUANTIFIER.match(self.pattern, self.at)
        if not found:
            return inner
        self.at = found.end()
        if self._next() in ("?", "+"):
            self.at += 1  # lazy or possessive: never costs more
        if self._QUANTIFIER.match(self.pattern, self.at):
            raise _refused(self.pattern, "a repeat of a repeat")
        least, most = _bounds(found)
        if least > 100 or (most is not None and (most > 100 or least > most)):
            raise _refused(self.pattern, f"a repeat of {least} to {most} times")
        if (inner.loops or inner.ways > 1) and (least, most) != (0, 1):
            raise _refused(self.pattern, "a repeat inside a repeat")
        grown = Cost(inner.loops, inner.ways, inner.size * max(least, most or 1))
        return grown.then(Cost(1, 1) if most is None else Cost(0, most - least + 1))

    def _item(self) -> Cost:
        sign = self._next()
        if sign == "(":
            return self._group()
        if sign == "[":
            self._class()
        elif sign == "\\":
            self._escape()
        else:
            self.at += 1
        return Cost(size=1)

    def _group(self) -> Cost:
        found = self._GROUP.match(self.pattern, self.at)
        if not found or "x" in found.group():
            raise _refused(self.pattern, "a kind of group that peasy does not know")
        self.at, self.depth = found.end(), self.depth + 1
        if self.depth > 20:
            raise _refused(self.pattern, "groups too deep")
        cost = self._either()
        if self._next() != ")":
            raise _refused(self.pattern, "a bracket is never closed")
        self.at, self.depth = self.at + 1, self.depth - 1
        return cost

    def _class(self) -> None:
        depth, start = 0, self.at
        while self.at < len(self.pattern):
            sign = self._next()
            if sign == "\\":
                self._escape()
                continue
            self.at += 1
            if sign == "[":
                depth += 1
                self.at += self._next() == "^"
            elif sign == "]" and self.at - 1 > start + 1:
                depth -= 1
            if depth == 0:
                return
        raise _refused(self.pattern, "a class is never closed")

    def _escape(self) -> None:
        found = re.compile(r"\\(?:[pP]\{\^?\w+\}|x\{[0-9A-Fa-f]+\}|[^0-9gkKRXyYm])", re.DOTALL).match(
            self.pattern, self.at
        )
        if not found:
            raise _refused(self.pattern, "an escape that peasy does not know, or a reference back")
        self.at = found.end()

    def _next(self) -> str:
        return self.pattern[self.at : self.at + 1]


def _bounds(found: "re.Match[str]") -> tuple[int, int | None]:
    if found[1]:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
    least = int(found[2] or 0)
    return least, (int(found[4]) if found[4] else None) if found[3] else least


def _refused(pattern: str, why: str) -> InvalidInput:
    shown = pattern if len(pattern) <= 60 else pattern[:57] + "..."
    return InvalidInput(
        f"The tokenizer's pattern {shown!r} is refused: {why}.",
        hint="Such a pattern may never come to an end on some texts.",
    )
