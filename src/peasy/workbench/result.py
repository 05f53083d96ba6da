"""What every verb gives back: something that shows itself, saves itself and hands out its data."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from peasy import render
from peasy.display import Displayed
from peasy.render import json
from peasy.views.document import Document


class Result(Displayed, ABC):
    """A verb's answer. A kind of result says what is shown (`document`) and what it holds (`data`)."""

    @abstractmethod
    def document(self) -> Document:
        """What is shown, as plain data."""

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """What `--json` prints as `result`: plain dicts, lists, numbers and texts."""

    def save(self, path: str | Path) -> Path:
        """Write a file; its suffix picks the format: html, svg, png, tex, md, csv, json or npz.

        JSON holds `data()`, as `--json` prints it; all others draw `document()`.
        """
        if render.format_of(path) == "json":
            return render.write(path, json.dump(self.data()))
        return render.save(self.document(), path)

    def html(self) -> str:
        """One page that opens offline."""
        return self._drawn("html")

    def latex(self) -> str:
        """A LaTeX document that compiles as it is."""
        return self._drawn("tex")

    def markdown(self) -> str:
        """Markdown with GitHub's tables."""
        return self._drawn("md")

    def svg(self) -> str:
        """The pictures, side by side."""
        return self._drawn("svg")

    def text(self) -> str:
        """Plain text, 80 columns wide."""
        return self._drawn("text")

    def __str__(self) -> str:
        return self.text()

    def _drawn(self, format: str) -> str:
        drawn = render.draw(self.document(), format)
        assert isinstance(drawn, str)
        return drawn
