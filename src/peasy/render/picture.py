"""PNG and PDF output: the SVG of a document, drawn with the font that comes with peasy.

Characters that the font lacks are drawn with fonts of the system in a PNG. A PDF that needs them, or letters that join
or run from right to left, contains the PNG.
"""

import io
import re
import unicodedata
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from peasy.errors import MissingExtra
from peasy.extras import install_line, require_extra
from peasy.render import svg
from peasy.render.svg_layout import SANS
from peasy.views.document import Document

FAMILY = "DejaVu Sans"
"""Font that comes with peasy."""

_FONTS = {"normal": "DejaVuSans.ttf", "bold": "DejaVuSans-Bold.ttf"}
_SCALE = 2
_WEIGHT = re.compile(r"font-weight:[67]00")
_RIGHT_TO_LEFT = ("R", "AL", "AN")


def draw_png(document: Document) -> bytes:
    """Rasterise the SVG of the document at twice its size; needs the extra `plots`."""
    return svg_to_png(_drawn(document), _SCALE)


def draw_pdf(document: Document) -> bytes:
    """Draw the SVG of the document as a PDF page, with text as text; needs the extra `plots`."""
    return svg_to_pdf(_drawn(document), document.title)


def svg_to_pdf(drawn: str, title: str) -> bytes:
    """Draw an SVG in the shipped font as a PDF page; its width and height are plain numbers, in points."""
    svglib, pdfgen, reader = map(_plots, ("svglib.svglib", "reportlab.pdfgen.canvas", "reportlab.lib.utils"))
    width, height = (float(size) for size in re.findall(r'(?:width|height)="([\d.]+)"', drawn)[:2])
    buffer = io.BytesIO()
    # reportlab writes the time of day into a file unless it is told to be invariant
    page = pdfgen.Canvas(buffer, pagesize=(width, height), invariant=True)
    page.setTitle(title)
    # True if reportlab can set the text in the shipped font; it neither joins letters nor reverses lines.
    text = re.sub(r"<(title|desc|style)>.*?</\1>|<[^>]*>", "", drawn)
    glyphs = _fonts()["normal"].face.charToGlyph
    characters = set(text) - {"\n"}
    joined = any(unicodedata.combining(c) or unicodedata.bidirectional(c) in _RIGHT_TO_LEFT for c in characters)
    if not joined and all(ord(character) in glyphs for character in characters):
        drawing = svglib.svg2rlg(io.BytesIO(_WEIGHT.sub("font-weight:bold", drawn).encode()))
        # the heat maps of svglib's drawing are inline images, which cannot be transparent
        page.drawInlineImage = lambda image, *box: page.drawImage(reader.ImageReader(image), *box, mask="auto")
        page.scale(width / drawing.width, height / drawing.height)
        _plots("reportlab.graphics.renderPDF").draw(drawing, page, 0, 0)
    else:
        image = reader.ImageReader(io.BytesIO(svg_to_png(drawn, 2 * _SCALE)))
        page.drawImage(image, 0, 0, width, height, mask="auto")
    page.showPage()
    page.save()
    return buffer.getvalue()


def _drawn(document: Document) -> str:
    # upright formulas: which italics there are would depend on the system
    return svg.draw(document, dark=False).replace(SANS, f"'{FAMILY}'").replace("font-style:italic", "")


def svg_to_png(drawn: str, scale: int) -> bytes:
    """Rasterise an SVG in the shipped font, `scale` times as large."""
    fonts = [str(_font_file(name)) for name in _FONTS.values()]
    options = {"font_files": fonts, "font_family": FAMILY, "sans_serif_family": FAMILY}
    return bytes(_plots("resvg_py").svg_to_bytes(svg_string=drawn, zoom=scale, **options))


@cache
def _fonts() -> dict[str, Any]:
    """Register the shipped font for PDF files."""
    fonts = {}
    for weight, name in _FONTS.items():
        fonts[weight] = _plots("reportlab.pdfbase.ttfonts").TTFont(Path(name).stem, str(_font_file(name)))
        _plots("reportlab.pdfbase.pdfmetrics").registerFont(fonts[weight])
        _plots("svglib.fonts").register_font(FAMILY, None, weight, "normal", Path(name).stem)
    return fonts


def _font_file(name: str) -> Path:
    return Path(__file__).with_name("fonts") / name


def _plots(module: str) -> ModuleType:
    try:
        return require_extra(module, extra="plots")
    except MissingExtra:
        hint = f"Install it with: {install_line('plots')} (or write .svg, which needs nothing)."
        raise MissingExtra("PNG and PDF output need the extra plots, which is not installed.", hint=hint) from None
