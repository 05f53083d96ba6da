"""`Result`: rendering, saving and notebook display."""

import json
from dataclasses import field
from pathlib import Path

import numpy as np
import pytest

from peasy.commands.result import Result
from peasy.errors import NotFound, UsageError
from peasy.views.document import Document, Matrix


class Small(Result):
    def document(self):
        return Document("Small", (Matrix("weights", ((0.25, 0.75),), ("I",), ("love", "AI")),))

    def data(self):
        return {"weights": [[0.25, float("-inf")]], "tokens": ("I",)}


def test_every_format():
    small = Small()
    assert small.html().startswith("<!doctype html>")
    assert small.latex().startswith("\\documentclass")
    assert "**weights**" in small.markdown()
    assert small.svg().startswith("<svg")
    assert "0.25" in small.text()
    assert str(small) == small.text()


@pytest.mark.parametrize("suffix", ["html", "svg", "png", "tex", "md", "csv"])
def test_save_by_suffix(suffix, tmp_path):
    path = Small().save(tmp_path / f"small.{suffix}")
    assert path.stat().st_size > 20


def test_saved_json_is_data(tmp_path):
    assert json.loads(Small().save(tmp_path / "a.json").read_text()) == {"weights": [[0.25, "-inf"]], "tokens": ["I"]}


def test_unknown_suffix_and_missing_folder(tmp_path):
    with pytest.raises(UsageError, match=r"\.html, \.svg"):
        Small().save(tmp_path / "a.docx")
    with pytest.raises(NotFound, match="There is no folder"):
        Small().save(tmp_path / "no" / "a.html")


def test_saving_overwrites(tmp_path):
    path = tmp_path / "a.md"
    path.write_text("old")
    assert "**weights**" in Small().save(path).read_text()


def test_notebook_display():
    bundle = Small()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/svg+xml"}
    assert bundle["text/html"] == Small()._repr_html_()


def test_document_is_abstract():
    with pytest.raises(TypeError):
        type("Empty", (Result,), {})()


class Measured(Result):
    folder: Path
    weights: np.ndarray
    by_module: dict
    loaded: object = field(repr=False)
    json_decimals = 2

    def document(self):
        return Document("Measured", ())


def test_data_has_the_fields_that_are_not_hidden_from_repr():
    """Arrays are lists, rounded; what a field with repr=False holds is context, not content."""
    measured = Measured(Path("a"), np.array([0.123, np.nan]), {("decoder", 1): (1, None)}, object())
    assert measured.data() == {"folder": "a", "weights": [0.12, None], "by_module": {"decoder.1": [1, None]}}


@pytest.mark.parametrize("suffix", ["md", "tex", "csv"])
def test_saved_explanation_passes_check(suffix, tmp_path):
    from peasy.commands.check import check
    from peasy.commands.explain import explain

    checked = check(explain("i-love-ai").save(tmp_path / f"notes.{suffix}")).data()
    assert checked["passed"]
    assert {cell["verdict"] for cell in checked["cells"]} == {"right"}
    assert {"scores", "weights"} <= {cell["table"] for cell in checked["cells"]}
