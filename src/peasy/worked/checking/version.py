"""The readings of a table: worked out exactly, worked out from what was written before, and as it was written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from peasy.errors import PeasyError
from peasy.worked.checking.route import Route
from peasy.worked.number import show

MOST_VERSIONS = 24
"""How many readings of one table are followed; authors write each table once or twice, never this often."""


@dataclass(frozen=True)
class Version:
    """One reading of a table. `clean` if no mistake of the author's went into it; `written` where it is written."""

    values: np.ndarray
    clean: bool
    route: Route | None = None
    parents: tuple["Version", ...] = ()
    written: str = ""

    @property
    def mistaken(self) -> str:
        """The table whose mistake went into this reading."""
        if self.clean or self.written:
            return self.written
        return next(parent.mistaken for parent in self.parents if not parent.clean)

    def says(self, row: int, column: int) -> str:
        """The sum behind one cell: `1·1 + 1·1 = 2`."""
        number = show(self.values[row, column])
        said = self.route.say(row, column, [parent.values for parent in self.parents]) if self.route else ""
        return f"{said} = {number}" if said else f"It is given as {number}"


def derive(ways: Sequence[Route], versions: Mapping[str, list[Version]]) -> list[Version]:
    """Every reading of a table that follows from the readings of the tables before it; the exact one first."""
    found: list[Version] = []
    for route in ways:
        for parents in product(*(versions.get(parent, []) for parent in route.parents)):
            try:
                values = route.compute(*(parent.values for parent in parents))
            except PeasyError:
                if not found:
                    raise
                continue  # only a reading with a mistake in it cannot go on; the exact one did
            found.append(Version(values, all(parent.clean for parent in parents), route, parents))
    return trimmed(found)


def readings(name: str, written: np.ndarray, wrong: np.ndarray, known: Sequence[Version]) -> list[Version]:
    """A written table as what later tables may come from: mended, and with its mistakes where it has some.

    What is not written is filled in from what is known.
    """
    exact = best(known)
    right = np.full_like(written, np.nan) if exact is None else exact.values
    if right.shape != written.shape or np.isnan(written).all():
        return []
    filled = np.where(np.isnan(written), right, written)
    mended = Version(np.where(wrong, right, filled), clean=True)
    return [mended, Version(filled, clean=False, written=name)] if wrong.any() else [mended]


def best(versions: Sequence[Version]) -> Version | None:
    """The reading that says what is right."""
    return next((version for version in versions if version.clean), None)


def knowing(versions: Sequence[Version], row: int, column: int) -> list[Version]:
    """The readings that know this cell."""
    return [version for version in versions if not np.isnan(version.values[row, column])]


def trimmed(versions: Sequence[Version]) -> list[Version]:
    """Each reading once, the clean ones first (the exact one stays the very first)."""
    kept: list[Version] = []
    for version in sorted(versions, key=lambda each: not each.clean):
        if not any(np.array_equal(version.values, other.values, equal_nan=True) for other in kept):
            kept.append(version)
    return kept[:MOST_VERSIONS]
