"""`exercise`: a worksheet with small numbers, and its answer key."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peasy.commands.result import Result
from peasy.views.document import Document
from peasy.views.worked import answer_key_document, worksheet_document
from peasy.worked.exercise import Exercise, make_exercise, worksheet_caption


@dataclass(frozen=True)
class Worksheet(Result):
    """A worksheet; `key()` is the answer key, `save_key(path)` writes it to a file."""

    exercise: Exercise
    decimals: int = 2
    with_answers: bool = False

    def key(self) -> "Worksheet":
        """Return the worksheet with the answers filled in."""
        return replace(self, with_answers=True)

    def save_key(self, path: str | Path) -> Path:
        """Write the answer key; the suffix selects the format."""
        return self.key().save(path)

    def document(self) -> Document:
        """The worksheet or the answer key."""
        return (answer_key_document if self.with_answers else worksheet_document)(self.exercise, self.decimals)

    def data(self) -> dict[str, Any]:
        """Given tables, names of the tables to compute, and their answers."""
        exercise = self.exercise
        return {
            "topic": exercise.topic,
            "seed": exercise.seed,
            "title": exercise.worked.example.title,
            "tokens": list(exercise.worked.tokens),
            "settings": list(exercise.settings),
            "given": {worksheet_caption(step): step.values.tolist() for step in exercise.given},
            "to_compute": [worksheet_caption(step) for step in exercise.solution],
            "answers": {worksheet_caption(step): _masked_as_none(step.values.tolist()) for step in exercise.solution},
        }


def exercise(size: str = "3x2", seed: int = 5, topic: str = "plain", *, decimals: int = 2) -> Worksheet:
    """Make a worksheet of `size` tokens x width on a topic, reproducible by seed.

    Topics: plain, masked, cosine, two-heads, contexts.

    >>> exercise("3x2", seed=5).data()["to_compute"]
    ['Q', 'K', 'V', 'scores', 'scaled', 'weights', 'context']
    """
    return Worksheet(make_exercise(size, seed, topic), decimals)


def _masked_as_none(rows: list[list[float]]) -> list[list[float | None]]:
    return [[None if value == float("-inf") else value for value in row] for row in rows]
