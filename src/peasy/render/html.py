"""HTML output: a self-contained page that works offline, and a script-free fragment for notebooks.

Tables are plain HTML and readable without scripts. The inlined modules add the arithmetic of a cell and a theme
button. Untrusted text appears only in text nodes; the arithmetic is stored as escaped JSON.
"""

import base64
import hashlib
import json
from html import escape

from peasy.render import draft, glyph, number, palette, tex
from peasy.render.bundle import LOOKING, PAGE, bundle, web_file
from peasy.render.element import element_data, element_name
from peasy.render.figure import Figure, tables_of
from peasy.render.grid import Grid, as_table, lay_out, table_cells
from peasy.render.svg import draw_inline
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

MOST = 200
"""Maximum number of rows or columns of one matrix on a page."""

FIGURE_MOST = 40
"""Maximum number of rows or columns in the table of a figure, whose numbers can also be read by hovering."""

MOST_CELLS = 20_000
"""Maximum number of cells of all matrices of a page; above it each matrix shows fewer."""

MOST_ARITHMETIC = 2_000_000
"""Maximum number of characters of stored arithmetic; above it the page says how to get the rest."""

NOT_STORED = "The arithmetic of the other cells is left out to keep this page small; use --cell to see it for one cell."


def draw(document: Document) -> str:
    """Render a complete page that makes no network requests."""
    style, script = style_sheet(), inlined_modules(document)
    page = _Page(document)
    body = page.body()
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = escape(glyph.prose(document.title))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n"
        f'<script type="application/json" id="arithmetic">{_safe_json(page.arithmetic)}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def live_parts(document: Document) -> tuple[str, str, str]:
    """Return the parts of a widget: page content, style for a shadow root, and arithmetic as JSON."""
    page = _Page(document, still=False)
    content = f"<main><h1>{escape(glyph.prose(document.title))}</h1>\n{page.body()}</main>"
    style = style_sheet().replace(":root[data-theme=light]", ":host([data-theme=light])")
    style = style.replace(":root[data-theme=dark]", ":host([data-theme=dark])").replace(":root", ":host")
    return content, style + WIDGET_STYLE, _safe_json(page.arithmetic)


WIDGET_STYLE = (
    ":host{display:block;color:var(--ink);background:var(--paper)}main{padding:.5rem 1rem 1rem;max-width:none}"
)

NOTEBOOK = {
    "<figure": '<figure style="display:inline-block;vertical-align:top;margin:0 2em 1em 0"',
    "<caption>": '<caption style="caption-side:top;text-align:left;padding:0 0 .4em;max-width:26em">',
    ' class="says"': ' style="display:block;opacity:.75;font-size:.9em"',
    ' class="corner"': ' style="text-align:left;opacity:.75;font-size:.85em;padding:.2em .6em .2em 0"',
    "<td>": '<td style="text-align:right;padding:.2em .6em">',
    ' class="gap"': ' style="text-align:right;padding:.2em .6em"',
    ' class="word"': ' style="text-align:left;padding:.2em .6em"',
    '<th scope="col">': '<th scope="col" style="text-align:right;padding:.2em .6em">',
    '<th scope="row">': '<th scope="row" style="text-align:right;padding:.2em .6em .2em 0">',
    ' class="note"': ' style="opacity:.75;font-size:.9em"',
    ' class="unseen"': "",
}
"""Inline styles that replace the style sheet in notebooks. User text cannot match these keys because it is escaped."""


def fragment(document: Document) -> str:
    """Render the document without scripts and style sheets, for notebooks, GitHub and nbconvert."""
    html = f"<div><h3>{escape(glyph.prose(document.title))}</h3>{_Page(document, alone=False).body()}</div>"
    for styled, inline in NOTEBOOK.items():
        html = html.replace(styled, inline)
    return html


def style_sheet() -> str:
    """Return the page's style sheet, with one rule for every cell shade."""
    shades = "".join(
        f".{_shade_class(shade)}{{background:{shade.background};color:{shade.ink}}}"
        for name in ("by-size", "around-zero")
        for shade in (palette.Shade(name, level) for level in range(palette.LEVELS + 1))
    )
    return web_file("page.css") + shades + draft.page_style()


def inlined_modules(document: Document) -> str:
    """Return the script of the page: the common modules and those its figures need."""
    live = any(element_name(part) for part in document.parts)
    return bundle((*(LOOKING if live else ()), *PAGE))


class _Page:
    """Renders the parts and collects the arithmetic of their cells."""

    def __init__(self, document: Document, alone: bool = True, still: bool = True) -> None:
        self.document, self.alone, self.still = document, alone, still
        self.arithmetic: dict[str, list[str]] = {}
        self.room = MOST_ARITHMETIC
        self.most = _most(document) if alone else 40
        self.matrices = 0

    def body(self) -> str:
        sections = [self.part(part) for part in self.document.parts]
        if self.document.has_numbers():
            sections.append(f'<p class="note">{number.stated(self.document.decimals)}</p>\n')
        if self.room <= 0:
            sections.append(f'<p class="note">{NOT_STORED}</p>\n')
        return "".join(sections)

    def part(self, part: Part) -> str:
        match part:
            case Heading(text, count):
                level = "h2" if self.alone else "h4"
                counted = "" if count is None else f"{count}. "
                return f"<{level}>{counted}{escape(glyph.prose(text))}</{level}>\n"
            case Paragraph(text, tone):
                sign = {"good": "✓ ", "bad": "✗ "}.get(tone, "")
                kind = tone if tone in {"note", "good", "bad"} else "plain"
                return f'<p class="{kind}">{sign}{_inline(text)}</p>\n'
            case Formula(source):
                return f'<div class="formula">{self.formula(source)}</div>\n'
            case Arithmetic(title, lines):
                listed = "\n".join(escape(glyph.prose(line)) for line in lines)
                return f'<figure class="sum"><figcaption>{_inline(title)}</figcaption><pre>{listed}</pre></figure>\n'
            case Matrix():
                return self.matrix(part)
            case Table():
                return self.table(part)
            case Plane() | Curves() | Diagram():
                return self.picture(part)
            case Maps() | Links() | Cache():
                return self.figure(part)

    def formula(self, source: str) -> str:
        return tex.mathml(source) if self.alone else f"<i>{escape(tex.plain(source))}</i>"

    def matrix(self, matrix: Matrix, most: int = MOST) -> str:
        self.matrices += 1
        grid = lay_out(matrix, self.document.decimals, min(most, self.most))
        head = f'<b class="name">{escape(glyph.label(matrix.name))}</b>'
        if matrix.tex:
            head += f' <span class="formula">{self.formula(matrix.tex)}</span>'
        if matrix.says:
            head += f'<span class="says">{_inline(matrix.says)}</span>'
        return (
            f'<figure class="matrix"><table><caption>{head}</caption>'
            f"<thead>{self._header(grid)}</thead><tbody>{''.join(self._row(grid, row) for row in grid.rows)}</tbody>"
            f"</table>{self._notice(grid.notice)}</figure>\n"
        )

    def _header(self, grid: Grid) -> str:
        labels = "".join(
            f'<th scope="col"><bdi>{escape(grid.column_label(column))}</bdi></th>' for column in grid.columns
        )
        return f'<tr><td class="corner">{escape(grid.corner)}</td>{labels}</tr>'

    def _row(self, grid: Grid, row: int | None) -> str:
        label = f'<th scope="row"><bdi>{escape(grid.row_label(row))}</bdi></th>'
        return f"<tr>{label}{''.join(self._cell(grid, row, column) for column in grid.columns)}</tr>"

    def _cell(self, grid: Grid, row: int | None, column: int | None) -> str:
        text = escape(grid.text(row, column))
        if row is None or column is None:
            return f'<td class="gap">{text}</td>'
        if grid.marked(row, column):
            text = f'<mark>{text}<span class="unseen"> (marked)</span></mark>'
        cell = grid.cell(row, column)
        return f"<td{self._look(grid.shade(row, column), cell)}{self._remember(grid, row, column)}>{text}</td>"

    def _look(self, shade: palette.Shade | None, cell: object) -> str:
        if shade is not None:
            if self.alone:
                return f' class="{_shade_class(shade)}"'
            return f' style="background:{shade.background};color:{shade.ink};text-align:right;padding:.2em .6em"'
        return "" if number.is_number(cell) or not self.alone else ' class="word"'

    def _remember(self, grid: Grid, row: int, column: int) -> str:
        """Store the arithmetic of a cell for the popover, up to MAX_ARITHMETIC_CHARS characters."""
        explain = grid.matrix.explain
        if explain is None or not self.alone or self.room <= 0 or grid.cell(row, column) is None:
            return ""
        arithmetic = explain(row, column)
        lines = [glyph.prose(arithmetic.title), *map(glyph.prose, arithmetic.lines)]
        self.room -= sum(map(len, lines))
        cell_id = f"{self.matrices}-{row}-{column}"
        self.arithmetic[cell_id] = lines
        return f' data-cell="{cell_id}"'

    def _notice(self, notice: str) -> str:
        return f'<figcaption class="note">{escape(notice)}</figcaption>' if notice else ""

    def table(self, table: Table) -> str:
        rows, numeric, notice = table_cells(table, self.document, MOST)
        names = [glyph.prose(column) for column in table.columns] + [""] * (len(numeric) - len(table.columns))
        header = "".join(f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in names)
        body = "".join(f"<tr>{''.join(map(_table_cell, row, numeric))}</tr>" for row in rows)
        caption = f"<caption><b>{escape(glyph.label(table.title))}</b></caption>" if table.title else ""
        return (
            f'<figure class="table"><table>{caption}<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>'
            f"{self._notice(notice)}</figure>\n"
        )

    def picture(self, part: Plane | Curves | Diagram) -> str:
        svg = draw_inline(Document(part.title, (part,), self.document.decimals), styled=not self.alone)
        table = self.table(as_table(part))
        details = f"<details><summary>The numbers as a table</summary>{table}</details>"
        return f'<figure class="picture">{self._live(part, svg)}{details}</figure>\n'

    def figure(self, part: Figure) -> str:
        """Render an attention figure: static first, interactive if scripts run, with its numbers as tables below."""
        tables = "".join(
            self.matrix(table, FIGURE_MOST) if isinstance(table, Matrix) else self.table(table)
            for table in tables_of(part)
        )
        details = f'<details slot="table"><summary>The numbers as a table</summary>{tables}</details>'
        return f'<div class="figure">{self._live(part, self._unmoved(part), details)}</div>\n'

    def _unmoved(self, part: Figure) -> str:
        """Return the static figure, inside noscript if an interactive element replaces it."""
        live = self.alone and element_name(part) is not None
        if live and not self.still:
            return ""
        svg = draw_inline(Document(part.title, (part,), self.document.decimals), styled=not self.alone)
        caption = "" if not part.says else f'<p class="note">{_inline(part.says)}</p>'
        figure = f"<figure>{svg}{caption}</figure>"
        return f"<noscript>{figure}</noscript>" if live else figure

    def _live(self, part: Part, still: str, details: str = "") -> str:
        """Wrap the static figure in its custom element; notebooks keep only the static figure."""
        name = element_name(part) if self.alone else None
        if name is None:
            return still + details
        data = _safe_json(element_data(part, self.document.decimals))
        return f'<{name}>{still}{details}<script type="application/json">{data}</script></{name}>'


def _table_cell(text: str, numeric: bool) -> str:
    return f"<td>{escape(text)}</td>" if numeric else f'<td class="word"><bdi>{escape(text)}</bdi></td>'


def _inline(text: str) -> str:
    return escape(glyph.prose(text))


def _most(document: Document) -> int:
    """Return how many rows and columns each matrix may show, so that the page stays small."""
    most = MOST
    while (
        most > 20 and sum(min(r, most) * min(c, most) for r, c in (m.shape for m in document.matrices())) > MOST_CELLS
    ):
        most = most * 9 // 10
    return most


def _shade_class(shade: palette.Shade) -> str:
    return f"{'s' if shade.palette == 'by-size' else 'z'}{shade.level}"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _safe_json(data: object) -> str:
    """Return JSON that cannot end its script element or start a comment in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
