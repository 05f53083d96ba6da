"""Jupyter widget (anywidget) that runs the web page's modules for interactive figures.

It is optional: results are displayed as plain text, script-free HTML and SVG, which survive GitHub and nbconvert. A
widget is created with `x.widget()`, is self-contained and makes no network requests.
"""

from functools import cache
from typing import Any

from peasy.errors import InvalidInput, MissingExtra
from peasy.extras import install_line
from peasy.render import document_of, mimebundle
from peasy.render.html import FIGURE_MODULES, bundle, widget_parts
from peasy.views.document import Document

MODULES = (*FIGURE_MODULES, "arithmetic.js", "widget.js")


def widget(result: Any) -> Any:
    """Return an interactive widget for a command's result or a document.

    >>> from peasy.views.document import Document, Paragraph
    >>> widget(Document("Pizza", (Paragraph("is great"),))).content
    '<main><h1>Pizza</h1>\\n<p class="plain">is great</p>\\n</main>'
    """
    document = document_of(result)
    if document is None:
        hint = "Call .widget() on the result of a command."
        raise InvalidInput(f"{type(result).__name__} cannot be shown as a widget.", hint=hint)
    content, style, arithmetic = widget_parts(document)
    return _widget_class()(document, content=content, style=style, arithmetic=arithmetic)


@cache
def _widget_class() -> Any:
    """Return the widget class, created on first use because anywidget is optional."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        hint = f"Install it with: {install_line('notebook')} (display without widgets needs nothing)."
        raise MissingExtra("Widgets need the extra notebook, which is not installed.", hint=hint) from None

    class PeasyWidget(anywidget.AnyWidget):
        _esm = bundle(MODULES)
        content = traitlets.Unicode().tag(sync=True)
        style = traitlets.Unicode().tag(sync=True)
        arithmetic = traitlets.Unicode().tag(sync=True)

        def __init__(self, document: Document, **traits: str) -> None:
            super().__init__(**traits)
            self.document = document

        def _repr_mimebundle_(self, **kwargs: Any) -> Any:
            # Where widgets do not run (GitHub, a saved page) the static form of the same document is shown.
            mimebundles = super()._repr_mimebundle_(**kwargs)
            live_bundle, *more = mimebundles if isinstance(mimebundles, tuple) else (mimebundles,)
            both = {**(live_bundle or {}), **mimebundle(self.document)}
            return (both, *more) if more else both

    return PeasyWidget
