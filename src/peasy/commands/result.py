"""Base class of all command results: display, save, export."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from peasy import render
from peasy.display import DisplayMixin
from peasy.render import json
from peasy.views.document import Document


class Result(DisplayMixin, ABC):
    """Result of a command. Subclasses define what is shown (`document`) and what it contains (`data`)."""

    @abstractmethod
    def document(self) -> Document:
        """Return the document to show."""

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """Return what `--json` prints as `result`: plain dicts, lists, numbers and strings."""

    def save(self, path: str | Path) -> Path:
        """Write a file; its suffix picks the format: html, svg, png, tex, md, csv, json or npz.

        JSON contains `data()`, as `--json` prints it; all others render `document()`.
        """
        if render.format_of(path) == "json":
            return render.write_atomic(path, json.dump(self.data()))
        return render.save(self.document(), path)

    def html(self) -> str:
        """Return a self-contained HTML page."""
        return self._render("html")

    def latex(self) -> str:
        """Return a complete LaTeX document."""
        return self._render("tex")

    def markdown(self) -> str:
        """Return Markdown with GitHub tables."""
        return self._render("md")

    def svg(self) -> str:
        """Return the figures side by side as SVG."""
        return self._render("svg")

    def text(self) -> str:
        """Return plain text, 80 columns wide."""
        return self._render("text")

    def __str__(self) -> str:
        return self.text()

    def _render(self, format: str) -> str:
        rendered = render.draw(self.document(), format)
        assert isinstance(rendered, str)
        return rendered
