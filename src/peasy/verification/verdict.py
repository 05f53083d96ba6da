"""Result records of a proof: equalities, distances, and where two execution paths diverge. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HOLDS, FAILS, NOT_APPLICABLE = "holds", "fails", "not applicable"


@dataclass(frozen=True)
class DivergencePoint:
    """First point where two paths diverge. `head` is None if the step has no heads; `position` is the token's."""

    stack: str
    layer: int | None
    part: str
    step: str
    head: int | None
    position: int

    def summary(self) -> str:
        """Return the point as text.

        >>> DivergencePoint("decoder", 1, "attention", "context", 2, 5).summary()
        'decoder, layer 1, attention, head 2, position 5 (context)'
        """
        names = [self.stack]
        names += [] if self.layer is None else [f"layer {self.layer}"]
        names += [self.part] if self.part else []
        names += [] if self.head is None else [f"head {self.head}"]
        return f"{', '.join([*names, f'position {self.position}'])} ({self.step})"


@dataclass(frozen=True)
class Equality:
    """One equality between two execution paths: its distance, tolerance and verdict.

    `distance` is the largest difference over the largest reference value (at least 1).
    `metrics` are further numbers by name. `reason` is given if an equality is not applicable or failed.
    """

    name: str
    description: str
    verdict: str
    distance: float | None = None
    tolerance: float | None = None
    reason: str = ""
    divergence: DivergencePoint | None = None
    sequence: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """All equalities of one model on some sequences."""

    model: str
    model_kind: str
    dtype: str
    num_sequences: int
    num_tokens: int
    equalities: tuple[Equality, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True if no equality failed."""
        return not any(equality.verdict == FAILS for equality in self.equalities)

    def __getitem__(self, name: str) -> Equality:
        """Return an equality by name."""
        return next(equality for equality in self.equalities if equality.name == name)


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
