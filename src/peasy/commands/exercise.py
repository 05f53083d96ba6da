"""`exercise`: a worksheet with small numbers, and its answer key."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from peasy.commands.result import JsonDict, Result
from peasy.views.document import Document
from peasy.views.worked import worksheet_document
from peasy.worked.checking.step_aliases import table_caption
from peasy.worked.exercise import Exercise, make_exercise


class Worksheet(Result, repr=True):
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
        return worksheet_document(self.exercise, self.decimals, self.with_answers)

    def data(self) -> JsonDict:
        """Given tables, names of the tables to compute, and their answers."""
        exercise = self.exercise
        answers = {table_caption(step.name): step.rows_or_masked for step in exercise.solution}
        return {
            "topic": exercise.topic,
            "seed": exercise.seed,
            "title": exercise.worked.example.title,
            "tokens": list(exercise.worked.tokens),
            "settings": list(exercise.settings),
            "given": {table_caption(step.name): step.values.tolist() for step in exercise.given},
            "to_compute": list(answers),
            "answers": answers,
        }


def exercise(
    size: str = "3x2",
    seed: int = 5,
    topic: str = "plain",
    *,
    decimals: Annotated[int, Ge(0), Le(15)] = 2,
    answer_key: bool = False,
) -> Worksheet:
    """Make a worksheet with small numbers, reproducible by seed; its `key()` has the answers.

    >>> exercise("3x2", seed=5).data()["to_compute"]
    ['Q', 'K', 'V', 'scores', 'scaled', 'weights', 'context']

    Args:
        size: Number of tokens x d_model, for topics of attention.
        seed: Seed of the numbers.
        topic: plain, masked, cosine, two-heads or contexts; or a network of peasy examples, such as layer-norm.
        decimals: Number of decimals of the answers.
        answer_key: Show the answer key instead of the worksheet.
    """
    return Worksheet(make_exercise(size, seed, topic), decimals, answer_key)
