r"""Safety check for the regular expressions of a tokenizer file, against catastrophic backtracking.

A pattern is accepted if it is well known to run in linear time, or if parsing it shows that it is at worst
quadratic in the length of the text. Everything else is rejected; no pattern is ever run to measure its time.
"""

import re
from typing import NamedTuple

from peasy.errors import InvalidInput
from peasy.tokenization.encoding import WORD_PATTERN

_MAX_PATTERN_CHARS = 2_000
_MAX_BRANCHES = 200
MAX_TEXT_CHARS = 10_000
"""Maximum text length for a pattern with an unbounded repeat that is not well known: at most a quarter second."""

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_DIGITS = (r"\p{N}{1,3}", r"\p{N}")
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_PUNCTUATION_OR_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
_PUNCTUATION = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"

KNOWN_PATTERNS = frozenset(
    [
        WORD_PATTERN, r"[\s\S]", r"\w+|[^\w\s]+", r"\s+", " ", r"\d", r"[0-9]", " {2,}", r"\p{N}{1,3}", r"[\r\n]",
        rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
        rf"{_CONTRACTIONS}|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+",
        *(rf"(?i:{_CONTRACTIONS})|{_LEAD}\p{{L}}+|{digits}{_PUNCTUATION}{_TAIL}" for digits in _DIGITS),
        *(
            rf"{_LEAD}{_UPPER}*{_LOWER}+{end}|{_LEAD}{_UPPER}+{_LOWER}*{end}|{digits}{_PUNCTUATION_OR_SLASH}{_TAIL}"
            for end in (rf"(?i:{_CONTRACTIONS})?", "")
            for digits in _DIGITS
        ),
    ]
)  # fmt: skip
"""Patterns of GPT-2, CLIP, Llama 3, Qwen 2 and 3, GPT-4o, Mistral's newer models, and peasy."""


class _PatternCost(NamedTuple):
    """Backtracking cost of a pattern at one position: unbounded repeats, other ways to match, expanded size."""

    unbounded_repeats: int = 0
    branches: int = 1
    size: int = 0

    def then(self, other: "_PatternCost") -> "_PatternCost":
        """Return the cost of the concatenation."""
        repeats = self.unbounded_repeats + other.unbounded_repeats
        return _PatternCost(repeats, self.branches * other.branches, self.size + other.size)

    def either(self, other: "_PatternCost") -> "_PatternCost":
        """Return the cost of the alternation."""
        repeats = max(self.unbounded_repeats, other.unbounded_repeats)
        return _PatternCost(repeats, self.branches + other.branches, self.size + other.size)


def max_text_chars(pattern: str) -> int | None:
    """Return the maximum text length for a pattern (None: unlimited); raise if the pattern is unsafe.

    >>> max_text_chars(r"[0-9]"), max_text_chars("x+y")
    (None, 10000)
    >>> max_text_chars("(a+)+b")
    Traceback (most recent call last):
    peasy.errors.InvalidInput: The tokenizer's pattern '(a+)+b' is rejected: a repeat inside a repeat.
    """
    if pattern in KNOWN_PATTERNS:
        return None
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise _rejected(pattern, f"it is longer than {_MAX_PATTERN_CHARS:,} characters")
    cost = _PatternParser(pattern).parse()
    if cost.unbounded_repeats > 1:
        raise _rejected(pattern, "several unbounded repeats in sequence")
    if cost.size > _MAX_PATTERN_CHARS:
        raise _rejected(pattern, f"expanded it is longer than {_MAX_PATTERN_CHARS:,} characters")
    if cost.branches > _MAX_BRANCHES:
        raise _rejected(pattern, "too many ways to match the same text")
    return MAX_TEXT_CHARS if cost.unbounded_repeats else None


class _PatternParser:
    """Recursive-descent parser of a pattern that computes its cost."""

    _QUANTIFIER = re.compile(r"([*+?])|\{(\d*)(,?)(\d*)\}")
    _ESCAPE = re.compile(r"\\(?:[pP]\{\^?\w+\}|x\{[0-9A-Fa-f]+\}|[^0-9gkKRXyYm])", re.DOTALL)
    _GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!]|[imsx-]*:|<[A-Za-z_]\w*>)|\((?!\?)")

    def __init__(self, pattern: str) -> None:
        self.pattern, self.offset, self.depth = pattern, 0, 0

    def parse(self) -> _PatternCost:
        cost = self._alternation()
        if self.offset < len(self.pattern):
            raise _rejected(self.pattern, "an unmatched closing bracket")
        return cost

    def _alternation(self) -> _PatternCost:
        cost = self._sequence()
        while self._peek() == "|":
            self.offset += 1
            cost = cost.either(self._sequence())
        return cost

    def _sequence(self) -> _PatternCost:
        cost = _PatternCost()
        while self._peek() not in ("", "|", ")"):
            cost = cost.then(self._quantified(self._atom()))
        return cost

    def _quantified(self, inner: _PatternCost) -> _PatternCost:
        quantifier = self._QUANTIFIER.match(self.pattern, self.offset)
        if not quantifier:
            return inner
        self.offset = quantifier.end()
        if self._peek() in ("?", "+"):
            self.offset += 1  # lazy or possessive: costs no more
        if self._QUANTIFIER.match(self.pattern, self.offset):
            raise _rejected(self.pattern, "a repeat of a repeat")
        minimum = int(quantifier[2] or 0)
        maximum = (int(quantifier[4]) if quantifier[4] else None) if quantifier[3] else minimum
        if quantifier[1]:
            minimum, maximum = {"*": (0, None), "+": (1, None), "?": (0, 1)}[quantifier[1]]
        if minimum > 100 or (maximum is not None and (maximum > 100 or minimum > maximum)):
            raise _rejected(self.pattern, f"a repeat of {minimum} to {maximum} times")
        if (inner.unbounded_repeats or inner.branches > 1) and (minimum, maximum) != (0, 1):
            raise _rejected(self.pattern, "a repeat inside a repeat")
        expanded = _PatternCost(inner.unbounded_repeats, inner.branches, inner.size * max(minimum, maximum or 1))
        return expanded.then(_PatternCost(1, 1) if maximum is None else _PatternCost(0, maximum - minimum + 1))

    def _atom(self) -> _PatternCost:
        char = self._peek()
        if char == "(":
            return self._group()
        if char == "[":
            self._char_class()
        elif char == "\\":
            self._escape()
        else:
            self.offset += 1
        return _PatternCost(size=1)

    def _group(self) -> _PatternCost:
        group = self._GROUP.match(self.pattern, self.offset)
        if not group or "x" in group.group():
            raise _rejected(self.pattern, "an unknown kind of group")
        self.offset, self.depth = group.end(), self.depth + 1
        if self.depth > 20:
            raise _rejected(self.pattern, "groups nested too deeply")
        cost = self._alternation()
        if self._peek() != ")":
            raise _rejected(self.pattern, "an unclosed bracket")
        self.offset, self.depth = self.offset + 1, self.depth - 1
        return cost

    def _char_class(self) -> None:
        depth, start = 0, self.offset
        while self.offset < len(self.pattern):
            char = self._peek()
            if char == "\\":
                self._escape()
                continue
            self.offset += 1
            if char == "[":
                depth += 1
                self.offset += self._peek() == "^"
            elif char == "]" and self.offset - 1 > start + 1:
                depth -= 1
            if depth == 0:
                return
        raise _rejected(self.pattern, "an unclosed character class")

    def _escape(self) -> None:
        escape = self._ESCAPE.match(self.pattern, self.offset)
        if not escape:
            raise _rejected(self.pattern, "an unknown escape, or a backreference")
        self.offset = escape.end()

    def _peek(self) -> str:
        return self.pattern[self.offset : self.offset + 1]


def _rejected(pattern: str, reason: str) -> InvalidInput:
    shown = pattern if len(pattern) <= 60 else pattern[:57] + "..."
    return InvalidInput(
        f"The tokenizer's pattern {shown!r} is rejected: {reason}.",
        hint="Such a pattern may take exponential time on some texts.",
    )
