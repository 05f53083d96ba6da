"""Markdown reader of notes: tables with a heading, a bold line or `name:` above them, and matrices in TeX."""

import re
from collections.abc import Iterator

from peasy.worked.checking.cell import MAX_CELL_LENGTH
from peasy.worked.checking.step_aliases import parse_caption
from peasy.worked.tables import latex
from peasy.worked.tables.sheet import Sheet, split_labels

CAPTION_SEARCH_LINES = 8
"""Number of lines above a table that are searched for its caption."""

_RULER = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
_HEAD = re.compile(r"#*\s*\**\s*head[\s-]*(\d+)\s*\**\s*:?", re.IGNORECASE)
_CAPTION_BELOW = re.compile(r"^(?:Table)?\s*:\s*(.+)", re.IGNORECASE)
_LEAD_IN = re.compile(r"(.*?)\s*(?:\b(?:is|are|become|becomes|follow|follows)\b)?\s*(?<=[:\w])[:=]?", re.IGNORECASE)
_CELLS = re.compile(r"(?<!\\)\|")
_ESCAPED = re.compile(r"\\([\\`*{}\[\]<>#|&$~^!_+=.)-])")


def read(text: str) -> Sheet:
    """Read the tables and settings of a Markdown text.

    >>> read("**Q**\\n\\n| | 0 |\\n|---|---|\\n| I | 1 |").tables[0]
    WrittenTable(table='query', cells=(('1',),), rows=('I',), columns=('0',), description='')
    """
    sheet = Sheet()
    above: list[str] = []
    spent = ""  # a caption below its table, already used
    for kind, lines in _blocks(text.splitlines()):
        if kind == "table":
            below, *lines = lines
            header, *body = ([_strip_markup(cell) for cell in _split(line)] for line in lines)
            captions = [
                *_caption_candidates(above),
                *(corner for corner in header[:1] if len(header) > 1 < len(corner)),
            ]
            if not any(map(parse_caption, captions)) and _CAPTION_BELOW.fullmatch(below.strip()):
                captions, spent = _CAPTION_BELOW.findall(below.strip()), below
            sheet.add(captions, *split_labels(header, body))
            above = []
        elif kind == "tex":
            for table in latex.find_tables("\n".join(lines), before="\n".join(above[-2:])):
                sheet.add([*table.captions, *_caption_candidates(above)], *split_labels(table.header, table.body))
            above = []
        elif lines[0] == spent:
            spent = ""
        else:
            _read_line(sheet, lines[0], above)
    return sheet


def _read_line(sheet: Sheet, line: str, above: list[str]) -> None:
    head = _HEAD.fullmatch(line.strip())
    if head:
        sheet.head = int(head[1])
    elif line.startswith("#") and "head" not in line.lower() and sheet.head and not line.startswith("###"):
        sheet.head = None
    if line.strip() and not sheet.read_setting(line):
        above.append(line)


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the text as tables, matrices and lines; code fences are skipped."""
    index, fenced = 0, False
    while index < len(lines):
        line = lines[index]
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            index += 1
        elif fenced:
            index += 1
        elif "|" in line and index + 1 < len(lines) and "-" in lines[index + 1] and _RULER.fullmatch(lines[index + 1]):
            end = index + 2
            while end < len(lines) and "|" in lines[end]:
                end += 1
            below = next((next_line for next_line in lines[end : end + 2] if next_line.strip()), "")
            yield "table", [below, line, *lines[index + 2 : end]]
            index = end
        elif r"\begin{" in line:
            end = _matrix_end(lines, index)
            yield "tex", lines[index:end]
            index = end
        else:
            yield "line", [line]
            index += 1


def _matrix_end(lines: list[str], start: int) -> int:
    depth = 0
    for index in range(start, len(lines)):
        depth += lines[index].count(r"\begin{") - lines[index].count(r"\end{")
        if depth <= 0:
            return index + 1
    return len(lines)


def _caption_candidates(above: list[str]) -> list[str]:
    """Return candidate captions: headings and bold lines above a table first, nearest first."""
    near = [line.strip() for line in reversed(above[-CAPTION_SEARCH_LINES:]) if line.strip() not in ("$$", "---")]
    bold = next((index for index, line in enumerate(near) if line.startswith(("**", "__"))), None)
    if bold is not None and not parse_caption(_strip_markup(near[bold])):
        # The bold caption names no step, so a formula between it and the table must not name one either.
        near = [near[bold], *(line for line in near[:bold] if not re.search(r"[\\$=^]", line))]
    lines = [_strip_markup(line) for line in sorted(near, key=lambda line: not line.startswith(("#", "**", "__")))]
    return lines + [" ".join(words) for line in near[:1] for words in _last_words(line)]


def _last_words(line: str) -> Iterator[list[str]]:
    """Yield the last words of a lead-in sentence: `so the values V are:` gives `values V`."""
    match = _LEAD_IN.fullmatch(line[-100:])
    words = match[1].split() if match else []
    yield from (words[-count:] for count in (3, 2, 1) if len(words) >= count)


def _split(line: str) -> list[str]:
    line = line.strip()
    line = line[1:] if line.startswith("|") else line
    line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
    return [cell.strip() for cell in _CELLS.split(line)]


def _strip_markup(text: str) -> str:
    """Strip Markdown markup from a cell: bold, code, escapes."""
    text = text.strip().strip("`")
    if len(text) > MAX_CELL_LENGTH:
        return text
    text = re.sub(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    return _ESCAPED.sub(r"\1", text)
