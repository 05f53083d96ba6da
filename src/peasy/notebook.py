"""Notebook widget: the page of a result in a frame, with its interactive figures.

It needs no kernel and no network, so it also works in a page made by nbconvert. Results themselves are displayed as
plain text, script-free HTML and SVG, which survive GitHub; a widget is made with `x.widget()`.
"""

from html import escape

from peasy.errors import InvalidInput
from peasy.render import document_of, draw
from peasy.views.document import Document

_HEIGHT = 600
"""Height of the frame in pixels until the page in it has been laid out."""


class Widget:
    """Page of a document in a frame."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        page = escape(str(draw(self.document, "html")))
        style = f"width:100%;height:{_HEIGHT}px;border:0"
        frame = f'<iframe srcdoc="{page}" style="{style}" title="{escape(self.document.title)}"></iframe>'
        return {"text/plain": str(draw(self.document)), "text/html": frame}


def widget(result: object) -> Widget:
    """Return an interactive widget for a command's result or a document.

    >>> from peasy.views.document import Document, Paragraph
    >>> "is great" in widget(Document("Pizza", (Paragraph("is great"),)))._repr_mimebundle_()["text/html"]
    True
    """
    document = document_of(result)
    if document is None:
        hint = "Call .widget() on the result of a command."
        raise InvalidInput(f"{type(result).__name__} cannot be shown as a widget.", hint=hint)
    return Widget(document)
