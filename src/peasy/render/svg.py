"""SVG output: all figures of a document in panels, with text as text.

The file is self-contained (no scripts, fonts or links) and follows the reader's light or dark theme.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import wrap

from peasy.parameters import Record
from peasy.render import figures_svg, heatmap, plot, sanitize, svg_layout, tex
from peasy.render.svg_layout import BOLD_WIDTH_FACTOR, SvgFragment, rect_at, text_at, text_width
from peasy.views import document as doc
from peasy.views.document import Document, DocumentPart, Heading

_DRAWN_TONES = ("main", "good", "bad")
"""Paragraphs that are drawn beside figures: a verdict belongs to them."""

_MAX_WIDTH = 1000
_LINE_LENGTH = 120
_MARGIN, _PADDING, _GAP, _HEADING_HEIGHT = 20, 14, 34, 26


def has_figure(document: Document) -> bool:
    """True if the document contains a figure."""
    kinds = doc.Matrix | doc.Plane | doc.Curves | doc.Diagram | doc.Maps | doc.Links | doc.CacheFigure
    return any(isinstance(part, kinds) for part in document.parts)


def draw(document: Document, dark: bool = True) -> str:
    """Render the figures of the document; `dark` adds a dark theme.

    A document without figures is drawn with its text.
    """
    title = sanitize.one_line(document.title)
    panels = _panels(document)
    rows: list[list[_Panel]] = []
    for panel in panels:
        available = _MAX_WIDTH - 2 * _MARGIN - (_total_width(rows[-1]) + _GAP if rows else 0)
        fitting = _fit_panel(panel, available) if rows and rows[-1][-1].is_numbered == panel.is_numbered else None
        if fitting is None:
            rows.append([panel])
        else:
            rows[-1].append(fitting)
    width = 2 * _MARGIN + max([_total_width(row) for row in rows] + [text_width(title, 20) * BOLD_WIDTH_FACTOR])
    body, top = [text_at(_MARGIN, _MARGIN + 20, title, "title")], float(_MARGIN + 40)
    for row in rows:
        height = max(panel.height for panel in row)
        left = float(_MARGIN)
        for index, panel in enumerate(row):
            if index:
                if row[index - 1].is_numbered and panel.is_numbered:
                    start, y, tip = left + 7, top + height / 2, left + 7 + (_GAP - 14)
                    body.append(f'<path d="M{start:.1f} {y:.1f}H{tip:.1f}m-6 -5l6 5l-6 5" class="arrow"/>')
                left += _GAP
            body.append(panel.draw(left, top, height))
            left += panel.width
        top += height + _MARGIN
    return svg_layout.standalone_svg(SvgFragment(width, top, "".join(body)), title, _description(document), dark)


def draw_inline(document: Document, styled: bool) -> str:
    """Render the figures as inline SVG for a page; `styled` if the page has no style sheet for them."""
    drawing = svg_layout.stack([piece for panel in _panels(document) for line in panel.lines for piece in line], 16)
    return svg_layout.inline_svg(drawing, sanitize.one_line(document.title), _description(document), styled)


class _Panel(Record):
    """Panel: a frame with a heading and lines of fragments."""

    heading: Heading | None
    lines: tuple[tuple[SvgFragment, ...], ...]

    @property
    def title(self) -> str:
        return "" if self.heading is None else self.heading.prefix + sanitize.token_label(self.heading.text)

    @property
    def is_numbered(self) -> bool:
        """True if the heading has a number: arrows connect such panels."""
        return self.heading is not None and self.heading.number is not None

    @property
    def width(self) -> float:
        title_width = text_width(self.title, 15) * BOLD_WIDTH_FACTOR
        return max([_total_width(line) for line in self.lines] + [title_width]) + 2 * _PADDING

    @property
    def height(self) -> float:
        height = sum(max(piece.height for piece in line) + _PADDING for line in self.lines)
        return height + _PADDING + (_HEADING_HEIGHT if self.heading else 0)

    def draw(self, left: float, top: float, height: float) -> str:
        """Draw the panel at a position, as high as its row."""
        elements = [rect_at(left, top, self.width, height, "panel", 10)]
        y = top + _PADDING
        if self.heading:
            elements.append(text_at(left + _PADDING, y + 12, self.title, "heading"))
            y += _HEADING_HEIGHT
        for line in self.lines:
            x = left + _PADDING
            for piece in line:
                elements.append(piece.at(x, y))
                x += piece.width + _GAP
            y += max(piece.height for piece in line) + _PADDING
        return "".join(elements)


def _panels(document: Document) -> list[_Panel]:
    """Group the parts under each heading into panels; headings without figures are left out."""
    groups: list[tuple[Heading | None, list[SvgFragment]]] = [(None, [])]
    with_text = not has_figure(document)
    for part in document.parts:
        if isinstance(part, Heading):
            groups.append((part, []))
        elif (piece := _fragment(part, document, with_text)) is not None:
            groups[-1][1].append(piece)
    return [_Panel(heading, _break_lines(pieces)) for heading, pieces in groups if pieces]


def _fragment(part: DocumentPart, document: Document, with_text: bool) -> SvgFragment | None:
    match part:
        case doc.Matrix():
            return heatmap.matrix_fragment(part, document.decimals)
        case doc.Plane():
            return plot.plane_fragment(part)
        case doc.Curves():
            return plot.curves_fragment(part)
        case doc.Diagram():
            return figures_svg.diagram_fragment(part)
        case doc.Maps():
            return heatmap.maps_fragment(part, document.decimals)
        case doc.Links():
            return figures_svg.links_fragment(part)
        case doc.CacheFigure():
            return figures_svg.cache_fragment(part)
        case doc.Table():
            return heatmap.table_fragment(part, document)
        case doc.Paragraph(text, tone) if with_text or tone in _DRAWN_TONES:
            piece = svg_layout.text_fragment(wrap(part.sign + sanitize.one_line(text), _LINE_LENGTH))
            return replace(piece, ends_line=tone == "main")
        case doc.Arithmetic(title, lines):
            return svg_layout.text_fragment([sanitize.one_line(title), *map(sanitize.one_line, lines)])
        case doc.Formula(source) if with_text:
            return svg_layout.text_fragment([tex.to_plain_text(source)])
    return None


def _break_lines(fragments: Iterable[SvgFragment]) -> tuple[tuple[SvgFragment, ...], ...]:
    """Break fragments into lines that fit the width."""
    available = _MAX_WIDTH - 2 * _MARGIN - 2 * _PADDING
    lines: list[list[SvgFragment]] = []
    for piece in fragments:
        if lines and not lines[-1][-1].ends_line and _total_width((*lines[-1], piece)) <= available:
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return tuple(map(tuple, lines))


def _fit_panel(panel: _Panel, max_width: float) -> _Panel | None:
    """Return the panel, or the panel with its one line broken into two, if it fits into `max_width`; else None."""
    (first, *other_lines), half = panel.lines, (len(panel.lines[0]) + 1) // 2
    broken = _Panel(panel.heading, tuple(filter(None, (first[:half], first[half:]))))
    candidates = (panel,) if other_lines else (panel, broken)
    return next((candidate for candidate in candidates if candidate.width <= max_width), None)


def _total_width(row: Sequence[_Panel] | Sequence[SvgFragment]) -> float:
    return sum(piece.width for piece in row) + _GAP * (len(row) - 1)


def _description(document: Document) -> str:
    """Return the text alternative of the figures (SVG desc)."""
    return sanitize.one_line("; ".join(filter(None, map(_describe, document.parts))) or document.title)


def _describe(part: DocumentPart) -> str:
    match part:
        case doc.Matrix():
            suffix = f": {part.description}" if part.description else ""
            return f"{part.name}, {len(part.rows)} by {len(part.columns)}{suffix}"
        case doc.Plane(title, points):
            return f"{title}: " + ", ".join(name for name, _, _ in points[:20])
        case doc.Curves(title, lines):
            return f"{title}: " + ", ".join(name for name, _ in lines)
        case doc.Diagram(title, columns):
            return f"{title}: " + ", ".join(block.name for column in columns for block in column)
        case doc.Maps():
            size = f"{len(part.rows)} by {len(part.columns)}"
            return f"{part.title}: {part.count} maps of {size}, {part.name(*part.selected)} large"
        case doc.Links(title, left, right):
            return f"{title}: {len(left)} words joined to {len(right)}"
        case doc.CacheFigure(title, tokens, steps):
            return f"{title}: {len(steps)} steps over {len(tokens)} tokens"
    return ""
