"""PNG output of a document's figures; needs the extra `plots`."""

from peasy.errors import MissingExtra
from peasy.render.svg import draw as draw_svg
from peasy.views.document import Document


def draw(document: Document) -> bytes:
    """Rasterise the SVG of the document at twice its size."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra(
            "PNG output needs the extra plots, which is not installed.",
            hint='Install it with: pip install "peasy[plots]" (or write .svg, which needs nothing).',
        ) from None
    return vl_convert.svg_to_png(draw_svg(document, dark=False), scale=2)
