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
EQUAL, WRONG, NOT_COMPARED = "equal", "wrong", "not compared"


@dataclass(frozen=True)
class ImplementationFinding:
    """One mistake or caution: the formula, typical code with it, the fix, the line; `file` if it is another file."""

    name: str
    level: str
    description: str
    formula: str
    likely_code: str
    fix: str
    line: int | None = None
    code: str = ""
    file: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """Result of an examination: equal to the formula, wrong, or not compared.

    `unknown` are the reasons why it was not compared. `num_compared` calls were compared with the formula;
    `max_difference` is the largest difference, relative to the largest number (at least 1).
    """

    name: str
    kind: str
    call: str
    verdict: str = EQUAL
    conventions: tuple[str, ...] = ()
    findings: tuple[ImplementationFinding, ...] = ()
    checks: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    num_compared: int = 0
    max_difference: float = 0.0
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
    def passed(self) -> bool | None:
        """True if it equals the formula, False if it is wrong, None if it was not compared."""
        return {EQUAL: True, WRONG: False}.get(self.verdict)
