"""Notebook display mixin for objects of lower packages, which must not import `render`: it is looked up by name."""

from importlib import import_module


class DisplayMixin:
    """Mixin: rich display in notebooks as plain text, script-free HTML and SVG."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = import_module("peasy.render").mimebundle(self)
        return bundle

    def _repr_html_(self) -> str | None:
        return self._repr_mimebundle_().get("text/html")

    def widget(self) -> object:
        """Return an interactive notebook widget to browse cells, layers and heads."""
        return import_module("peasy.notebook").widget(self)
