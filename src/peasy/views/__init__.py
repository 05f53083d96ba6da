"""WHAT IS SHOWN, as plain data: documents made from results.

May import: plain records of the rooms below; no torch, no drawing. Imported by: render, workbench, the doors.
In: results of any room. Out: a Document.
"""

from peasy.views.document import (
    Arithmetic,
    Block,
    Cell,
    Curves,
    Diagram,
    Document,
    Formula,
    Heading,
    Matrix,
    Paragraph,
    Part,
    Plane,
    Table,
)

__all__ = [
    "Arithmetic", "Block", "Cell", "Curves", "Diagram", "Document", "Formula", "Heading", "Matrix", "Paragraph", "Part",
    "Plane", "Table",
]  # fmt: skip
