"""Figures for papers: the size that was asked for, labels as data, every format."""

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files

import numpy as np
import pytest

import peasy
from peasy.errors import UsageError
from peasy.inspection.results import LabelledMatrix

MATRIX = LabelledMatrix(np.array([[0.2, 0.8], [1.0, np.nan]]), ("<b>", "·it"), ("·pizza", "&"), name="layer 1, head 2")


def test_svg_has_the_size_in_centimetres_labels_and_no_title_unless_asked():
    drawn = peasy.Figure(MATRIX, width_cm=6).svg()
    root = ElementTree.fromstring(drawn)
    assert root.get("width") == "6.000cm"
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<b>", "·it", "·pizza", "&", "query", "key", "1.00", "0.00"} <= set(texts)
    assert "Pattern" not in texts
    assert "Pattern" in peasy.Figure(MATRIX, title="Pattern").svg()
    assert len(peasy.Figure(MATRIX, colour_bar=False).svg()) < len(drawn)


def test_svg_embeds_the_characters_it_needs_as_freetype_reads_them():
    truetype = pytest.importorskip("PIL.ImageFont").truetype
    drawn = peasy.Figure(LabelledMatrix(np.eye(2), ("é", "·it"), ("≈", "&"), name="x")).svg()
    woff = base64.b64decode(re.search(r"data:font/woff;base64,([^)]*)", drawn)[1])
    assert len(woff) < 10_000
    embedded, shipped = (
        truetype(io.BytesIO(woff), 40),
        truetype(str(files("peasy.render") / "fonts/DejaVuSans.ttf"), 40),
    )

    def shape(font, text):
        return font.getbbox(text), bytes(font.getmask(text))

    for character in "é·it≈&":
        assert shape(embedded, character) == shape(shipped, character)
    assert shape(embedded, "Q") != shape(shipped, "Q"), "a character that the figure does not need"


def test_pdf_and_png_have_the_same_size(tmp_path):
    figure = peasy.Figure(MATRIX, width_cm=6)
    pdf = figure.save(tmp_path / "figure.pdf").read_bytes()
    width = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", pdf)[1])
    assert width == pytest.approx(6 / 2.54 * 72, abs=0.1)
    assert b"FontFile2" in pdf, "the font is embedded"
    png = figure.save(tmp_path / "figure.png").read_bytes()
    assert int.from_bytes(png[16:20], "big") == pytest.approx(6 / 2.54 * 72 * 4, abs=3)
    assert figure.save(tmp_path / "figure.svg").read_text() == figure.svg()


def test_wrong_sizes_and_suffixes_are_refused(tmp_path):
    with pytest.raises(UsageError, match="width_cm"):
        peasy.Figure(MATRIX, width_cm=0)
    with pytest.raises(UsageError, match="not a figure file"):
        peasy.Figure(MATRIX).save(tmp_path / "figure.docx")
