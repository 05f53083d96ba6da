"""Readings of a table: computed exactly, computed from earlier written tables, and as written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from peasy.errors import PeasyError
from peasy.worked.checking.derivations import Derivation
from peasy.worked.number import format_number

MAX_READINGS = 24
"""Maximum number of readings kept per table."""


@dataclass(frozen=True)
class TableReading:
    """One reading of a table. `clean` if it contains no mistake; `written` is the table it was written in."""

    values: np.ndarray
    clean: bool
    derivation: Derivation | None = None
    parents: tuple["TableReading", ...] = ()
    written: str = ""

    @property
    def mistaken_table(self) -> str:
        """Caption of the table whose mistake this reading contains."""
        if self.clean or self.written:
            return self.written
        return next(parent.mistaken_table for parent in self.parents if not parent.clean)

    def summary(self, row: int, column: int) -> str:
        """Return the arithmetic of one cell: `1·1 + 1·1 = 2`."""
        number = format_number(self.values[row, column])
        arithmetic = (
            self.derivation.explain(row, column, [parent.values for parent in self.parents]) if self.derivation else ""
        )
        return f"{arithmetic} = {number}" if arithmetic else f"It is given as {number}"


def derive_readings(
    derivations: Sequence[Derivation], readings: Mapping[str, list[TableReading]]
) -> list[TableReading]:
    """Return every reading of a table that follows from readings of earlier tables; the exact one first."""
    derived: list[TableReading] = []
    for route in derivations:
        for parents in product(*(readings.get(parent, []) for parent in route.parents)):
            try:
                values = route.compute(*(parent.values for parent in parents))
            except PeasyError:
                if not derived:
                    raise
                continue  # a reading with a mistake may not fit; the exact one did
            derived.append(TableReading(values, all(parent.clean for parent in parents), route, parents))
    return unique_readings(derived)


def written_readings(
    name: str, written: np.ndarray, wrong: np.ndarray, known: Sequence[TableReading]
) -> list[TableReading]:
    """Return the readings of a written table for later tables: corrected, and with its mistakes if it has any.

    Cells that are not written are filled in from known readings.
    """
    exact = exact_reading(known)
    right = np.full_like(written, np.nan) if exact is None else exact.values
    if right.shape != written.shape or np.isnan(written).all():
        return []
    filled = np.where(np.isnan(written), right, written)
    corrected = TableReading(np.where(wrong, right, filled), clean=True)
    return [corrected, TableReading(filled, clean=False, written=name)] if wrong.any() else [corrected]


def exact_reading(readings: Sequence[TableReading]) -> TableReading | None:
    """Return the first clean reading."""
    return next((version for version in readings if version.clean), None)


def readings_with_cell(readings: Sequence[TableReading], row: int, column: int) -> list[TableReading]:
    """Return the readings in which this cell is known."""
    return [version for version in readings if not np.isnan(version.values[row, column])]


def unique_readings(readings: Sequence[TableReading]) -> list[TableReading]:
    """Remove duplicate readings; clean ones first (the exact one stays at the front)."""
    distinct: list[TableReading] = []
    for reading in sorted(readings, key=lambda reading: not reading.clean):
        if not any(np.array_equal(reading.values, other.values, equal_nan=True) for other in distinct):
            distinct.append(reading)
    return distinct[:MAX_READINGS]
