"""What the doctor found, as plain records. No torch."""

from dataclasses import dataclass

MISTAKE, CAUTION = "mistake", "caution"


@dataclass(frozen=True)
class Difference:
    """The first number that differs: where it stands in the result, what came out, what is right."""

    index: tuple[int, ...]
    found: float
    right: float

    def says(self) -> str:
        """The numbers side by side.

        >>> Difference((0, 2), 1.5, 0.25).says()
        'result[0, 2] is 1.5000 where the formula gives 0.2500'
        """
        return f"result[{', '.join(map(str, self.index))}] is {self.found:.4f} where the formula gives {self.right:.4f}"


@dataclass(frozen=True)
class Finding:
    """One mistake or caution: what the formula says, what the code most likely says, and what to write instead."""

    name: str
    level: str
    says: str
    formula: str
    likely: str
    fix: str
    line: int | None = None
    code: str = ""
    difference: Difference | None = None


@dataclass(frozen=True)
class Diagnosis:
    """All that is known of a function or module. `explained` False: something is wrong, and nobody knows what."""

    name: str
    kind: str
    call: str
    conventions: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    checked: tuple[str, ...] = ()
    explained: bool = True
    difference: Difference | None = None
    notes: tuple[str, ...] = ()

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The names of the mistakes."""
        return tuple(each.name for each in self.findings if each.level == MISTAKE)

    @property
    def cautions(self) -> tuple[str, ...]:
        """The names of what is no mistake, but may become one."""
        return tuple(each.name for each in self.findings if each.level == CAUTION)

    @property
    def passed(self) -> bool:
        """Whether it computes attention."""
        return self.explained and not self.mistakes
