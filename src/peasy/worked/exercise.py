"""Seeded worksheets: small whole numbers for calculating attention, or any network of the library, by hand."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np

from peasy.errors import InvalidInput, UsageError, did_you_mean
from peasy.parameters import Record
from peasy.worked.example import MatrixRows, library_files, load_example, read_example
from peasy.worked.operations import Unchanged
from peasy.worked.solver import WorkedExample, WorkedStep, solve
from peasy.worked.steps import Scale

_WORDS = ("tea", "cats", "rain", "we", "sing", "blue", "run", "home", "stars", "bread", "you", "snow")
_MAX_SIZE = 8
"""Maximum number of rows or columns of a worksheet."""

_MAX_DRAWS = 50
"""Maximum number of draws for a network that has finite results."""

_Topic = dict[str, object]
"""Numbers and settings of an example, without tokens and title."""


class Exercise(Record):
    """Exercise to solve by hand: `given` are the given steps, `solution` the steps to calculate."""

    topic: str
    seed: int
    worked: WorkedExample
    given: tuple[WorkedStep, ...]
    solution: tuple[WorkedStep, ...]

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings that differ from the defaults."""
        return self.worked.example.settings


def make_exercise(size: str = "3x2", seed: int = 5, topic: str = "plain") -> Exercise:
    """Make the worksheet for a size (tokens x width), seed and topic; a network of the library has its own size.

    >>> [step.name for step in make_exercise(topic="contexts").solution]
    ['context']
    """
    networks = library_files("transformer")
    if topic not in TOPICS and topic not in networks:
        known = (*TOPICS, *networks)
        hint = did_you_mean(topic, known) or f"Topics: {', '.join(known)}."
        raise UsageError(f'There is no topic "{topic}".', hint=hint)
    worked = _draw_network(topic, seed) if topic in networks else _draw_attention(size, seed, topic)
    steps = [step for step in worked.steps if not _is_repeated(worked, step)]
    given = tuple(step for step in steps if worked.graph.route(step.name, worked.values) is None)
    return Exercise(topic, seed, worked, given, tuple(step for step in steps if step not in given))


def _draw_attention(size: str, seed: int, topic: str) -> WorkedExample:
    """Draw the numbers of a topic of attention."""
    tokens, width = read_size(size)
    random = Random(f"{topic} {tokens}x{width} {seed}")
    title, words = f"Attention by hand: {topic}, {tokens}x{width}, seed {seed}", random.sample(_WORDS, tokens)
    return solve(read_example({"title": title, "tokens": words} | TOPICS[topic](random, tokens, width)))


def _draw_network(topic: str, seed: int) -> WorkedExample:
    """Draw other numbers for a network; those that give no finite results are drawn again."""
    example = load_example(topic)
    random = Random(f"{topic} {seed}")
    for _ in range(_MAX_DRAWS):
        given = {name: _redraw(random, name, rows) for name, rows in example.given_nodes.items()}
        try:
            with np.errstate(all="ignore"):
                worked = solve(replace(example, title=f"{example.title} by hand, seed {seed}", given=given))
        except InvalidInput:  # such as a norm of equal numbers
            continue
        if all(np.isfinite(step.values).all() or step.base == "masked" for step in worked.steps):
            return worked
    return solve(example)


def _redraw(random: Random, name: str, rows: MatrixRows) -> MatrixRows:
    """Return other numbers for a matrix: whole ones for whole ones, else its own shuffled within rows."""
    numbers = [number for row in rows for number in row]
    whole = all(number == int(number) for number in numbers) and not all(math.isclose(sum(row), 1) for row in rows)
    if not whole or min(numbers) == max(numbers) or name.rpartition(".")[2].startswith("old_"):
        return tuple(tuple(random.sample(row, len(row))) for row in rows)
    low, high = int(min(numbers)), int(max(numbers))
    return tuple(tuple(float(random.randint(low, high)) for _ in row) for row in rows)


def read_size(size: str) -> tuple[int, int]:
    """Parse a size such as `3x2` into tokens and width.

    >>> read_size("3x2")
    (3, 2)
    """
    match = re.fullmatch(r"\s*(\d{1,3})\s*[xX×]\s*(\d{1,3})\s*", size)
    if not match or not (2 <= int(match[1]) <= _MAX_SIZE and 1 <= int(match[2]) <= _MAX_SIZE):
        hint = f"Give tokens x width, such as 3x2: 2 to {_MAX_SIZE} tokens and a width of 1 to {_MAX_SIZE}."
        raise UsageError(f'"{size}" is not a valid worksheet size.', hint=hint)
    return int(match[1]), int(match[2])


def _is_repeated(worked: WorkedExample, step: WorkedStep) -> bool:
    """True if a table only repeats the previous one: unprojected inputs, unscaled scores."""
    route = None if worked.example.steps else worked.graph.route(step.name, worked.values)
    return route is not None and (
        isinstance(route.step, Unchanged) or (isinstance(route.step, Scale) and route.step.scoring.name != "scaled-dot")
    )


def _plain_topic(random: Random, tokens: int, width: int) -> _Topic:
    weights = {name: _random_matrix(random, width, width, (0, 1, 1, 2, -1)) for name in ("w_q", "w_k", "w_v")}
    return {"x": _random_matrix(random, tokens, width, (0, 1, 1, 2)), **weights}


def _two_heads_topic(random: Random, tokens: int, width: int) -> _Topic:
    if width % 2:
        raise UsageError(f"A width of {width} cannot be split into two heads.", hint=f"For example --size {tokens}x2.")
    return _plain_topic(random, tokens, width) | {"heads": 2}


def _contexts_topic(random: Random, tokens: int, width: int) -> _Topic:
    """Given weights in tenths that sum to 1."""
    weights = []
    for _ in range(tokens):
        cuts = sorted(random.sample(range(1, 10), tokens - 1))
        weights.append([(right - left) / 10 for left, right in zip([0, *cuts], [*cuts, 10], strict=True)])
    return {"weights": weights, "v": _random_matrix(random, tokens, width, (0, 1, 2, 3))}


def _random_matrix(random: Random, rows: int, columns: int, choices: tuple[int, ...]) -> list[list[int]]:
    """Random whole numbers; no row is all zeros."""
    matrix = [[random.choice(choices) for _ in range(columns)] for _ in range(rows)]
    for row in matrix:
        if not any(row):
            row[random.randrange(columns)] = 1
    return matrix


TOPICS: dict[str, Callable[[Random, int, int], _Topic]] = {
    "plain": _plain_topic,
    "masked": lambda *drawn: _plain_topic(*drawn) | {"causal": True},
    "cosine": lambda rng, rows, width: {"x": _random_matrix(rng, rows, width, (0, 1, 2, 3)), "scoring": "cosine"},
    "two-heads": _two_heads_topic,
    "contexts": _contexts_topic,
}
"""Topics that can be practised, with the function that draws their numbers."""
