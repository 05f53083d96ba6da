"""Readers of hand-written notes (Markdown, LaTeX, CSV, TOML, notebooks, Excel): tables with captions that name a step.

May import: formula, config, errors, and the examples and step aliases of worked. Imported by: views, commands.
In: a file of notes. Out: Notes, whose parts are examples with hand-written tables.
"""

from peasy.worked.tables.notes import CHECKED_SUFFIXES, Notes, as_written_names, read_notes, read_text

__all__ = ["CHECKED_SUFFIXES", "Notes", "as_written_names", "read_notes", "read_text"]
