"""SVG output: all figures of a document in panels, with text as text.

The file is self-contained (no scripts, fonts or links) and follows the reader's light or dark theme.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from peasy.render import draft, glyph, plot
from peasy.render.cache_svg import cache_piece
from peasy.render.diagram_svg import diagram_piece
from peasy.render.draft import BOLD, Piece, Size, text_at
from peasy.render.heatmap import matrix_piece, table_piece
from peasy.render.links_svg import links_piece
from peasy.render.maps_svg import maps_piece
from peasy.views.document import (
    Arithmetic,
    Cache,
    Curves,
    Diagram,
    Document,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Paragraph,
    Part,
    Plane,
    Table,
)

WIDEST = 1000
MARGIN, PADDING, GAP, HEADING = 20, 14, 34, 26


def has_picture(document: Document) -> bool:
    """True if the document contains a figure."""
    return any(isinstance(part, Matrix | Plane | Curves | Diagram | Maps | Links | Cache) for part in document.parts)


def draw(document: Document, dark: bool = True) -> str:
    """Render the figures of the document; `dark` adds a dark theme.

    A document without figures is drawn with its text.
    """
    title = glyph.prose(document.title)
    rows = _wrapped(_panels(document))
    width = 2 * MARGIN + max([_row_width(row) for row in rows] + [draft.measure(title, 20) * BOLD])
    body, top = [text_at(MARGIN, MARGIN + 20, title, "title")], float(MARGIN + 40)
    for row in rows:
        height = max(panel.size.height for panel in row)
        body.extend(_row(row, top, height))
        top += height + MARGIN
    return draft.picture(Size(width, top), title, _described(document), "".join(body), dark)


def draw_inline(document: Document, styled: bool) -> str:
    """Render the figures as inline SVG for a page; `styled` if the page has no style sheet for them."""
    pieces = [piece for panel in _panels(document) for line in panel.lines for piece in line]
    return draft.inlined(pieces, glyph.prose(document.title), _described(document), styled)


@dataclass(frozen=True)
class Panel:
    """Panel: a frame with a heading and lines of fragments."""

    heading: Heading | None
    lines: tuple[tuple[Piece, ...], ...]

    @property
    def title(self) -> str:
        """Heading with its number."""
        if self.heading is None:
            return ""
        number = "" if self.heading.number is None else f"{self.heading.number}. "
        return number + glyph.label(self.heading.text)

    @property
    def size(self) -> Size:
        """Size of all fragments with heading and padding."""
        width = max([_line_width(line) for line in self.lines] + [draft.measure(self.title, 15) * BOLD])
        height = sum(max(piece.size.height for piece in line) + PADDING for line in self.lines)
        return Size(width + 2 * PADDING, height + PADDING + (HEADING if self.heading else 0))

    def draw(self, left: float, top: float, height: float) -> str:
        """Draw the panel at a position, as high as its row."""
        elements = [draft.frame(left, top, Size(self.size.width, height))]
        y = top + PADDING
        if self.heading:
            elements.append(text_at(left + PADDING, y + 12, self.title, "heading"))
            y += HEADING
        for line in self.lines:
            x = left + PADDING
            for piece in line:
                elements.append(piece.at(x, y))
                x += piece.size.width + GAP
            y += max(piece.size.height for piece in line) + PADDING
        return "".join(elements)


def _panels(document: Document) -> list[Panel]:
    """Group the parts under each heading into panels; headings without figures are left out."""
    groups: list[tuple[Heading | None, list[Piece]]] = [(None, [])]
    words_too = not has_picture(document)
    for part in document.parts:
        if isinstance(part, Heading):
            groups.append((part, []))
        elif (piece := _piece(part, document, words_too)) is not None:
            groups[-1][1].append(piece)
    return [Panel(heading, _lines(pieces)) for heading, pieces in groups if pieces]


def _piece(part: Part, document: Document, words_too: bool) -> Piece | None:
    match part:
        case Matrix():
            return matrix_piece(part, document.decimals)
        case Plane():
            return plot.plane_piece(part)
        case Curves():
            return plot.curves_piece(part)
        case Diagram():
            return diagram_piece(part)
        case Maps():
            return maps_piece(part, document.decimals)
        case Links():
            return links_piece(part)
        case Cache():
            return cache_piece(part)
        case Table():
            return table_piece(part, document)
        case Paragraph(text, tone) if words_too:
            return draft.words_piece([{"good": "✓ ", "bad": "✗ "}.get(tone, "") + glyph.prose(text)])
        case Arithmetic(title, lines):
            return draft.words_piece([glyph.prose(title), *map(glyph.prose, lines)])
        case Formula(tex) if words_too:
            return draft.words_piece([draft.formula(tex)])
    return None


def _lines(pieces: Iterable[Piece]) -> tuple[tuple[Piece, ...], ...]:
    """Break fragments into lines that fit the width."""
    room = WIDEST - 2 * MARGIN - 2 * PADDING
    lines: list[list[Piece]] = []
    for piece in pieces:
        if lines and not lines[-1][-1].ends_line and _line_width((*lines[-1], piece)) <= room:
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return tuple(map(tuple, lines))


def _wrapped(panels: list[Panel]) -> list[list[Panel]]:
    rows: list[list[Panel]] = []
    for panel in panels:
        room = WIDEST - 2 * MARGIN - (_row_width(rows[-1]) + GAP if rows else 0)
        fitting = _narrowed(panel, room) if rows and _counted(rows[-1][-1]) == _counted(panel) else None
        if fitting is None:
            rows.append([panel])
        else:
            rows[-1].append(fitting)
    return rows


def _narrowed(panel: Panel, room: float) -> Panel | None:
    """Return the panel, or the panel with its one line broken into two, if it fits into `max_width`; else None."""
    (first, *other_lines), half = panel.lines, (len(panel.lines[0]) + 1) // 2
    broken = Panel(panel.heading, tuple(filter(None, (first[:half], first[half:]))))
    for candidate in (panel,) if other_lines else (panel, broken):
        if candidate.size.width <= room:
            return candidate
    return None


def _row(row: list[Panel], top: float, height: float) -> list[str]:
    elements, left = [], float(MARGIN)
    for index, panel in enumerate(row):
        if index:
            if _counted(row[index - 1]) and _counted(panel):
                elements.append(draft.arrow(left + 7, top + height / 2, GAP - 14))
            left += GAP
        elements.append(panel.draw(left, top, height))
        left += panel.size.width
    return elements


def _counted(panel: Panel) -> bool:
    return panel.heading is not None and panel.heading.number is not None


def _row_width(row: list[Panel]) -> float:
    return sum(panel.size.width for panel in row) + GAP * (len(row) - 1)


def _line_width(line: tuple[Piece, ...]) -> float:
    return sum(piece.size.width for piece in line) + GAP * (len(line) - 1)


def _described(document: Document) -> str:
    """Return the text alternative of the figures (SVG desc)."""
    descriptions = []
    for part in document.parts:
        match part:
            case Matrix():
                says = f": {part.says}" if part.says else ""
                descriptions.append(f"{part.name}, {len(part.rows)} by {len(part.columns)}{says}")
            case Plane(title, points):
                descriptions.append(f"{title}: " + ", ".join(name for name, _, _ in points[:20]))
            case Curves(title, lines):
                descriptions.append(f"{title}: " + ", ".join(name for name, _ in lines))
            case Diagram(title, columns):
                descriptions.append(f"{title}: " + ", ".join(block.name for column in columns for block in column))
            case Maps():
                size = f"{len(part.rows)} by {len(part.columns)}"
                descriptions.append(f"{part.title}: {part.count} maps of {size}, {part.name(*part.chosen)} large")
            case Links(title, left, right):
                descriptions.append(f"{title}: {len(left)} words joined to {len(right)}")
            case Cache(title, tokens, steps):
                descriptions.append(f"{title}: {len(steps)} steps over {len(tokens)} tokens")
    return glyph.prose("; ".join(descriptions)) or glyph.prose(document.title)
