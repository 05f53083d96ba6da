"""Report of an examination in progress: conventions, findings, checks and notes so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peasy.proof.doctor.diagnosis import Diagnosis, Difference, Finding
from peasy.proof.doctor.mistake import Mistake
from peasy.proof.doctor.subject import Description
from peasy.proof.doctor.way import Way


@dataclass
class Chart:
    """Mutable state of an examination."""

    description: Description
    way: Way
    conventions: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    explained: bool = True
    difference: Difference | None = None

    def blame(self, mistakes: Sequence[Mistake], difference: Difference | None = None) -> None:
        """Add mistakes as findings, each once."""
        for mistake in mistakes:
            if mistake.name not in {finding.name for finding in self.findings}:
                self.findings.append(mistake.finding(self.description.source, difference))

    def close(self, name: str, kind: str) -> Diagnosis:
        """Return the final diagnosis."""
        return Diagnosis(
            name, kind, self.way.says(), tuple(self.conventions), tuple(self.findings), tuple(self.checked),
            self.explained, self.difference, tuple(self.notes),
        )  # fmt: skip
