"""Readers of hand-written notes in Markdown, LaTeX, CSV or TOML: tables with captions that name their step.

May import: formula, config, errors, and the examples and step aliases of worked. Imported by: views, commands.
In: a file of notes. Out: Notes, whose parts are examples with hand-written tables.
"""

from peasy.worked.tables.notes import Notes, as_written_names, read_notes, read_text

__all__ = ["Notes", "as_written_names", "read_notes", "read_text"]
