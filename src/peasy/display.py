"""How an object of a lower room shows itself in a notebook without knowing the rooms that draw.

`peasy/__init__.py` puts the painter in: the one place that stands above all rooms.
"""

from collections.abc import Callable
from typing import Any

Painter = Callable[[Any], dict[str, str]]


def _no_painter(shown: Any) -> dict[str, str]:
    return {"text/plain": repr(shown)}


def _no_widget(shown: Any) -> Any:
    raise AssertionError("import peasy puts the maker of widgets in")


painter: Painter = _no_painter
make_widget: Callable[[Any], Any] = _no_widget


class Displayed:
    """Shows itself as plain text, script-free HTML and SVG wherever a notebook asks."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return painter(self)

    def _repr_html_(self) -> str | None:
        return painter(self).get("text/html")

    def widget(self) -> Any:
        """A live view for notebooks: point at cells, move through layers and heads. Needs the part `notebook`."""
        return make_widget(self)
