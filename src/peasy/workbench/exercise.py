"""`exercise`: a worksheet with small numbers, and its answer key."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peasy.views.document import Document
from peasy.views.exercise import key_document, sheet_document
from peasy.workbench.result import Result
from peasy.worked.exercise import Exercise, caption, make_exercise


@dataclass(frozen=True)
class Worksheet(Result):
    """A worksheet. `key()` is the same with the answers; `save_key(path)` writes that to a file."""

    exercise: Exercise
    decimals: int = 2
    answered: bool = False

    def key(self) -> "Worksheet":
        """The answer key."""
        return replace(self, answered=True)

    def save_key(self, path: str | Path) -> Path:
        """Write the answer key; the suffix picks the format."""
        return self.key().save(path)

    def document(self) -> Document:
        """The sheet, or the key."""
        return (key_document if self.answered else sheet_document)(self.exercise, self.decimals)

    def data(self) -> dict[str, Any]:
        """What is given, what is asked, and the answers."""
        exercise = self.exercise
        return {
            "topic": exercise.topic,
            "seed": exercise.seed,
            "title": exercise.worked.example.title,
            "tokens": list(exercise.worked.tokens),
            "settings": list(exercise.settings),
            "given": {caption(step): step.values.tolist() for step in exercise.given},
            "asked": [caption(step) for step in exercise.asked],
            "answers": {caption(step): _hidden_as_none(step.values.tolist()) for step in exercise.asked},
        }


def exercise(size: str = "3x2", seed: int = 5, topic: str = "plain", *, decimals: int = 2) -> Worksheet:
    """A worksheet: tokens x width, a seed that makes it again, and a topic.

    Topics: plain, masked, cosine, two-heads, contexts.

    >>> exercise("3x2", seed=5).data()["asked"]
    ['Q', 'K', 'V', 'scores', 'scaled', 'weights', 'context']
    """
    return Worksheet(make_exercise(size, seed, topic), decimals)


def _hidden_as_none(rows: list[list[float]]) -> list[list[float | None]]:
    return [[None if each == float("-inf") else each for each in row] for row in rows]
