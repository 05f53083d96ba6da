r"""Safety check for the regular expressions of a tokenizer file, against catastrophic backtracking.

A pattern is accepted if it is well known to run in linear time, or if parsing it shows that it is at worst
quadratic in the length of the text. Everything else is rejected; no pattern is ever run to measure its time.
"""

import re
from dataclasses import dataclass

from peasy.errors import InvalidInput
from peasy.text.encoding import WORD

MOST_CHARACTERS = 2_000
MOST_WAYS = 200
TEXT_LIMIT = 10_000
"""Maximum text length for a pattern with an unbounded repeat that is not well known: at most a quarter second."""

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
"""Patterns of GPT-2, CLIP, Llama 3, Qwen 2 and 3, GPT-4o, Mistral's newer models, and peasy."""


@dataclass(frozen=True)
class Cost:
    """Backtracking cost of a pattern at one position: unbounded repeats, other ways to match, expanded size."""

    loops: int = 0
    ways: int = 1
    size: int = 0

    def then(self, other: "Cost") -> "Cost":
        """Return the cost of the concatenation."""
        return Cost(self.loops + other.loops, self.ways * other.ways, self.size + other.size)

    def either(self, other: "Cost") -> "Cost":
        """Return the cost of the alternation."""
        return Cost(max(self.loops, other.loops), self.ways + other.ways, self.size + other.size)


def text_limit(pattern: str) -> int | None:
    """Return the maximum text length for a pattern (None: unlimited); raise if the pattern is unsafe.

    >>> text_limit(r"[0-9]"), text_limit("x+y")
    (None, 10000)
    >>> text_limit("(a+)+b")
    Traceback (most recent call last):
    peasy.errors.InvalidInput: The tokenizer's pattern '(a+)+b' is rejected: a repeat inside a repeat.
    """
    if pattern in KNOWN:
        return None
    if len(pattern) > MOST_CHARACTERS:
        raise _refused(pattern, f"it is longer than {MOST_CHARACTERS:,} characters")
    cost = _Reader(pattern).read()
    if cost.loops > 1:
        raise _refused(pattern, "several unbounded repeats in sequence")
    if cost.size > MOST_CHARACTERS:
        raise _refused(pattern, f"expanded it is longer than {MOST_CHARACTERS:,} characters")
    if cost.ways > MOST_WAYS:
        raise _refused(pattern, "too many ways to match the same text")
    return TEXT_LIMIT if cost.loops else None


class _Reader:
    """Recursive-descent parser of a pattern that computes its cost."""

    _QUANTIFIER = re.compile(r"([*+?])|\{(\d{0,6})(,?)(\d{0,6})\}")
    _ESCAPE = re.compile(r"\\(?:[pP]\{\^?\w+\}|x\{[0-9A-Fa-f]+\}|[^0-9gkKRXyYm])", re.DOTALL)
    _GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!]|[imsx-]*:|<[A-Za-z_]\w*>)|\((?!\?)")

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0

    def read(self) -> Cost:
        cost = self._either()
        if self.at < len(self.pattern):
            raise _refused(self.pattern, "an unmatched closing bracket")
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
        quantifier = self._QUANTIFIER.match(self.pattern, self.at)
        if not quantifier:
            return inner
        self.at = quantifier.end()
        if self._next() in ("?", "+"):
            self.at += 1  # lazy or possessive: costs no more
        if self._QUANTIFIER.match(self.pattern, self.at):
            raise _refused(self.pattern, "a repeat of a repeat")
        minimum, maximum = _bounds(quantifier)
        if minimum > 100 or (maximum is not None and (maximum > 100 or minimum > maximum)):
            raise _refused(self.pattern, f"a repeat of {minimum} to {maximum} times")
        if (inner.loops or inner.ways > 1) and (minimum, maximum) != (0, 1):
            raise _refused(self.pattern, "a repeat inside a repeat")
        expanded = Cost(inner.loops, inner.ways, inner.size * max(minimum, maximum or 1))
        return expanded.then(Cost(1, 1) if maximum is None else Cost(0, maximum - minimum + 1))

    def _item(self) -> Cost:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            self._class()
        elif char == "\\":
            self._escape()
        else:
            self.at += 1
        return Cost(size=1)

    def _group(self) -> Cost:
        group = self._GROUP.match(self.pattern, self.at)
        if not group or "x" in group.group():
            raise _refused(self.pattern, "an unknown kind of group")
        self.at, self.depth = group.end(), self.depth + 1
        if self.depth > 20:
            raise _refused(self.pattern, "groups nested too deeply")
        cost = self._either()
        if self._next() != ")":
            raise _refused(self.pattern, "an unclosed bracket")
        self.at, self.depth = self.at + 1, self.depth - 1
        return cost

    def _class(self) -> None:
        depth, start = 0, self.at
        while self.at < len(self.pattern):
            char = self._next()
            if char == "\\":
                self._escape()
                continue
            self.at += 1
            if char == "[":
                depth += 1
                self.at += self._next() == "^"
            elif char == "]" and self.at - 1 > start + 1:
                depth -= 1
            if depth == 0:
                return
        raise _refused(self.pattern, "an unclosed character class")

    def _escape(self) -> None:
        escape = self._ESCAPE.match(self.pattern, self.at)
        if not escape:
            raise _refused(self.pattern, "an unknown escape, or a backreference")
        self.at = escape.end()

    def _next(self) -> str:
        return self.pattern[self.at : self.at + 1]


def _bounds(found: "re.Match[str]") -> tuple[int, int | None]:
    if found[1]:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
    minimum = int(found[2] or 0)
    return minimum, (int(found[4]) if found[4] else None) if found[3] else minimum


def _refused(pattern: str, why: str) -> InvalidInput:
    shown = pattern if len(pattern) <= 60 else pattern[:57] + "..."
    return InvalidInput(
        f"The tokenizer's pattern {shown!r} is rejected: {why}.",
        hint="Such a pattern may take exponential time on some texts.",
    )
