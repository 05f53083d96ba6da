"""Worksheets: small whole numbers to calculate attention by hand with, the same for the same seed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from peasy.errors import UsageError, did_you_mean
from peasy.worked.example import read_example
from peasy.worked.work import Worked, WorkedStep, work

WORDS = ("tea", "cats", "rain", "we", "sing", "blue", "run", "home", "stars", "bread", "you", "snow")
LARGEST = 8
"""Rows or columns; nobody multiplies more by hand."""

GIVEN = ("x", "w_q", "w_k", "w_v", "w_o")
"""The steps that a worksheet gives; all others are asked."""

CAPTIONS = {"x": "X", "w_q": "W_Q", "w_k": "W_K", "w_v": "W_V", "query": "Q", "key": "K", "value": "V"}
"""What a worksheet writes above its tables where that is not the step's own name; `peasy check` reads them."""


@dataclass(frozen=True)
class Exercise:
    """An example to be worked by hand: what is given stands in `given`, what is asked in `asked`."""

    topic: str
    seed: int
    worked: Worked
    given: tuple[WorkedStep, ...]
    asked: tuple[WorkedStep, ...]

    @property
    def settings(self) -> tuple[str, ...]:
        """What differs from plain attention."""
        return self.worked.example.settings


def make_exercise(size: str = "3x2", seed: int = 5, topic: str = "plain") -> Exercise:
    """The worksheet of that size (tokens x width), seed and topic.

    >>> make_exercise("2x2", seed=1).worked.tokens == make_exercise("2x2", seed=1).worked.tokens
    True
    >>> [step.name for step in make_exercise(topic="contexts").asked]
    ['context']
    """
    if topic not in TOPICS:
        hint = did_you_mean(topic, TOPICS) or f"Topics: {', '.join(TOPICS)}."
        raise UsageError(f'There is no topic "{topic}".', hint=hint)
    tokens, width = read_size(size)
    random = Random(f"{topic} {tokens}x{width} {seed}")
    given = {"title": f"Attention by hand: {topic}, {tokens}x{width}, seed {seed}"}
    given |= {"tokens": random.sample(WORDS, tokens)} | TOPICS[topic](random, tokens, width)
    worked = work(read_example(given))
    known = ("value", "weights") if worked.example.weights is not None else GIVEN
    shown = [step for step in worked.steps if not _is_repeated(worked, step)]
    return Exercise(
        topic, seed, worked,
        tuple(step for step in shown if step.name in known), tuple(step for step in shown if step.name not in known),
    )  # fmt: skip


def read_size(size: str) -> tuple[int, int]:
    """Tokens and width from `3x2`.

    >>> read_size("3x2")
    (3, 2)
    """
    found = re.fullmatch(r"\s*(\d{1,3})\s*[xX×]\s*(\d{1,3})\s*", size)
    if not found or not (2 <= int(found[1]) <= LARGEST and 1 <= int(found[2]) <= LARGEST):
        raise UsageError(
            f'"{size}" is no size of a worksheet.',
            hint=f"Give tokens x width, such as 3x2: 2 to {LARGEST} tokens, a width of 1 to {LARGEST}.",
        )
    return int(found[1]), int(found[2])


def caption(step: WorkedStep) -> str:
    """What stands above a step's table."""
    head, dot, base = step.name.rpartition(".")
    return head + dot + CAPTIONS.get(base, base)


def _is_repeated(worked: Worked, step: WorkedStep) -> bool:
    """Whether a table only repeats the one before it: inputs used as they are, scores that are not scaled."""
    example = worked.example
    if step.base in ("query", "key", "value"):
        return example.w_q is None and example.weights is None
    return step.base == "scaled" and example.scoring != "scaled-dot"


def _plain(random: Random, tokens: int, width: int) -> dict[str, Any]:
    weights = {name: _matrix(random, width, width, (0, 1, 1, 2, -1)) for name in ("w_q", "w_k", "w_v")}
    return {"x": _matrix(random, tokens, width, (0, 1, 1, 2))} | weights


def _masked(random: Random, tokens: int, width: int) -> dict[str, Any]:
    return _plain(random, tokens, width) | {"causal": True}


def _cosine(random: Random, tokens: int, width: int) -> dict[str, Any]:
    return {"x": _matrix(random, tokens, width, (0, 1, 2, 3)), "scoring": "cosine"}


def _two_heads(random: Random, tokens: int, width: int) -> dict[str, Any]:
    if width % 2:
        raise UsageError(f"A width of {width} cannot be split into two heads.", hint=f"For example --size {tokens}x2.")
    return _plain(random, tokens, width) | {"heads": 2}


def _contexts(random: Random, tokens: int, width: int) -> dict[str, Any]:
    """Weights in tenths that sum to 1, as a lesson would give them."""
    weights = [[tenth / 10 for tenth in _tenths(random, tokens)] for _ in range(tokens)]
    return {"weights": weights, "v": _matrix(random, tokens, width, (0, 1, 2, 3))}


def _tenths(random: Random, parts: int) -> list[int]:
    cuts = sorted(random.sample(range(1, 10), parts - 1))
    return [right - left for left, right in zip([0, *cuts], [*cuts, 10], strict=True)]


def _matrix(random: Random, rows: int, columns: int, choices: tuple[int, ...]) -> list[list[int]]:
    """Whole numbers without a row of zeros, which would teach nothing."""
    matrix = [[random.choice(choices) for _ in range(columns)] for _ in range(rows)]
    for row in matrix:
        if not any(row):
            row[random.randrange(columns)] = 1
    return matrix


TOPICS: dict[str, Callable[[Random, int, int], dict[str, Any]]] = {
    "plain": _plain, "masked": _masked, "cosine": _cosine, "two-heads": _two_heads, "contexts": _contexts,
}  # fmt: skip
"""What can be practised."""
