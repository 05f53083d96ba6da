"""Output formats of documents: terminal text, Markdown, LaTeX, HTML, SVG, PNG, PDF, CSV, JSON, NumPy, Excel.

May import: views and the packages below; rich only in terminal. Imported by: commands, the front ends.
In: a Document. Out: text or bytes, or a file in the format of its suffix.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from peasy.atomic import write_atomic
from peasy.errors import UsageError, did_you_mean
from peasy.models.describe import Box
from peasy.views.document import Arithmetic, Document

FORMATS = {
    "text": "terminal.draw",
    "html": "html.draw",
    "svg": "svg.draw",
    "png": "picture.draw_png",
    "pdf": "picture.draw_pdf",
    "tex": "latex.draw",
    "md": "markdown.draw",
    "csv": "csv.draw",
    "json": "json.draw",
    "npz": "npz.draw",
    "xlsx": "xlsx.draw",
}
"""Format -> module of this package and its function that renders a document; imported on first use."""

SUFFIXES = tuple(name for name in FORMATS if name != "text")
"""File suffixes; terminal text is only for the screen."""

__all__ = ["FORMATS", "SUFFIXES", "document_of", "draw", "format_of", "mimebundle", "save"]


def draw(document: Document, format: str = "text") -> str | bytes:
    """Render the document in one of `FORMATS`; bytes for png, pdf, npz and xlsx, text for all others.

    >>> from peasy.views.document import Document, Paragraph
    >>> print(draw(Document("Pizza", (Paragraph("is great"),)), "md"))
    # Pizza
    <BLANKLINE>
    is great
    <BLANKLINE>
    """
    if format not in FORMATS:
        raise UsageError(f'There is no format "{format}".', hint=f"Known: {', '.join(FORMATS)}.")
    module, function = FORMATS[format].split(".")
    renderer: Callable[[Document], str | bytes] = getattr(import_module(f"peasy.render.{module}"), function)
    return renderer(document)


def format_of(path: str | Path) -> str:
    """Return the format of a file name by its suffix.

    >>> format_of("love.html")
    'html'
    """
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix not in SUFFIXES:
        hint = did_you_mean(suffix, SUFFIXES) if suffix else None
        message = f'"{path}" has no known suffix: its name should end in one of .{", .".join(SUFFIXES)}.'
        raise UsageError(message, hint=hint or f"For example {Path(path).stem or 'page'}.html.")
    return suffix


def save(document: Document, path: str | Path) -> Path:
    """Write the document atomically to a file; the suffix selects the format."""
    return write_atomic(path, draw(document, format_of(path)))


def mimebundle(result: object) -> dict[str, str]:
    """Return the MIME bundle for notebooks: plain text, HTML without scripts, and SVG if there is a figure."""
    document = document_of(result)
    if document is None:
        return {"text/plain": repr(result)}
    from peasy.render import html, svg

    bundle = {"text/plain": str(draw(document)), "text/html": html.fragment(document)}
    if svg.has_figure(document):
        bundle["image/svg+xml"] = svg.draw(document)
    return bundle


def document_of(result: object) -> Document | None:
    """Return the document of a result, or None if it has none."""
    if isinstance(result, Document):
        return result
    if callable(make_document := getattr(type(result), "document", None)):
        document: Document = make_document(result)
        return document
    from peasy.formula import Steps
    from peasy.inspection.results import LabelledMatrix
    from peasy.worked.arithmetic import CellArithmetic

    if isinstance(result, Steps):
        from peasy.views.steps import steps_document

        return steps_document(result)
    if isinstance(result, CellArithmetic):
        return Document(f"{result.step}: one number", (Arithmetic(result.title, result.texts),))
    if isinstance(result, LabelledMatrix):
        from peasy.views.inspection import labelled_matrix

        return Document(result.name or "Matrix", (labelled_matrix(result),))
    if isinstance(result, Box):
        from peasy.views.model import model_document

        return model_document(result)
    return None
