r"""Readers of notes: Markdown, LaTeX and CSV texts to sheets of tables, each under the caption that names its step.

Markdown: tables with a heading, a bold line or `name:` above them, and matrices in TeX. LaTeX: `Q = \begin{bmatrix} ...
\end{bmatrix}`, and tables with a \caption or a heading. CSV: blocks between empty lines, the step in the first cell.
"""

import csv
import html
import io
import re
from collections.abc import Iterator
from itertools import groupby, takewhile, zip_longest

from peasy.errors import InvalidInput
from peasy.worked.checking.cell import MAX_CELL_LENGTH, nest_rows, read_number
from peasy.worked.checking.step_aliases import parse_caption
from peasy.worked.checking.table import KEY_COLUMNS, UNKNOWN_ROW
from peasy.worked.tables.arrays import find_arrays
from peasy.worked.tables.sheet import SETTINGS, Sheet, split_labels
from peasy.worked.tables.statements import reduce_statements

_CAPTION_SEARCH_LINES = 8
"""Number of lines above a table that are searched for its caption."""

_RULER = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
_RULER_LINE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*\|", re.MULTILINE)
_ARRAY_START = re.compile(r"\[\s*\[|(?:tensor|array)\(\s*\[")
_ARRAY_LINE = re.compile(r"\s*(?:[^\[\]|`]{1,60}[=:≈]\s*)?(?:[\w.]+\()?\[\s*\[.*\d")
_VECTOR_LINE = re.compile(r"\s*(?:[-*•]\s+)?([^\[\]:=|`]{1,40}?)\s*(?:→|⇒|->|=>|:)\s*\[([^\[\]]+)\]\s*,?\s*")
_GRID_ROW = re.compile(r"\s*([^\W\d]\w*)\s*[:|]?((?:\s+[-−]?\d+(?:[.,]\d+)?){2,})\s*")
_GRID_HEAD = re.compile(r"\s*[^\d\[\]=]+:\s*|(?:\s+\w+){2,}\s*")
_VECTOR = re.compile(r"\[[^\[\]]*\d[^\[\]]*\]")
_MATH_FENCE = re.compile(r"^[ \t>]*```[ \t]*(?:math|tex|latex)[ \t]*\n(.*?)^[ \t>]*```", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"^\s*(?:import|from|def|class|for|return|print)\b|torch\.|np\.", re.MULTILINE)
_HEAD = re.compile(r"#*\s*\**\s*head[\s-]*(\d+)\s*\**\s*:?", re.IGNORECASE)
_CAPTION_BELOW = re.compile(r"^(?:Table)?\s*:\s*(.+)", re.IGNORECASE)
_LEAD_IN = re.compile(r"(.*?)\s*(?:\b(?:is|are|become|becomes|follow|follows)\b)?\s*(?<=[:\w])[:=]?", re.IGNORECASE)
_BAR, _OUTER_BARS = re.compile(r"(?<!\\)\|"), re.compile(r"^\||(?<!\\)\|$")
_OF_ATTENTION = re.compile(r"softmax|attention|attn|scaled|√|sqrt|q.*k", re.IGNORECASE)
_ESCAPED = re.compile(r"\\([\\`*{}\[\]<>#|&$~^!_+=.)-])")

_MAX_ONE_CALCULATION = 24
"""A spreadsheet with more tables is read like the output of a program: several layers, or several examples."""

_CAPTION_SEARCH_CHARS = 2000
"""Number of characters before a table that are searched for its caption."""

_ENVIRONMENT = re.compile(
    r"\\begin\{((?:[bpvBV]|small)?matrix|array|tabular[*x]?|longtable)\*?\}"
    r"((?:(?!\\begin\{|\\end\{).)*)\\end\{\1\*?\}",
    re.DOTALL,
)
_OPERATOR = re.compile(
    r"(?:\s|&|\\\\|\^(?:T|\{?\\?(?:top|T|intercal)\}?)|\\(?:cdot|times|right|left|approx|[,;:! ])|[-+=≈·×*/()\[\]|])*"
)
"""What stands between an operand and the next matrix of a formula."""
_FACTOR = re.compile(r"[\d)}](?:\s|\\cdot|\\times|\\left|[·×*(\[])*$")
_NUMERATOR = re.compile(r"frac\s*\{\s*(?:\\left\s*[\[(.|]\s*)?$")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_CHAINED = re.compile(r"\s*&?\s*(?:[=≈+{}]|\\begin|\\approx|\\cdot|\\times)")
"""Beginning of a line that continues the formula above."""
_HORIZONTAL_RULES = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|cline\{[^}]*\}|cmidrule(?:\([^)]*\))?\{[^}]*\}|endhead)"
)
_LATEX_ROW = re.compile(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline\b")
_COLUMN_SPEC = re.compile(r"^\s*(?:\[[^\]]*\])?(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}){1,2}")
_SPAN = re.compile(r"\\multi(?:column|row)\{[^}]*\}\{[^}]*\}\{([^}]*)\}")
_COLOUR = re.compile(
    r"\\(?:cell|row|text)?color(?:\[[^\]]*\])?\{[^}]*\}|\\(?:centering|small|footnotesize|hspace\{[^}]*\})"
)
_LABEL = re.compile(r"([^\n$&:;=\\]{2,60})[*_]*\s*:[*_]*\s*(?:\\[(\[]|\$+)?\s*$")
_LEFT_SIDE = re.compile(
    r"((?:\([^()\n$&;]*\)|[^\n$&;,]|\\[,;])+?)\s*&?\s*(?:=|≈|\\approx)\s*(?:\{|\\left\s*[\[(.|]\s*)?$"
)
_SYMBOL = re.compile(r"\s*[XQKVW](?:[_^](?:\{[^{}]*\}|\w))*\s*")
_LATEX_CAPTION = re.compile(r"\\caption\*?\{((?:[^{}]|\{[^{}]*\})*)\}")
_TITLE = re.compile(r"\\(?:(?:sub)*section|paragraph|textbf|emph|title|textit)\*?\{((?:[^{}]|\{[^{}]*\})*)\}")
_ESCAPES = {
    r"\textbackslash{}": "\\", r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&", r"\#": "#", r"\_": "_",
    r"\textasciicircum{}": "^", r"\textasciitilde{}": "~", r"\textless{}": "<", r"\textgreater{}": ">",
    r"\textbar{}": "|", r"\textquotedbl{}": '"', r"\textquotesingle{}": "'", r"\textasciigrave{}": "`",
    "{-}": "-", "{[}": "[", "{]}": "]", r"\%": "%", r"\ensuremath{-}": "-",
}  # fmt: skip


def read_markdown(text: str) -> Sheet:
    """Read the tables and settings of a Markdown text.

    >>> read_markdown("**Q**\\n\\n| | 0 |\\n|---|---|\\n| I | 1 |").tables[0]
    WrittenTable(table='query', cells=(('1',),), rows=('I',), columns=('0',), description='')
    """
    text = _MATH_FENCE.sub(r"$$\n\1$$", html.unescape(text))
    sheet = Sheet(text=text)
    above: list[str] = []
    spent = ""  # a caption below its table, already used
    for kind, lines in _markdown_blocks(list(_join_vectors(_plain_statements(nest_rows(text).splitlines())))):
        if kind == "table":
            below, *lines = lines
            inside = (_OUTER_BARS.sub("", line.strip()) for line in lines)
            header, *body = ([_strip_markdown(cell) for cell in _BAR.split(line)] for line in inside)
            captions = [*_markdown_captions(above), *(corner for corner in header[:1] if len(header) > 1 < len(corner))]
            if not any(map(parse_caption, captions)) and _CAPTION_BELOW.fullmatch(below.strip()):
                captions, spent = _CAPTION_BELOW.findall(below.strip()), below
            vectors = _vector_columns(header, body)
            for caption, rows in vectors.items():
                sheet.add([caption], rows, [row[0] for row in body] if 0 not in map(len, body) else [], [])
            steps = _step_columns(header, body)
            for caption, cells in steps.items():
                sheet.add([caption], [cells], [UNKNOWN_ROW], [row[0] for row in body])
            if not vectors and not steps:
                sheet.add(captions, *split_labels(header, body))
            above = []
        elif kind == "code":
            _read_code(sheet, lines, above)
        elif kind == "tex":
            for captions, labels, rows in _latex_tables("\n".join(lines), before="\n".join(above[-2:])):
                sheet.add([*captions, *_markdown_captions(above)], *split_labels(labels, rows))
            above = []
        elif lines[0] == spent:
            spent = ""
        else:
            _read_line(sheet, lines[0], above)
    return sheet


def _vector_columns(header: list[str], body: list[list[str]]) -> dict[str, list[list[str]]]:
    """Return the columns of a table whose cells are vectors such as `[1, 0]`, as tables by their headers."""
    columns = {name: [row[index] for row in body if index < len(row)] for index, name in enumerate(header)}
    return {
        name: [re.split(r"[,;\s]+", cell.strip("[]() ")) for cell in cells]
        for name, cells in columns.items() if cells and all(_VECTOR.fullmatch(cell) for cell in cells)
    }  # fmt: skip


def _step_columns(header: list[str], body: list[list[str]]) -> dict[str, list[str]]:
    """Return the columns of a table with the steps of one query beside each other: `score | scaled | softmax`."""
    names = [name for name in header[1:] if (step := parse_caption(name)) and step[0] in KEY_COLUMNS[:-1]]
    order = [KEY_COLUMNS.index(step[0]) for step in map(parse_caption, names) if step]
    if len(order) < 2 or order != sorted(set(order)) or not any(map(_OF_ATTENTION.search, names)):
        return {}
    columns = {name: [row[header.index(name)] for row in body if len(row) == len(header)] for name in names}
    numeric = all(not text or read_number(text) for column in columns.values() for text in column)
    return columns if numeric and all(map(len, columns.values())) else {}


def _read_code(sheet: Sheet, lines: list[str], above: list[str]) -> None:
    """Read the arrays of a code block; program text may hold lists that are no tables, which are left out."""
    language, *body = lines
    text = "\n".join(body)
    is_program = bool(_PROGRAM.search(text)) or "py" in language
    sheet.sequential |= is_program
    first, arrays = len(sheet.tables) + 1, list(find_arrays(text, above[-_CAPTION_SEARCH_LINES:]))
    for array in arrays:
        sheet.add_array(array, is_program)
    sheet.adjacent.update([] if is_program else sheet.tables[first:])
    if arrays and not is_program:
        above.clear()
    above += [line for line in body if line.strip()][-_CAPTION_SEARCH_LINES:] if is_program else []


def read_plain_text(text: str) -> Sheet:
    """Read a plain text: as Markdown, and arrays outside of code blocks too.

    >>> read_plain_text("weights:\\n[[0.5 0.5]\\n [0.1 0.9]]").tables[0].cells
    (('0.5', '0.5'), ('0.1', '0.9'))
    """
    has_blocks = _RULER_LINE.search(text) or r"\begin{" in text or "```" in text
    return read_markdown(text if has_blocks or not _PROGRAM.search(text) else f"```\n{text}\n```")


def _plain_statements(lines: list[str]) -> list[str]:
    """Return the lines with calculations as names and numbers, except in program text."""
    result, block, fenced = list[str](), list[str](), False
    for line in [*lines, "```"]:
        if not line.lstrip().startswith(("```", "~~~")):
            block.append(line)
            continue
        language = result[-1] if fenced else ""
        is_program = fenced and ("py" in language or bool(_PROGRAM.search("\n".join(block))))
        if fenced and not is_program and (rows := _labelled_rows(block)):
            result[-1:], block, fenced = ["", *rows, ""], [], False
            continue
        result += block if is_program else reduce_statements(block, fenced)
        result.append(line)
        block, fenced = [], not fenced
    return result[:-1]


def _labelled_rows(block: list[str]) -> list[str]:
    """Return the lines of a code block that holds only rows of numbers with labels; [] if it holds anything else."""
    lines = [line for line in block if line.strip()]
    if all(map(_VECTOR_LINE.fullmatch, lines)) and not any(parse_caption(line.split(":")[0]) for line in lines):
        return block
    rows = [_GRID_ROW.fullmatch(line) for line in block]
    known = (row or _GRID_HEAD.fullmatch(line) or not line.strip() for row, line in zip(rows, block, strict=True))
    if not all(known) or sum(map(bool, rows)) < 2 or any(parse_caption(row[1]) for row in rows if row):
        return []
    return [
        f"{row[1]}: [{', '.join(row[2].split())}]" if row else line.strip()
        for row, line in zip(rows, block, strict=True)
        if row or not line.strip() or line.rstrip().endswith(":")
    ]


def _join_vectors(lines: list[str]) -> Iterator[str]:
    """Yield the lines with labelled vectors below each other (`cat → [1, 0]`) as a Markdown table."""
    for vectors, group in groupby(lines, lambda line: bool(_VECTOR_LINE.fullmatch(line))):
        texts = list(group)
        found = [match for line in texts if (match := _VECTOR_LINE.fullmatch(line))] if vectors else []
        rows = [[match[1].strip("\"'*“” "), *re.split(r"[,;\s]+", match[2].strip())] for match in found]
        known = any(parse_caption(row[0]) for row in rows)
        if len(rows) < 2 or known or len({len(row) for row in rows}) > 1:
            yield from texts
            continue
        yield from ["", "|" * len(rows[0]) + "|", "|" + "---|" * len(rows[0])]
        yield from [f"| {' | '.join(row)} |" for row in rows]
        yield ""


def _read_line(sheet: Sheet, line: str, above: list[str]) -> None:
    head = _HEAD.fullmatch(line.strip())
    if head:
        sheet.head = int(head[1])
    elif line.startswith("#") and "head" not in line.lower() and sheet.head and not line.startswith("###"):
        sheet.head = None
    if line.strip() and not sheet.read_setting(line):
        above.append(line)


def _is_open(text: str) -> bool:
    return text.count("[") > text.count("]")


def _markdown_blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the text as tables, matrices, code blocks (the fence first) and lines."""
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.lstrip().startswith(("```", "~~~")):
            end = index + 1
            while end < len(lines) and not lines[end].lstrip().startswith(("```", "~~~")):
                end += 1
            yield "code", lines[index:end]
            index = end + 1
        elif line.startswith(("    ", "\t")) and _ARRAY_START.search(line):
            end = index + 1
            while end < len(lines) and lines[end].startswith(("    ", "\t")):
                end += 1
            yield "code", ["", *lines[index:end]]
            index = end
        elif _ARRAY_LINE.match(line):
            end = index + 1
            while end < len(lines) and lines[end].strip() and _is_open("\n".join(lines[index:end])):
                end += 1
            yield "code", ["", *lines[index:end]]
            index = end
        elif "|" in line and index + 1 < len(lines) and "-" in lines[index + 1] and _RULER.fullmatch(lines[index + 1]):
            end = index + 2
            while end < len(lines) and "|" in lines[end]:
                end += 1
            below = next((next_line for next_line in lines[end : end + 2] if next_line.strip()), "")
            yield "table", [below, line, *lines[index + 2 : end]]
            index = end
        elif r"\begin{" in line:
            end, depth = index, 0
            while end == index or (end < len(lines) and (depth > 0 or _CHAINED.match(lines[end]))):
                depth += lines[end].count(r"\begin{") - lines[end].count(r"\end{")
                end += 1
            yield "tex", lines[index:end]
            index = end
        else:
            yield "line", [line]
            index += 1


def _markdown_captions(above: list[str]) -> list[str]:
    """Return candidate captions: headings and bold lines above a table first, nearest first."""
    near = [line.strip() for line in reversed(above[-_CAPTION_SEARCH_LINES:]) if line.strip() not in ("$$", "---")]
    bold = next((index for index, line in enumerate(near) if line.startswith(("**", "__"))), None)
    if bold is not None and not parse_caption(_strip_markdown(near[bold])):
        # The bold caption names no step, so a formula between it and the table must not name one either.
        near = [near[bold], *(line for line in near[:bold] if not re.search(r"[\\$=^]", line))]
    lines = [_strip_markdown(line) for line in sorted(near, key=lambda line: not line.startswith(("#", "**", "__")))]
    # The last words of a lead-in sentence: `so the values V are:` gives `values V`.
    lead_in = _LEAD_IN.fullmatch(near[0][-100:]) if near else None
    words = lead_in[1].split() if lead_in else []
    return lines + [" ".join(words[-count:]) for count in (3, 2, 1) if len(words) >= count]


def _strip_markdown(text: str) -> str:
    """Strip Markdown markup from a cell: bold, code, escapes."""
    text = text.strip().strip("`")
    if len(text) > MAX_CELL_LENGTH:
        return text
    text = re.sub(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    return _ESCAPED.sub(r"\1", text)


def read_latex(text: str) -> Sheet:
    r"""Read the tables and settings of a LaTeX text; settings are comments such as `% causal: true`.

    >>> read_latex(r"$Q = \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}$").tables[0].cells
    (('1', '0'), ('0', '1'))
    """
    sheet = Sheet(text=text)
    for comment in _COMMENT.findall(text):
        sheet.read_setting(comment.lstrip("% "))
    for line in text.splitlines():
        if "\\" not in line and "&" not in line:
            sheet.read_setting(line)
    for captions, header, body in _latex_tables(text):
        sheet.add(captions, *split_labels(header, body))
    return sheet


def _latex_tables(text: str, before: str = "") -> Iterator[tuple[list[str], list[str] | None, list[list[str]]]]:
    """Yield the candidate captions (nearest first), header and body of every matrix and table; `before` is above."""
    text = before + "\n" + _COMMENT.sub("", text)
    last = 0
    matches = list(_ENVIRONMENT.finditer(text))
    for match, following in zip_longest(matches, matches[1:]):
        kind, inside = match.groups()
        before = text[max(last, match.start() - _CAPTION_SEARCH_CHARS) : match.start()]
        after = text[match.end() : following.start()] if following else text[match.end() : match.end() + 20]
        if kind == "matrix" and r"\begin{matrix}" in before and after.lstrip().startswith(("\\\\", "&")):
            continue  # labels of another matrix
        is_operand = (following and _OPERATOR.fullmatch(after)) or _FACTOR.search(before) or _NUMERATOR.search(before)
        if kind.endswith(("matrix", "array")) and is_operand:
            continue  # an operand: the numbers at the end of the chain of equals signs count
        body = _latex_rows(inside, kind)
        captions = [*_latex_captions(_ENVIRONMENT.sub("", before)), *_caption_of(text, match.start(), match.end())]
        last = match.end()
        if body:
            header = body.pop(0) if kind.startswith(("tab", "long", "array")) and len(body) > 1 else None
            symbols = list(takewhile(_SYMBOL.fullmatch, captions))  # a chain of equal ones: Q = K = V = ...
            for names in [[name] for name in symbols] if len(symbols) > 1 else [captions]:
                yield names, header, body


def _latex_rows(inside: str, kind: str) -> list[list[str]]:
    if kind.startswith(("array", "tab", "long")):
        inside = _COLUMN_SPEC.sub("", inside, count=1)
    inside = _COLOUR.sub("", _SPAN.sub(r"\1", _HORIZONTAL_RULES.sub("", inside)))
    rows = [[_strip_latex(cell) for cell in re.split(r"(?<!\\)&", row)] for row in _LATEX_ROW.split(inside)]
    return [row for row in rows if any(cell for cell in row)]


def _latex_captions(before: str) -> Iterator[str]:
    """Yield candidate captions: left sides of equals signs, then titles and lines above, nearest first."""
    bare = re.sub(r"\\begin\{matrix\}(?:(?!\\begin|\\end).)*\\end\{matrix\}", "", before, flags=re.DOTALL)
    bare = re.sub(
        r"\\begin\{(?:aligned|align|matrix|equation|gather|center|table|displaymath)\*?\}(\[[^\]]*\])?", "", bare
    )
    bare = re.sub(r"\n\s*(?=[={}])", " ", bare)  # a formula in several lines
    left = _LEFT_SIDE.search(re.sub(r"\s*(?:&|\\\\|\s)*$", "", bare))
    if left:
        yield from re.split(r"\\q?quad\b|\\\[|\\\(|\\\\", left[1])[-1].split("=")
    elif label := _LABEL.search(before):
        yield label[1].strip(" -*_")
    yield from (_strip_latex(title) for title in reversed(_TITLE.findall(before)[-3:]))
    lines = [line for line in before.splitlines() if line.strip() and "\\" not in line]
    yield from (_strip_latex(line) for line in reversed(lines[-4:]))
    formulas = [line for line in before.splitlines() if "\\" in line and "$" in line]
    yield from reversed(formulas[-2:])


def _caption_of(text: str, start: int, end: int) -> Iterator[str]:
    """Yield the \\caption of the table environment around a tabular."""
    opened, closed = text.rfind(r"\begin{table", 0, start), text.rfind(r"\end{table", 0, start)
    if opened > closed:
        stop = text.find(r"\end{table", end)
        yield from map(_strip_latex, _LATEX_CAPTION.findall(text[opened : stop if stop > 0 else None]))


def _strip_latex(text: str) -> str:
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


def read_csv(text: str) -> Sheet:
    """Read the tables and settings of a CSV text, separated by commas, semicolons or tabs.

    >>> read_csv("weights,I,AI\\nI,0.2,0.8").tables[0]
    WrittenTable(table='weights', cells=(('0.2', '0.8'),), rows=('I',), columns=('I', 'AI'), description='')
    """
    sheet = Sheet()
    for block in _csv_blocks(_csv_rows(text)):
        while block and block[0][0].strip().lower().rstrip(":") in SETTINGS and len(block[0]) > 1:
            name, *values = block.pop(0)
            sheet.read_setting(f"{name.rstrip(':')}: {', '.join(filter(None, map(str.strip, values)))}")
        while block and ":" in block[0][0] and len(block[0]) == 1 and sheet.read_setting(block[0][0]):
            block.pop(0)
        if block:
            _add_table(sheet, block)
    sheet.sequential = len(sheet.tables) > _MAX_ONE_CALCULATION
    return sheet


def _add_table(sheet: Sheet, block: list[list[str]]) -> None:
    (name, *rest), *body = block
    rest = _strip_trailing_empty(rest)
    if not rest and not body and re.match(r"\d+\. ", name):
        return  # a numbered heading between tables
    if rest:  # the name is in the corner cell of the table
        width = max(len(row) for row in block)
        if all(not row[0].strip() for row in body) or not body:
            body, header = [rest, *(row[1:] for row in body)], None
        else:
            header = ["", *rest] if len(rest) + 1 == width else None
    elif body and not body[0][0].strip() and any(body[0]):
        header, *body = body
    else:
        header = None
    sheet.add([name], *split_labels(header, [_strip_trailing_empty(row) if header is None else row for row in body]))


def _csv_rows(text: str) -> list[list[str]]:
    counts = {sign: text[:10_000].count(sign) for sign in ";\t,"}
    separator = ";" if counts[";"] > counts["\t"] else "\t" if counts["\t"] else ","
    try:
        return list(csv.reader(io.StringIO(text), delimiter=separator))
    except csv.Error as error:
        raise InvalidInput(f"This is not CSV: {error}.") from None


def _csv_blocks(rows: list[list[str]]) -> Iterator[list[list[str]]]:
    for is_empty, block in groupby(rows, lambda row: not any(cell.strip() for cell in row)):
        if not is_empty:  # a leading quote keeps a spreadsheet from evaluating a cell
            yield [[re.sub("^'(?=[-=+@])", "", cell) for cell in row] for row in block]


def _strip_trailing_empty(row: list[str]) -> list[str]:
    """Drop empty cells at the end of a row, as spreadsheets leave them."""
    end = max((index + 1 for index, cell in enumerate(row) if cell.strip()), default=0)
    return row[:end]
