"""Output formats of documents: terminal text, Markdown, LaTeX, HTML, SVG, PNG, CSV, JSON, NumPy.

May import: views and the packages below; rich only in terminal. Imported by: commands, the front ends.
In: a Document. Out: text or bytes, or a file in the format of its suffix.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from peasy.atomic import write_atomic
from peasy.errors import UsageError, did_you_mean
from peasy.views.document import Document

FORMATS = {
    "text": "peasy.render.terminal",
    "html": "peasy.render.html",
    "svg": "peasy.render.svg",
    "png": "peasy.render.png",
    "tex": "peasy.render.latex",
    "md": "peasy.render.markdown",
    "csv": "peasy.render.csv",
    "json": "peasy.render.json",
    "npz": "peasy.render.npz",
}
"""Format -> module whose `draw(document)` renders it; imported on first use."""

SUFFIXES = tuple(name for name in FORMATS if name != "text")
"""File suffixes; terminal text is only for the screen."""

__all__ = ["FORMATS", "SUFFIXES", "document_of", "draw", "format_of", "mimebundle", "save"]


def draw(document: Document, format: str = "text") -> str | bytes:
    """Render the document in one of `FORMATS`; bytes for png and npz, text for all others.

    >>> from peasy.views import Document, Paragraph
    >>> print(draw(Document("Pizza", (Paragraph("is great"),)), "md"))
    # Pizza
    <BLANKLINE>
    is great
    <BLANKLINE>
    """
    if format not in FORMATS:
        raise UsageError(f'There is no format "{format}".', hint=f"Known: {', '.join(FORMATS)}.")
    return import_module(FORMATS[format]).draw(document)


def format_of(path: str | Path) -> str:
    """Return the format of a file name by its suffix.

    >>> format_of("love.html")
    'html'
    """
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix not in SUFFIXES:
        known = ", ".join(f".{suffix_name}" for suffix_name in SUFFIXES)
        near = did_you_mean(suffix, SUFFIXES) if suffix else None
        raise UsageError(
            f'"{path}" has no known suffix: its name should end in one of {known}.',
            hint=near or f"For example {Path(path).stem or 'page'}.html.",
        )
    return suffix


def save(document: Document, path: str | Path) -> Path:
    """Write the document atomically to a file; the suffix selects the format."""
    return write_atomic(path, draw(document, format_of(path)))


def mimebundle(result: Any) -> dict[str, str]:
    """Return the MIME bundle for notebooks: plain text, HTML without scripts, and SVG if there is a figure."""
    document = document_of(result)
    if document is None:
        return {"text/plain": repr(result)}
    html = import_module("peasy.render.html")
    bundle = {"text/plain": str(draw(document)), "text/html": html.fragment(document)}
    svg = import_module("peasy.render.svg")
    if svg.has_figure(document):
        bundle["image/svg+xml"] = svg.draw(document)
    return bundle


def document_of(result: Any) -> Document | None:
    """Return the document of a result, or None if it has none."""
    if isinstance(result, Document):
        return result
    if callable(getattr(type(result), "document", None)):
        return result.document()
    from peasy.formula import Steps

    if isinstance(result, Steps):
        return import_module("peasy.views.steps").steps_document(result)
    from peasy.models.describe import Box

    if isinstance(result, Box):
        return import_module("peasy.views.model").model_document(result)
    return None
