"""What an experiment found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from peasy.views.document import Document, Part
from peasy.views.experiment import finding_document
from peasy.workbench.result import Result

Hear = Callable[[str], None]
"""Told in a few words what is being done."""


def unheard(_: str) -> None:
    """For when nobody listens."""


@dataclass(frozen=True, repr=False)
class Finding(Result):
    """Question, numbers, verdict, caveat. `holds`: did the documents' claim come out? `numbers` is plain data."""

    experiment: str
    question: str
    parts: tuple[Part, ...]
    verdict: str
    holds: bool
    caveat: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def document(self) -> Document:
        """Question, tables and pictures, verdict, caveat."""
        return finding_document(
            self.experiment, self.question, self.parts, self.verdict, self.holds, self.caveat, self.seed
        )

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "experiment": self.experiment,
            "question": self.question,
            "holds": self.holds,
            "verdict": self.verdict,
            "caveat": self.caveat,
            "seed": self.seed,
            "numbers": dict(self.numbers),
        }

    def __repr__(self) -> str:
        return f"Finding({self.experiment}: {self.verdict})"
