"""A document's pictures as PNG, through the optional part `plots`."""

from peasy.errors import MissingPart
from peasy.render.svg import draw as draw_svg
from peasy.views.document import Document


def draw(document: Document) -> bytes:
    """The SVG of the document as pixels, twice as fine as on a plain screen."""
    try:
        import vl_convert
    except ImportError:
        raise MissingPart(
            "PNG pictures need the part plots, which is not installed.",
            hint='Install it with: pip install "peasy[plots]" (or write .svg, which needs nothing).',
        ) from None
    return vl_convert.svg_to_png(draw_svg(document, dark=False), scale=2)
