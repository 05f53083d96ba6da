"""HTML output: a self-contained page that works offline, and a script-free fragment for notebooks.

Tables are plain HTML and readable without scripts. The inlined modules add the arithmetic of a cell and a theme
button. Untrusted text appears only in text nodes; the arithmetic is stored as escaped JSON.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib import resources

from peasy.render import number, palette, sanitize, svg_layout, tex
from peasy.render.custom_elements import element_data, element_name
from peasy.render.figure_tables import Figure, Plot, plot_table, tables_of
from peasy.render.grid import Grid, lay_out, table_text
from peasy.render.svg import draw_inline
from peasy.views import document as doc
from peasy.views.document import Document, DocumentPart

_FIGURE_MODULES = (
    "figure.js", "numbers.js", "colour.js", "moves.js", "links.js", "heatmap.js", "weight.js", "maps.js", "scatter.js",
)  # fmt: skip
"""Modules of the interactive attention figures, each after the ones it imports."""

_PICTURE_MODULES = (
    "figure.js", "numbers.js", "colour.js", "moves.js", "weight.js", "player.js", "modelflow_layout.js", "modelflow.js",
    "board.js", "flowview.js", "savedflow.js",
)  # fmt: skip
"""Modules of the picture of a whole model."""

_PAGE_MODULES = ("theme.js", "moves.js", "arithmetic.js", "page.js")
"""Modules of every saved page."""

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[a-z_]+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=function|async function|const|class)", re.MULTILINE)

_MAX_SIZE = 200
"""Maximum number of rows or columns of one matrix on a page."""

_MAX_FIGURE_TABLE_SIZE = 40
"""Maximum number of rows or columns in the table of a figure, whose numbers can also be read by hovering."""

MAX_CELLS = 20_000
"""Maximum number of cells of all matrices of a page; above it each matrix shows fewer."""

MAX_ARITHMETIC_CHARS = 2_000_000
"""Maximum number of characters of stored arithmetic; above it the page says how to get the rest."""

_CELL_HINT = "Click an underlined cell to see where it comes from; arrow keys go to the next one."

_ARITHMETIC_OMITTED = (
    "The arithmetic of the other cells is left out to keep this page small; use --cell to see it for one cell."
)


def draw(document: Document) -> str:
    """Render a complete page that makes no network requests."""
    style, script = style_sheet(document), page_script(document)
    page = _PageRenderer(document)
    body = page.body()
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = _escape_line(document.title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main{' class=wide' if document.picture else ''}>\n<h1>{title}</h1>\n{body}</main>\n"
        f'<script type="application/json" id="arithmetic">{_safe_json(page.arithmetic)}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def page_content(document: Document) -> tuple[str, dict[str, list[str]]]:
    """Return the content of the page for the studio, and the arithmetic of its cells."""
    page = _PageRenderer(document, static=False)
    return f"<main><h1>{_escape_line(document.title)}</h1>\n{page.body()}</main>", page.arithmetic


INLINE_STYLES = {
    "<figure": '<figure style="display:inline-block;vertical-align:top;margin:0 2em 1em 0"',
    "<caption>": '<caption style="caption-side:top;text-align:left;padding:0 0 .4em;max-width:26em">',
    ' class="description"': ' style="display:block;opacity:.75;font-size:.9em"',
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
    body = _PageRenderer(document, standalone=False).body()
    html = f"<div><h3>{_escape_line(document.title)}</h3>{body}</div>"
    for styled, inline in INLINE_STYLES.items():
        html = html.replace(styled, inline)
    return html


def style_sheet(document: Document | None = None) -> str:
    """Return the page's style sheet, with one rule for every cell shade; with the picture's, if there is one."""
    shades = "".join(
        f".{_shade_class(shade)}{{background:{shade.background};color:{shade.text_colour}}}"
        for name in ("sequential", "diverging")
        for shade in (palette.Shade(name, level) for level in range(palette.LEVELS + 1))
    )
    picture = _web_file("flow.css") if document is not None and document.picture else ""
    return _web_file("page.css") + shades + svg_layout.page_style() + picture


def page_script(document: Document) -> str:
    """Return the script of the page: the common modules and those its figures need."""
    live = any(element_name(part) for part in document.parts)
    modules = [*(_PICTURE_MODULES if document.picture else ()), *(_FIGURE_MODULES if live else ()), *_PAGE_MODULES]
    return bundle(dict.fromkeys(modules))


def bundle(names: Iterable[str]) -> str:
    """Return modules of `render/web` as one script without imports, in this order.

    >>> "import" in bundle(("numbers.js",)), "export" in bundle(("numbers.js",))
    (False, False)
    """
    return _EXPORT.sub("", _IMPORT.sub("", "\n".join(map(_web_file, names))))


@cache
def _web_file(name: str) -> str:
    return (resources.files("peasy.render") / "web" / name).read_text(encoding="utf-8")


class _PageRenderer:
    """Renders the parts and collects the arithmetic of their cells."""

    def __init__(self, document: Document, standalone: bool = True, static: bool = True) -> None:
        self.document, self.standalone, self.static = document, standalone, static
        self.arithmetic: dict[str, list[str]] = {}
        self.arithmetic_budget = MAX_ARITHMETIC_CHARS
        self.max_size, shapes = 40, [matrix.shape for matrix in document.matrices()]
        if standalone:  # fewer rows and columns of each matrix, so that the page stays small
            self.max_size = most = _MAX_SIZE
            while most > 20 and sum(min(r, most) * min(c, most) for r, c in shapes) > MAX_CELLS:
                self.max_size = most = most * 9 // 10
        self.num_matrices = 0

    def body(self) -> str:
        sections = [self.part(part) for part in self.document.parts]
        if self.document.picture and self.standalone:
            data = f'<script type="application/json">{_safe_json(self.document.picture)}</script>'
            sections.insert(0, f"<peasy-flow>{data}</peasy-flow>\n")
        if self.arithmetic:
            sections.insert(0, f'<p class="note hint">{_CELL_HINT}</p>\n')
        if self.document.has_numbers():
            sections.append(f'<p class="note">{number.rounding_notice(self.document.decimals)}</p>\n')
        if self.arithmetic_budget <= 0:
            sections.append(f'<p class="note">{_ARITHMETIC_OMITTED}</p>\n')
        return "".join(sections)

    def part(self, part: DocumentPart) -> str:
        match part:
            case doc.Heading(text):
                level = "h2" if self.standalone else "h4"
                return f"<{level}>{part.prefix}{_escape_line(text)}</{level}>\n"
            case doc.Paragraph(text, tone):
                kind = tone if tone in {"note", "good", "bad"} else "plain"
                return f'<p class="{kind}">{part.sign}{_escape_line(text)}</p>\n'
            case doc.Formula(source):
                return f'<div class="formula">{self.formula(source)}</div>\n'
            case doc.Arithmetic(title, lines):
                written = "\n".join(map(_escape_line, lines))
                caption = f"<figcaption>{_escape_line(title)}</figcaption>"
                return f'<figure class="sum">{caption}<pre>{written}</pre></figure>\n'
            case doc.Matrix():
                return self.matrix(part)
            case doc.Table():
                return self.table(part)
            case doc.Plane() | doc.Curves() | doc.Diagram():
                return self.plot(part)
            case doc.Maps() | doc.Links() | doc.CacheFigure():
                return self.figure(part)

    def formula(self, source: str) -> str:
        return tex.mathml(source) if self.standalone else f"<i>{escape(tex.to_plain_text(source))}</i>"

    def matrix(self, matrix: doc.Matrix, max_size: int = _MAX_SIZE) -> str:
        self.num_matrices += 1
        grid = lay_out(matrix, self.document.decimals, min(max_size, self.max_size))
        head = f'<b class="name">{escape(sanitize.token_label(matrix.name))}</b>'
        if matrix.tex:
            head += f' <span class="formula">{self.formula(matrix.tex)}</span>'
        if matrix.description:
            head += f'<span class="description">{_escape_line(matrix.description)}</span>'
        labels = (f'<th scope="col"><bdi>{escape(label)}</bdi></th>' for label in map(grid.column_label, grid.columns))
        header = f'<tr><td class="corner">{escape(grid.corner)}</td>{"".join(labels)}</tr>'
        rows = (
            f'<tr><th scope="row"><bdi>{escape(grid.row_label(row))}</bdi></th>'
            f"{''.join(self._cell(grid, row, column) for column in grid.columns)}</tr>"
            for row in grid.rows
        )
        table = f"<table><caption>{head}</caption><thead>{header}</thead><tbody>{''.join(rows)}</tbody></table>"
        return f'<figure class="matrix">{table}{_notice(grid.notice)}</figure>\n'

    def _cell(self, grid: Grid, row: int | None, column: int | None) -> str:
        text = escape(grid.text(row, column))
        if row is None or column is None:
            return f'<td class="gap">{text}</td>'
        if grid.marked(row, column):
            text = f'<mark>{text}<span class="unseen"> (marked)</span></mark>'
        if (shade := grid.shade(row, column)) is None:
            style = "" if number.is_number(grid.cell(row, column)) or not self.standalone else ' class="word"'
        elif self.standalone:
            style = f' class="{_shade_class(shade)}"'
        else:
            colours = f"background:{shade.background};color:{shade.text_colour}"
            style = f' style="{colours};text-align:right;padding:.2em .6em"'
        return f"<td{style}{self._store_arithmetic(grid, row, column)}>{text}</td>"

    def _store_arithmetic(self, grid: Grid, row: int, column: int) -> str:
        """Store the arithmetic of a cell for the popover, up to MAX_ARITHMETIC_CHARS characters."""
        explain = grid.matrix.explain
        if explain is None or not self.standalone or self.arithmetic_budget <= 0 or grid.cell(row, column) is None:
            return ""
        arithmetic = explain(row, column)
        lines = [sanitize.one_line(arithmetic.title), *map(sanitize.one_line, arithmetic.lines)]
        self.arithmetic_budget -= sum(map(len, lines))
        cell_id = f"{self.num_matrices}-{row}-{column}"
        self.arithmetic[cell_id] = lines
        return f' data-cell="{cell_id}"'

    def table(self, table: doc.Table) -> str:
        shown = table_text(table, self.document.decimals, _MAX_SIZE)
        header = "".join(f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in shown.header)
        tags = [("<td>", "</td>") if n else ('<td class="word"><bdi>', "</bdi></td>") for n in shown.numeric]
        rows = ([f"{tag}{escape(cell)}{end}" for (tag, end), cell in zip(tags, row, strict=True)] for row in shown.rows)
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
        caption = f"<caption><b>{escape(sanitize.token_label(table.title))}</b></caption>" if table.title else ""
        drawn = f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
        return f'<figure class="table">{drawn}{_notice(shown.notice)}</figure>\n'

    def plot(self, part: Plot) -> str:
        details = f"<details><summary>The numbers as a table</summary>{self.table(plot_table(part))}</details>"
        return f'<figure class="picture">{self._with_custom_element(part, self._svg(part))}{details}</figure>\n'

    def figure(self, part: Figure) -> str:
        """Render an attention figure: static first, interactive if scripts run, with its numbers as tables below."""
        tables = "".join(
            self.matrix(table, _MAX_FIGURE_TABLE_SIZE) if isinstance(table, doc.Matrix) else self.table(table)
            for table in tables_of(part)
        )
        details = f'<details slot="table"><summary>The numbers as a table</summary>{tables}</details>'
        return f'<div class="figure">{self._with_custom_element(part, self._static_figure(part), details)}</div>\n'

    def _svg(self, part: Plot | Figure) -> str:
        return draw_inline(Document(part.title, (part,), self.document.decimals), styled=not self.standalone)

    def _static_figure(self, part: Figure) -> str:
        """Return the static figure, inside noscript if an interactive element replaces it."""
        live = self.standalone and element_name(part) is not None
        if live and not self.static:
            return ""
        caption = "" if not part.description else f'<p class="note">{_escape_line(part.description)}</p>'
        figure = f"<figure>{self._svg(part)}{caption}</figure>"
        return f"<noscript>{figure}</noscript>" if live else figure

    def _with_custom_element(self, part: DocumentPart, static: str, details: str = "") -> str:
        """Wrap the static figure in its custom element; notebooks keep only the static figure."""
        name = element_name(part) if self.standalone else None
        if name is None:
            return static + details
        data = _safe_json(element_data(part, self.document.decimals))
        return f'<{name}>{static}{details}<script type="application/json">{data}</script></{name}>'


def _notice(notice: str) -> str:
    return f'<figcaption class="note">{escape(notice)}</figcaption>' if notice else ""


def _escape_line(text: str) -> str:
    return escape(sanitize.one_line(text))


def _shade_class(shade: palette.Shade) -> str:
    return f"{'s' if shade.palette == 'sequential' else 'z'}{shade.level}"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _safe_json(data: object) -> str:
    """Return JSON that cannot end its script element or start a comment in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
