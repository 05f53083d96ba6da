"""Readings of a table: computed exactly, computed from earlier written tables, and as written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from peasy.errors import PeasyError
from peasy.worked.checking.route import Route
from peasy.worked.number import show

MOST_VERSIONS = 24
"""Maximum number of readings kept per table."""


@dataclass(frozen=True)
class Version:
    """One reading of a table. `clean` if it contains no mistake; `written` is the table it was written in."""

    values: np.ndarray
    clean: bool
    route: Route | None = None
    parents: tuple["Version", ...] = ()
    written: str = ""

    @property
    def mistaken(self) -> str:
        """Caption of the table whose mistake this reading contains."""
        if self.clean or self.written:
            return self.written
        return next(parent.mistaken for parent in self.parents if not parent.clean)

    def says(self, row: int, column: int) -> str:
        """Return the arithmetic of one cell: `1·1 + 1·1 = 2`."""
        number = show(self.values[row, column])
        arithmetic = self.route.say(row, column, [parent.values for parent in self.parents]) if self.route else ""
        return f"{arithmetic} = {number}" if arithmetic else f"It is given as {number}"


def derive(ways: Sequence[Route], versions: Mapping[str, list[Version]]) -> list[Version]:
    """Return every reading of a table that follows from readings of earlier tables; the exact one first."""
    derived: list[Version] = []
    for route in ways:
        for parents in product(*(versions.get(parent, []) for parent in route.parents)):
            try:
                values = route.compute(*(parent.values for parent in parents))
            except PeasyError:
                if not derived:
                    raise
                continue  # a reading with a mistake may not fit; the exact one did
            derived.append(Version(values, all(parent.clean for parent in parents), route, parents))
    return trimmed(derived)


def readings(name: str, written: np.ndarray, wrong: np.ndarray, known: Sequence[Version]) -> list[Version]:
    """Return the readings of a written table for later tables: corrected, and with its mistakes if it has any.

    Cells that are not written are filled in from known readings.
    """
    exact = best(known)
    right = np.full_like(written, np.nan) if exact is None else exact.values
    if right.shape != written.shape or np.isnan(written).all():
        return []
    filled = np.where(np.isnan(written), right, written)
    corrected = Version(np.where(wrong, right, filled), clean=True)
    return [corrected, Version(filled, clean=False, written=name)] if wrong.any() else [corrected]


def best(versions: Sequence[Version]) -> Version | None:
    """Return the first clean reading."""
    return next((version for version in versions if version.clean), None)


def knowing(versions: Sequence[Version], row: int, column: int) -> list[Version]:
    """Return the readings in which this cell is known."""
    return [version for version in versions if not np.isnan(version.values[row, column])]


def trimmed(versions: Sequence[Version]) -> list[Version]:
    """Remove duplicate readings; clean ones first (the exact one stays at the front)."""
    distinct: list[Version] = []
    for reading in sorted(versions, key=lambda reading: not reading.clean):
        if not any(np.array_equal(reading.values, other.values, equal_nan=True) for other in distinct):
            distinct.append(reading)
    return distinct[:MOST_VERSIONS]
