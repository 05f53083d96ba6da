"""Notebook display mixin for objects of lower packages, which must not import `render`.

`peasy/__init__.py` sets the renderer.
"""

from collections.abc import Callable
from typing import Any

Renderer = Callable[[Any], dict[str, str]]


def _no_renderer(result: Any) -> dict[str, str]:
    return {"text/plain": repr(result)}


def _no_widget(result: Any) -> Any:
    raise AssertionError("`import peasy` sets make_widget")


renderer: Renderer = _no_renderer
make_widget: Callable[[Any], Any] = _no_widget


class DisplayMixin:
    """Mixin: rich display in notebooks as plain text, script-free HTML and SVG."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return renderer(self)

    def _repr_html_(self) -> str | None:
        return renderer(self).get("text/html")

    def widget(self) -> Any:
        """Return an interactive notebook widget to browse cells, layers and heads. Needs the extra `notebook`."""
        return make_widget(self)
