"""Public API of `render`: formats by name, files by suffix, notebooks."""

import subprocess
import sys

import pytest

import peasy
from peasy import render
from peasy.errors import UsageError
from peasy.views.document import Document, Paragraph


@pytest.mark.parametrize("format", list(render.FORMATS))
def test_every_format_draws_everything(format, everything, worked):
    for document in (everything, worked, Document("", ())):
        drawn = render.draw(document, format)
        assert isinstance(drawn, bytes if format in ("png", "pdf", "npz", "xlsx") else str)


@pytest.mark.parametrize("suffix", render.SUFFIXES)
def test_suffix_selects_the_format(suffix, worked, tmp_path):
    path = render.save(worked, tmp_path / f"LOVE.{suffix.upper()}")
    drawn = render.draw(worked, suffix)
    assert path.read_bytes() == (drawn if isinstance(drawn, bytes) else drawn.encode())


@pytest.mark.parametrize("name", ["a.docx", "a", "a.htm", ".html"])
def test_an_unknown_suffix_lists_the_known(name):
    with pytest.raises(UsageError) as caught:
        render.format_of(name)
    for suffix in render.SUFFIXES:
        assert f".{suffix}" in caught.value.message
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_an_unknown_format_is_rejected():
    with pytest.raises(UsageError, match="docx"):
        render.draw(Document("t", ()), "docx")


def test_a_notebook_gets_text_script_free_html_and_a_picture(worked):
    bundle = render.mimebundle(worked)
    assert set(bundle) == {"text/plain", "text/html", "image/svg+xml"}
    assert "<script" not in bundle["text/html"]
    assert set(render.mimebundle(Document("t", (Paragraph("x"),)))) == {"text/plain", "text/html"}
    assert render.mimebundle(3) == {"text/plain": "3"}


def test_steps_display_in_notebooks():
    steps = peasy.attend([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[5.0], [7.0]])
    bundle = steps._repr_mimebundle_()
    assert "weights" in bundle["text/plain"]
    assert "<table" in steps._repr_html_()
    assert bundle["image/svg+xml"].startswith("<svg")


def test_import_is_lightweight():
    """No rendering library is imported before it is used, and torch never."""
    code = (
        "import sys, peasy.render; print(sorted({'rich', 'torch', 'resvg_py', 'svglib', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
