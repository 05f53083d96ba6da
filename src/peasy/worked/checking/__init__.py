"""Checker of hand-written attention tables: recomputes every table and gives a verdict for each cell.

May import: formula, errors, and the examples of worked. Imported by: worked.tables, views, commands.
In: an example with hand-written tables. Out: a verdict and a reason for each cell, findings for rows.
"""

from peasy.worked.checking.checker import CheckedCell, CheckedExample, CheckedTable, UnreadTable, check
from peasy.worked.checking.table import RowFinding

__all__ = ["CheckedCell", "CheckedExample", "CheckedTable", "RowFinding", "UnreadTable", "check"]
