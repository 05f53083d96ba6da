"""NOTEBOOK DOOR: the modules of the page as a widget, for what a notebook can answer live.

Everything shows itself without this: plain text, script-free HTML and SVG survive GitHub and nbconvert. A widget is
asked for (`x.widget()`), carries all it needs with it, and asks nobody for anything.
"""

from typing import Any

from peasy.errors import InvalidInput, MissingPart
from peasy.render import document_of, mimebundle
from peasy.render.bundle import LOOKING, bundle
from peasy.render.html import live_parts
from peasy.views.document import Document

MODULES = (*LOOKING, "arithmetic.js", "widget.js")


def widget(shown: Any) -> Any:
    """A live view of anything that has a document: a verb's answer, or a document itself.

    >>> from peasy.views import Document, Paragraph
    >>> widget(Document("Pizza", (Paragraph("is great"),))).content
    '<main><h1>Pizza</h1>\\n<p class="plain">is great</p>\\n</main>'
    """
    document = document_of(shown)
    if document is None:
        raise InvalidInput(f"A {type(shown).__name__} has nothing to show.", hint="Ask a verb's answer for its widget.")
    content, style, arithmetic = live_parts(document)
    return _widget_kind()(document, content=content, style=style, arithmetic=arithmetic)


def _widget_kind() -> Any:
    """The class, made when first asked for: anywidget is an optional part."""
    global _kind
    if _kind is None:
        _kind = _make_kind()
    return _kind


_kind: Any = None


def _make_kind() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise MissingPart(
            "Widgets need the part notebook, which is not installed.",
            hint='Install it with: pip install "peasy[notebook]" (what a notebook shows by itself needs nothing).',
        ) from None

    class PeasyWidget(anywidget.AnyWidget):
        """A document, alive."""

        _esm = bundle(MODULES)
        content = traitlets.Unicode().tag(sync=True)
        style = traitlets.Unicode().tag(sync=True)
        arithmetic = traitlets.Unicode().tag(sync=True)

        def __init__(self, document: Document, **traits: str) -> None:
            super().__init__(**traits)
            self.document = document

        def _repr_mimebundle_(self, **kwargs: Any) -> Any:
            # Where no widget can live (GitHub, a saved page) the still form of the same document is shown.
            found = super()._repr_mimebundle_(**kwargs)
            live, *more = found if isinstance(found, tuple) else (found,)
            both = {**(live or {}), **mimebundle(self.document)}
            return (both, *more) if more else both

    return PeasyWidget
