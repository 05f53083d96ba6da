"""Result records of an examination: differences, findings, diagnosis. No torch."""

from dataclasses import dataclass

MISTAKE, CAUTION = "mistake", "caution"


@dataclass(frozen=True)
class FirstDifference:
    """First value that differs: its index in the result, the actual and the expected value."""

    index: tuple[int, ...]
    actual: float
    expected: float

    def summary(self) -> str:
        """Return the comparison as text.

        >>> FirstDifference((0, 2), 1.5, 0.25).summary()
        'result[0, 2] is 1.5000 where the formula gives 0.2500'
        """
        index = ", ".join(map(str, self.index))
        return f"result[{index}] is {self.actual:.4f} where the formula gives {self.expected:.4f}"


@dataclass(frozen=True)
class ImplementationFinding:
    """One mistake or caution: the formula, the likely code, and the fix."""

    name: str
    level: str
    description: str
    formula: str
    likely_code: str
    fix: str
    line: int | None = None
    code: str = ""
    difference: FirstDifference | None = None


@dataclass(frozen=True)
class Diagnosis:
    """Result of an examination. `explained` False: the outputs are wrong and no known mistake explains them."""

    name: str
    kind: str
    call: str
    conventions: tuple[str, ...] = ()
    findings: tuple[ImplementationFinding, ...] = ()
    checks: tuple[str, ...] = ()
    explained: bool = True
    difference: FirstDifference | None = None
    notes: tuple[str, ...] = ()

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Names of the mistakes."""
        return tuple(finding.name for finding in self.findings if finding.level == MISTAKE)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Names of the cautions: correct here, but risky elsewhere."""
        return tuple(finding.name for finding in self.findings if finding.level == CAUTION)

    @property
    def passed(self) -> bool:
        """True if it computes attention correctly."""
        return self.explained and not self.mistakes
