"""WHAT IS SHOWN, as plain data: documents made from results.

May import: plain records of the rooms below; no torch, no drawing. Imported by: render, workbench, the doors.
In: results of any room. Out: a Document.
"""

from peasy.views.document import (
    Arithmetic,
    Block,
    Cache,
    Cell,
    Curves,
    Diagram,
    Document,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Paragraph,
    Part,
    Plane,
    Rows,
    Table,
    Vectors,
)

__all__ = [
    "Arithmetic", "Block", "Cache", "Cell", "Curves", "Diagram", "Document", "Formula", "Heading", "Links", "Maps",
    "Matrix", "Paragraph", "Part", "Plane", "Rows", "Table", "Vectors",
]  # fmt: skip
