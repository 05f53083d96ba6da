"""What a proof found, as plain records: which equality, how far apart, and where the two roads part. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HOLDS, FAILS, ABSENT = "holds", "fails", "not applicable"


@dataclass(frozen=True)
class Where:
    """The first place where two roads differ. `head` is None where a step has no heads; `position` is a token's."""

    stack: str
    layer: int | None
    part: str
    step: str
    head: int | None
    position: int

    def says(self) -> str:
        """The place in words.

        >>> Where("decoder", 1, "attention", "context", 2, 5).says()
        'decoder, layer 1, attention, head 2, position 5 (context)'
        """
        named = [self.stack]
        named += [] if self.layer is None else [f"layer {self.layer}"]
        named += [self.part] if self.part else []
        named += [] if self.head is None else [f"head {self.head}"]
        return f"{', '.join([*named, f'position {self.position}'])} ({self.step})"


@dataclass(frozen=True)
class Equality:
    """One equality: what both roads are, how far apart they came out, and what that means.

    `distance` is the largest difference over the largest number of the first road (or 1, where that is smaller).
    `measures` are further figures by name. `why` says why an equality does not apply, or what failed.
    """

    name: str
    says: str
    verdict: str
    distance: float | None = None
    tolerance: float | None = None
    why: str = ""
    where: Where | None = None
    text: int | None = None
    measures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """All equalities of one model on some texts."""

    model: str
    kind: str
    numbers: str
    texts: int
    tokens: int
    equalities: tuple[Equality, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no equality failed."""
        return not any(each.verdict == FAILS for each in self.equalities)

    def __getitem__(self, name: str) -> Equality:
        """An equality by its name."""
        return next(each for each in self.equalities if each.name == name)
