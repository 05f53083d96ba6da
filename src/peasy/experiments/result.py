"""Result of an experiment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from peasy.commands.result import Result
from peasy.views.document import Document, DocumentPart
from peasy.views.experiment import experiment_document

OnStatus = Callable[[str], None]
"""Status callback: a short description of the current step."""


def ignore_status(_: str) -> None:
    """Ignore status messages."""


@dataclass(frozen=True, repr=False)
class ExperimentResult(Result):
    """Question, numbers, verdict, caveat. `holds`: whether the claim is confirmed. `numbers` is plain data."""

    experiment: str
    question: str
    parts: tuple[DocumentPart, ...]
    verdict: str
    holds: bool
    caveat: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def document(self) -> Document:
        """Return question, tables and figures, verdict, caveat."""
        return experiment_document(
            self.experiment, self.question, self.parts, self.verdict, self.holds, self.caveat, self.seed
        )

    def data(self) -> dict[str, Any]:
        """Return the result as plain data, without tables and figures."""
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
        return f"ExperimentResult({self.experiment}: {self.verdict})"
