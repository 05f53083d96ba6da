"""MARKING A SHEET: every table that somebody worked out by hand, done again and judged cell by cell.

May import: formula, errors, and the examples of worked. Imported by: worked.tables, views, workbench.
In: an example with its author's written tables. Out: a verdict for each cell, findings for rows, and why.
"""

from peasy.worked.checking.mark import Checked, CheckedCell, CheckedTable, check

__all__ = ["Checked", "CheckedCell", "CheckedTable", "check"]
