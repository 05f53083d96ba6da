r"""LaTeX output: a complete document for pdflatex and lualatex, or a fragment for slides.

All text is escaped. pdflatex fails on characters without a glyph, so each non-ASCII character is declared in the
preamble: as a LaTeX command if there is one, else as its code point in a box; the first lines then name the engines
that print it.
"""

import unicodedata
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from peasy import config
from peasy.render import number, sanitize, tex
from peasy.render.figure_tables import PlainPart, plain_parts
from peasy.render.grid import Grid, lay_out, table_text
from peasy.views import document as doc
from peasy.views.document import Document

_MAX_SIZE = 40
"""Maximum number of rows or columns of one table."""

_TABLES = config.load(Path(__file__).with_suffix(".toml"))
_ESCAPES: dict[str, str] = _TABLES["escapes"]
_CHARACTERS: dict[str, str] = _TABLES["unicode_commands"] | _TABLES["letters"]
_ACCENTS: dict[str, str] = _TABLES["accents"]

_KEEP_WITH_NEXT = r"\par\nopagebreak"
"""Keeps a caption on the page of its table."""


_FRAGMENT_HEAD = r"""% Fragment for \input; the preamble needs \usepackage{amsmath,graphicx,color,colortbl}.
\providecommand{\peasyfit}[1]{\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{#1}}
\providecommand{\cellcolor}[2][]{}
"""

_CJK_PACKAGES = r"""\ifLuaTeX\IfFileExists{luatexja.sty}{\usepackage{luatexja}}{}\fi
\ifXeTeX\IfFileExists{xeCJK.sty}{\usepackage{xeCJK}}{}\fi
"""
"""Fonts of Chinese and Japanese, where they are installed."""


def draw(document: Document) -> str:
    """Render the document as a LaTeX file, or as a fragment without preamble, title and rounding notice."""
    body = "\n\n".join(block for part in plain_parts(document) for block in _blocks(part, document))
    notice = _small(escape(number.rounding_notice(document.decimals)))
    closing = f"\n\n{notice}" if document.has_numbers() else ""
    content = f"\\section*{{{_escape_line(document.title)}}}\n\n{body}{closing}\n"
    letters = sorted({letter for letter in content if not letter.isascii()})
    boxed = {letter for letter in letters if _latex_for(letter).startswith(r"\fbox")}
    if document.fragment:
        commands = {ord(letter): _latex_for(letter) for letter in set(body) - boxed if not letter.isascii()}
        return f"{_engine_note(boxed)}{_FRAGMENT_HEAD}{body.translate(commands)}\n"
    preamble = (resources.files("peasy.render") / "preamble.tex").read_text(encoding="utf-8")
    lines = "".join(f"  \\DeclareUnicodeCharacter{{{ord(letter):04X}}}{{{_latex_for(letter)}}}\n" for letter in letters)
    declarations = (_CJK_PACKAGES if boxed else "") + (f"\\ifPDFTeX\n{lines}\\fi\n" if letters else "")
    return f"{_engine_note(boxed)}{preamble}{declarations}\\begin{{document}}\n{content}\\end{{document}}\n"


def _engine_note(boxed: set[str]) -> str:
    """Return the first lines of a file with characters that pdfLaTeX has no glyph for."""
    if not boxed:
        return ""
    listed = " ".join(sorted(boxed)[:12])
    engines = "% !TeX program = lualatex\n% Compile with LuaLaTeX or XeLaTeX"
    return f"{engines}: pdfLaTeX prints a box in place of {listed}\n"


def escape(text: str) -> str:
    r"""Escape all LaTeX special characters.

    >>> escape(r"\end{document} 100%")
    '\\textbackslash{}end\\{document\\} 100\\%'
    """
    return "".join(_ESCAPES.get(character, character) for character in text)


def _escape_line(text: str) -> str:
    return escape(sanitize.one_line(text))


def _latex_for(character: str) -> str:
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    parts = unicodedata.normalize("NFD", character)
    if "\u00c0" <= character <= "\u017f" and len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return rf"\fbox{{\tiny U+{ord(character):04X}}}"


def _blocks(part: PlainPart, document: Document) -> Iterator[str]:
    match part:
        case doc.Heading(text):
            command = "textbf" if document.fragment else "subsection*"
            yield f"\\{command}{{{part.prefix}{_escape_line(text)}}}"
        case doc.Paragraph(text, tone):
            paragraph = part.sign + _escape_line(text)
            yield f"{{\\small\\itshape {paragraph}\\par}}" if tone == "note" else paragraph
        case doc.Formula(source):
            yield f"\\[ {_validated_tex(source)} \\]"
        case doc.Arithmetic(title, lines):
            listed = r" \\ ".join(rf"\mbox{{}}{_escape_line(line)}" for line in lines)
            yield f"{_bold(sanitize.one_line(title))}\n\n\\begin{{quote}}\\raggedright {listed}\\end{{quote}}"
        case doc.Matrix():
            yield from _matrix(lay_out(part, document.decimals, _MAX_SIZE))
        case doc.Table():
            yield _table(part, document)


def _validated_tex(source: str) -> str:
    """Return the TeX source if `parse` accepts it, so that only harmless formulas pass."""
    tex.parse(source)
    return source


def _matrix(grid: Grid) -> Iterator[str]:
    matrix = grid.matrix
    formula = f"\\quad $\\displaystyle {_validated_tex(matrix.tex)}$" if matrix.tex else ""
    yield _bold(sanitize.token_label(matrix.name)) + formula + _KEEP_WITH_NEXT
    if matrix.description:
        yield _escape_line(matrix.description) + _KEEP_WITH_NEXT
    header = [_small(escape(grid.corner)), *(_bold(grid.column_label(column)) for column in grid.columns)]
    rows = [[_bold(grid.row_label(row)), *(_cell(grid, row, column) for column in grid.columns)] for row in grid.rows]
    yield _tabular("l|" + "r" * len(grid.columns), header, rows)
    if grid.notice:
        yield _small(escape(grid.notice))


def _cell(grid: Grid, row: int | None, column: int | None) -> str:
    if row is None or column is None:
        return r"$\cdots$"
    text = grid.text(row, column)
    written = escape(text) if isinstance(grid.cell(row, column), str) else _number(text)
    if grid.marked(row, column):
        written = rf"\underline{{\textbf{{{written}}}}}"
    shade = grid.shade(row, column)
    if shade is None:
        return written
    return rf"\cellcolor[rgb]{{{_rgb(shade.background)}}}\textcolor[rgb]{{{_rgb(shade.text_colour)}}}{{{written}}}"


def _number(text: str) -> str:
    if not text or text[0].isalpha():
        return escape(text)
    return f"${text.replace('−', '-').replace('∞', chr(92) + 'infty')}$"


def _rgb(colour: str) -> str:
    return ",".join(f"{int(colour[start : start + 2], 16) / 255:.3f}" for start in (1, 3, 5))


def _bold(label: str) -> str:
    return rf"\textbf{{{escape(label)}}}"


def _small(text: str) -> str:
    return rf"{{\small {text}}}" if text else ""


def _table(table: doc.Table, document: Document) -> str:
    shown = table_text(table, document.decimals, 10 * _MAX_SIZE)
    header = [_bold(name) if index < len(table.columns) else "" for index, name in enumerate(shown.header)]
    body = [[_number(cell) if shown.numeric[c] else escape(cell) for c, cell in enumerate(row)] for row in shown.rows]
    title = f"{_bold(sanitize.token_label(table.title))}\n\n" if table.title else ""
    pages = [body[start : start + _MAX_SIZE] for start in range(0, len(body), _MAX_SIZE)] or [[]]
    tabulars = "\n\n".join(_tabular("".join("r" if n else "l" for n in shown.numeric), header, page) for page in pages)
    return title + tabulars + (f"\n\n{_small(escape(shown.notice))}" if shown.notice else "")


def _tabular(columns: str, header: list[str], rows: list[list[str]]) -> str:
    lines = [" & ".join(line) + r" \\" for line in (header, *rows)]
    lines.insert(1, r"\hline")
    inside = "\n".join(lines)
    return f"\\peasyfit{{\\begin{{tabular}}{{{columns}}}\n{inside}\n\\end{{tabular}}}}\\par\\medskip"
