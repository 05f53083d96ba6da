r"""LaTeX reader of notes: `Q = \begin{bmatrix} ... \end{bmatrix}`, and tables with a \caption or a heading."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from peasy.worked.tables.sheet import Sheet, split_labels

CAPTION_SEARCH_CHARS = 2000
"""Number of characters before a table that are searched for its caption."""

_ENVIRONMENT = re.compile(
    r"\\begin\{((?:[bpvBV]|small)?matrix|array|tabular[*x]?|longtable)\*?\}"
    r"((?:(?!\\begin\{|\\end\{).)*)\\end\{\1\*?\}",
    re.DOTALL,
)
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_HORIZONTAL_RULES = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|cline\{[^}]*\}|cmidrule(?:\([^)]*\))?\{[^}]*\}|endhead)"
)
_ROW = re.compile(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline\b")
_COLUMN_SPEC = re.compile(r"^\s*(?:\[[^\]]*\])?(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}){1,2}")
_SPAN = re.compile(r"\\multi(?:column|row)\{[^}]*\}\{[^}]*\}\{([^}]*)\}")
_COLOUR = re.compile(
    r"\\(?:cell|row|text)?color(?:\[[^\]]*\])?\{[^}]*\}|\\(?:centering|small|footnotesize|hspace\{[^}]*\})"
)
_LEFT_SIDE = re.compile(r"((?:[^\n$&;,]|\\[,;])+?)\s*&?\s*=\s*(?:\\left\s*[\[(.|]\s*)?$")
_CAPTION = re.compile(r"\\caption\*?\{((?:[^{}]|\{[^{}]*\})*)\}")
_TITLE = re.compile(r"\\(?:(?:sub)*section|paragraph|textbf|emph|title|textit)\*?\{((?:[^{}]|\{[^{}]*\})*)\}")
_ESCAPES = {
    r"\textbackslash{}": "\\", r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&", r"\#": "#", r"\_": "_",
    r"\textasciicircum{}": "^", r"\textasciitilde{}": "~", r"\textless{}": "<", r"\textgreater{}": ">",
    r"\textbar{}": "|", r"\textquotedbl{}": '"', r"\textquotesingle{}": "'", r"\textasciigrave{}": "`",
    "{-}": "-", "{[}": "[", "{]}": "]", r"\%": "%", r"\ensuremath{-}": "-",
}  # fmt: skip


@dataclass(frozen=True)
class LatexTable:
    """Table or matrix with its candidate captions, nearest first."""

    captions: list[str]
    header: list[str] | None
    body: list[list[str]]


def read(text: str) -> Sheet:
    r"""Read the tables and settings of a LaTeX text; settings are comments such as `% causal: true`.

    >>> read(r"$Q = \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}$").tables[0].cells
    (('1', '0'), ('0', '1'))
    """
    sheet = Sheet()
    for comment in _COMMENT.findall(text):
        sheet.read_setting(comment.lstrip("% "))
    for line in text.splitlines():
        if "\\" not in line and "&" not in line:
            sheet.read_setting(line)
    for table in find_tables(text):
        sheet.add(table.captions, *split_labels(table.header, table.body))
    return sheet


def find_tables(text: str, before: str = "") -> Iterator[LatexTable]:
    """Yield every matrix and table of a text in order; `before` is the text above it."""
    text = before + "\n" + _COMMENT.sub("", text)
    last = 0
    for match in _ENVIRONMENT.finditer(text):
        kind, inside = match.groups()
        before, after = (
            text[max(last, match.start() - CAPTION_SEARCH_CHARS) : match.start()],
            text[match.end() : match.end() + 20],
        )
        if kind == "matrix" and r"\begin{matrix}" in before and after.lstrip().startswith(("\\\\", "&")):
            continue  # labels of another matrix
        body = _rows(inside, kind)
        captions = list(_caption_candidates(before)) + list(_caption_of(text, match.start(), match.end()))
        last = match.end()
        if body:
            header = body.pop(0) if kind.startswith(("tab", "long", "array")) and len(body) > 1 else None
            yield LatexTable(captions, header, body)


def _rows(inside: str, kind: str) -> list[list[str]]:
    if kind.startswith(("array", "tab", "long")):
        inside = _COLUMN_SPEC.sub("", inside, count=1)
    inside = _COLOUR.sub("", _SPAN.sub(r"\1", _HORIZONTAL_RULES.sub("", inside)))
    rows = [[strip_markup(cell) for cell in re.split(r"(?<!\\)&", row)] for row in _ROW.split(inside)]
    return [row for row in rows if any(cell for cell in row)]


def _caption_candidates(before: str) -> Iterator[str]:
    """Yield candidate captions: left sides of equals signs, then titles and lines above, nearest first."""
    bare = re.sub(r"\\begin\{matrix\}(?:(?!\\begin|\\end).)*\\end\{matrix\}", "", before, flags=re.DOTALL)
    bare = re.sub(
        r"\\begin\{(?:aligned|align|matrix|equation|gather|center|table|displaymath)\*?\}(\[[^\]]*\])?", "", bare
    )
    left = _LEFT_SIDE.search(re.sub(r"\s*(?:&|\\\\|\s)*$", "", bare))
    if left:
        yield from re.split(r"\\q?quad\b|\\\[|\\\(|\\\\", left[1])[-1].split("=")
    yield from (strip_markup(title) for title in reversed(_TITLE.findall(before)[-3:]))
    lines = [line for line in before.splitlines() if line.strip() and "\\" not in line]
    yield from (strip_markup(line) for line in reversed(lines[-4:]))
    formulas = [line for line in before.splitlines() if "\\" in line and "$" in line]
    yield from reversed(formulas[-2:])


def _caption_of(text: str, start: int, end: int) -> Iterator[str]:
    """Yield the \\caption of the table environment around a tabular."""
    opened, closed = text.rfind(r"\begin{table", 0, start), text.rfind(r"\end{table", 0, start)
    if opened > closed:
        stop = text.find(r"\end{table", end)
        yield from (
            strip_markup(caption) for caption in _CAPTION.findall(text[opened : stop if stop > 0 else len(text)])
        )


def strip_markup(text: str) -> str:
    """Strip LaTeX markup from a cell or caption."""
    text = text.strip()
    for spelt, sign in _ESCAPES.items():
        text = text.replace(spelt, sign)
    text = re.sub(
        r"\\(?:textbf|textit|text|mathbf|mathrm|emph|underline|texttt|boxed|fbox)\{((?:[^{}]|\{[^{}]*\})*)\}",
        r"\1",
        text,
    )
    text = text.strip().strip("$").strip()
    return text[1:-1].strip().strip("$") if re.fullmatch(r"\{[^{}]*\}", text) else text
