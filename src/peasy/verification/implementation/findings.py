"""Report of an examination in progress: conventions, findings, checks and notes so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peasy.verification.implementation.call_binding import CallBinding
from peasy.verification.implementation.diagnosis import Diagnosis, FirstDifference, ImplementationFinding
from peasy.verification.implementation.mistake import Mistake
from peasy.verification.implementation.target import TargetDescription


@dataclass
class Report:
    """Mutable state of an examination."""

    description: TargetDescription
    binding: CallBinding
    conventions: list[str] = field(default_factory=list)
    findings: list[ImplementationFinding] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    explained: bool = True
    difference: FirstDifference | None = None

    def add_mistakes(self, mistakes: Sequence[Mistake], difference: FirstDifference | None = None) -> None:
        """Add mistakes as findings, each once."""
        for mistake in mistakes:
            if mistake.name not in {finding.name for finding in self.findings}:
                self.findings.append(mistake.to_finding(self.description.source, difference))

    def to_diagnosis(self, name: str, kind: str) -> Diagnosis:
        """Return the final diagnosis."""
        return Diagnosis(
            name, kind, self.binding.summary(), tuple(self.conventions), tuple(self.findings), tuple(self.checks),
            self.explained, self.difference, tuple(self.notes),
        )  # fmt: skip
