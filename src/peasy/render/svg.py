"""SVG output: all figures of a document in panels, with text as text.

The file is self-contained (no scripts, fonts or links) and follows the reader's light or dark theme.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from peasy.render import plot, sanitize, svg_layout
from peasy.render.cache_svg import cache_fragment
from peasy.render.diagram_svg import diagram_fragment
from peasy.render.heatmap import matrix_fragment, table_fragment
from peasy.render.links_svg import links_fragment
from peasy.render.maps_svg import maps_fragment
from peasy.render.svg_layout import BOLD_WIDTH_FACTOR, SvgFragment, SvgSize, text_at
from peasy.views.document import (
    Arithmetic,
    CacheFigure,
    Curves,
    Diagram,
    Document,
    DocumentPart,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Paragraph,
    Plane,
    Table,
)

MAX_WIDTH = 1000
MARGIN, PADDING, GAP, HEADING_HEIGHT = 20, 14, 34, 26


def has_figure(document: Document) -> bool:
    """True if the document contains a figure."""
    return any(
        isinstance(part, Matrix | Plane | Curves | Diagram | Maps | Links | CacheFigure) for part in document.parts
    )


def draw(document: Document, dark: bool = True) -> str:
    """Render the figures of the document; `dark` adds a dark theme.

    A document without figures is drawn with its text.
    """
    title = sanitize.one_line(document.title)
    rows = _panel_rows(_panels(document))
    width = 2 * MARGIN + max([_row_width(row) for row in rows] + [svg_layout.text_width(title, 20) * BOLD_WIDTH_FACTOR])
    body, top = [text_at(MARGIN, MARGIN + 20, title, "title")], float(MARGIN + 40)
    for row in rows:
        height = max(panel.size.height for panel in row)
        body.extend(_row(row, top, height))
        top += height + MARGIN
    return svg_layout.standalone_svg(SvgSize(width, top), title, _description(document), "".join(body), dark)


def draw_inline(document: Document, styled: bool) -> str:
    """Render the figures as inline SVG for a page; `styled` if the page has no style sheet for them."""
    pieces = [piece for panel in _panels(document) for line in panel.lines for piece in line]
    return svg_layout.inline_svg(pieces, sanitize.one_line(document.title), _description(document), styled)


@dataclass(frozen=True)
class Panel:
    """Panel: a frame with a heading and lines of fragments."""

    heading: Heading | None
    lines: tuple[tuple[SvgFragment, ...], ...]

    @property
    def title(self) -> str:
        """Heading with its number."""
        if self.heading is None:
            return ""
        number = "" if self.heading.number is None else f"{self.heading.number}. "
        return number + sanitize.token_label(self.heading.text)

    @property
    def size(self) -> SvgSize:
        """Size of all fragments with heading and padding."""
        width = max(
            [_line_width(line) for line in self.lines] + [svg_layout.text_width(self.title, 15) * BOLD_WIDTH_FACTOR]
        )
        height = sum(max(piece.size.height for piece in line) + PADDING for line in self.lines)
        return SvgSize(width + 2 * PADDING, height + PADDING + (HEADING_HEIGHT if self.heading else 0))

    def draw(self, left: float, top: float, height: float) -> str:
        """Draw the panel at a position, as high as its row."""
        elements = [svg_layout.frame(left, top, SvgSize(self.size.width, height))]
        y = top + PADDING
        if self.heading:
            elements.append(text_at(left + PADDING, y + 12, self.title, "heading"))
            y += HEADING_HEIGHT
        for line in self.lines:
            x = left + PADDING
            for piece in line:
                elements.append(piece.at(x, y))
                x += piece.size.width + GAP
            y += max(piece.size.height for piece in line) + PADDING
        return "".join(elements)


def _panels(document: Document) -> list[Panel]:
    """Group the parts under each heading into panels; headings without figures are left out."""
    groups: list[tuple[Heading | None, list[SvgFragment]]] = [(None, [])]
    words_too = not has_figure(document)
    for part in document.parts:
        if isinstance(part, Heading):
            groups.append((part, []))
        elif (piece := _fragment(part, document, words_too)) is not None:
            groups[-1][1].append(piece)
    return [Panel(heading, _break_lines(pieces)) for heading, pieces in groups if pieces]


def _fragment(part: DocumentPart, document: Document, with_text: bool) -> SvgFragment | None:
    match part:
        case Matrix():
            return matrix_fragment(part, document.decimals)
        case Plane():
            return plot.plane_fragment(part)
        case Curves():
            return plot.curves_fragment(part)
        case Diagram():
            return diagram_fragment(part)
        case Maps():
            return maps_fragment(part, document.decimals)
        case Links():
            return links_fragment(part)
        case CacheFigure():
            return cache_fragment(part)
        case Table():
            return table_fragment(part, document)
        case Paragraph(text, tone) if with_text:
            return svg_layout.text_fragment([{"good": "✓ ", "bad": "✗ "}.get(tone, "") + sanitize.one_line(text)])
        case Arithmetic(title, lines):
            return svg_layout.text_fragment([sanitize.one_line(title), *map(sanitize.one_line, lines)])
        case Formula(tex) if with_text:
            return svg_layout.text_fragment([svg_layout.formula_text(tex)])
    return None


def _break_lines(fragments: Iterable[SvgFragment]) -> tuple[tuple[SvgFragment, ...], ...]:
    """Break fragments into lines that fit the width."""
    available = MAX_WIDTH - 2 * MARGIN - 2 * PADDING
    lines: list[list[SvgFragment]] = []
    for piece in fragments:
        if lines and not lines[-1][-1].ends_line and _line_width((*lines[-1], piece)) <= available:
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return tuple(map(tuple, lines))


def _panel_rows(panels: list[Panel]) -> list[list[Panel]]:
    rows: list[list[Panel]] = []
    for panel in panels:
        available = MAX_WIDTH - 2 * MARGIN - (_row_width(rows[-1]) + GAP if rows else 0)
        fitting = _fit_panel(panel, available) if rows and _is_numbered(rows[-1][-1]) == _is_numbered(panel) else None
        if fitting is None:
            rows.append([panel])
        else:
            rows[-1].append(fitting)
    return rows


def _fit_panel(panel: Panel, max_width: float) -> Panel | None:
    """Return the panel, or the panel with its one line broken into two, if it fits into `max_width`; else None."""
    (first, *other_lines), half = panel.lines, (len(panel.lines[0]) + 1) // 2
    broken = Panel(panel.heading, tuple(filter(None, (first[:half], first[half:]))))
    for candidate in (panel,) if other_lines else (panel, broken):
        if candidate.size.width <= max_width:
            return candidate
    return None


def _row(row: list[Panel], top: float, height: float) -> list[str]:
    elements, left = [], float(MARGIN)
    for index, panel in enumerate(row):
        if index:
            if _is_numbered(row[index - 1]) and _is_numbered(panel):
                elements.append(svg_layout.arrow(left + 7, top + height / 2, GAP - 14))
            left += GAP
        elements.append(panel.draw(left, top, height))
        left += panel.size.width
    return elements


def _is_numbered(panel: Panel) -> bool:
    return panel.heading is not None and panel.heading.number is not None


def _row_width(row: list[Panel]) -> float:
    return sum(panel.size.width for panel in row) + GAP * (len(row) - 1)


def _line_width(line: tuple[SvgFragment, ...]) -> float:
    return sum(piece.size.width for piece in line) + GAP * (len(line) - 1)


def _description(document: Document) -> str:
    """Return the text alternative of the figures (SVG desc)."""
    descriptions = []
    for part in document.parts:
        match part:
            case Matrix():
                suffix = f": {part.description}" if part.description else ""
                descriptions.append(f"{part.name}, {len(part.rows)} by {len(part.columns)}{suffix}")
            case Plane(title, points):
                descriptions.append(f"{title}: " + ", ".join(name for name, _, _ in points[:20]))
            case Curves(title, lines):
                descriptions.append(f"{title}: " + ", ".join(name for name, _ in lines))
            case Diagram(title, columns):
                descriptions.append(f"{title}: " + ", ".join(block.name for column in columns for block in column))
            case Maps():
                size = f"{len(part.rows)} by {len(part.columns)}"
                descriptions.append(f"{part.title}: {part.count} maps of {size}, {part.name(*part.selected)} large")
            case Links(title, left, right):
                descriptions.append(f"{title}: {len(left)} words joined to {len(right)}")
            case CacheFigure(title, tokens, steps):
                descriptions.append(f"{title}: {len(steps)} steps over {len(tokens)} tokens")
    return sanitize.one_line("; ".join(descriptions)) or sanitize.one_line(document.title)
