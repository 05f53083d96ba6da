"""TABLES ON PAPER: notes in Markdown, LaTeX, CSV or TOML, read as tables that say which step they are.

May import: formula, config, errors, and the examples and names of worked. Imported by: views, workbench.
In: a file of somebody's notes. Out: Notes, whose parts are examples with their written tables.
"""

from peasy.worked.tables.notes import Notes, as_written_names, read_notes, read_text

__all__ = ["Notes", "as_written_names", "read_notes", "read_text"]
