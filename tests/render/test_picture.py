"""PNG and PDF output: the same picture from two libraries, in the font that comes with peasy."""

import io
import struct

import numpy as np
import pypdfium2
import pytest
from PIL import Image

from peasy import extras
from peasy.errors import MissingExtra
from peasy.render import picture, svg
from peasy.views.document import Document

from .conftest import every_part, matrix


def pixels(png: bytes) -> np.ndarray:
    """Return grey values on white."""
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    return np.asarray(Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("L"), np.float64)


def page_pixels(pdf: bytes) -> np.ndarray:
    rendered = pypdfium2.PdfDocument(pdf)[0].render(scale=2).to_pil()
    return np.asarray(rendered.convert("L"), np.float64)


def coarse(image: np.ndarray) -> np.ndarray:
    """Return means over 8 x 8 pixels: two libraries smooth the edges of letters differently."""
    height, width = (size // 8 * 8 for size in image.shape)
    return image[:height, :width].reshape(height // 8, 8, width // 8, 8).mean((1, 3))


def test_a_png_has_twice_the_size_of_the_svg(worked):
    drawn = picture.draw_png(worked)
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", drawn[16:24])
    assert f'width="{width // 2}" height="{height // 2}"' in svg.draw(worked)


def test_png_and_pdf_show_the_same():
    """Every kind of figure; a figure that one library left out would darken or lighten whole blocks."""
    document = Document("Every part", every_part())
    png, pdf = pixels(picture.draw_png(document)), page_pixels(picture.draw_pdf(document))
    assert png.shape == pdf.shape
    difference = np.abs(coarse(png) - coarse(pdf))
    assert difference.mean() < 1
    assert np.quantile(difference, 0.999) < 60


def test_the_text_of_a_pdf_is_text(worked):
    page = pypdfium2.PdfDocument(picture.draw_pdf(worked))[0]
    text = page.get_textpage().get_text_range()
    assert "I love AI" in text
    assert "0.7160" in text


def test_a_pdf_is_reproducible_and_has_a_title(worked):
    drawn = picture.draw_pdf(worked)
    assert drawn == picture.draw_pdf(worked)
    assert pypdfium2.PdfDocument(drawn).get_metadata_dict()["Title"] == worked.title


@pytest.fixture
def without_system_fonts(monkeypatch):
    import resvg_py

    draw = resvg_py.svg_to_bytes
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **given: draw(**given, skip_system_fonts=True))


def test_text_does_not_depend_on_the_fonts_of_the_system(worked, request):
    usual = picture.draw_png(worked)
    request.getfixturevalue("without_system_fonts")
    assert picture.draw_png(worked) == usual


def test_without_the_shipped_font_text_would_vanish(worked, monkeypatch, without_system_fonts):
    usual = pixels(picture.draw_png(worked))
    monkeypatch.setattr(picture, "_FONTS", {})
    assert (pixels(picture.draw_png(worked)) > usual + 50).sum() > 1000


@pytest.mark.parametrize("token", ["中文", "שלום", "مرحبا", "e\u0301", "🍕"])
def test_a_pdf_with_other_scripts_shows_the_png(token, without_system_fonts):
    document = Document("Tokens", (matrix(rows=(token, "b", "c")),))
    page = pypdfium2.PdfDocument(picture.draw_pdf(document))[0]
    assert page.get_textpage().get_text_range() == ""
    assert (
        np.abs(coarse(pixels(picture.draw_png(document))) - coarse(page_pixels(picture.draw_pdf(document)))).mean() < 2
    )


def test_a_missing_glyph_is_a_box(without_system_fonts):
    """A token in a script without a font does not vanish."""
    with_token, without = (
        pixels(picture.draw_png(Document("t", (matrix(rows=(token, "b", "c")),)))) for token in ("中文", "  ")
    )
    width = min(with_token.shape[1], without.shape[1])
    assert (np.abs(with_token[:, :width] - without[:, :width]) > 50).sum() > 20


@pytest.mark.parametrize("draw", [picture.draw_png, picture.draw_pdf])
def test_missing_extra_is_an_error_with_install_hint(draw, worked, monkeypatch):
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(MissingExtra) as caught:
        draw(worked)
    assert caught.value.exit_code == 5
    assert 'pip install "peasy-attention[plots]"' in caught.value.hint
