"""Notes in Markdown: tables with a heading, a bold line or a plain `name:` above them, and matrices in TeX."""

import re
from collections.abc import Iterator

from peasy.worked.checking.cell import LONGEST_CELL
from peasy.worked.checking.name import step_named
from peasy.worked.tables import latex
from peasy.worked.tables.sheet import Sheet, part_labels

FARTHEST = 8
"""How many lines of text above a table may hold its caption."""

_RULER = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
_HEAD = re.compile(r"#*\s*\**\s*head[\s-]*(\d+)\s*\**\s*:?", re.IGNORECASE)
_BELOW = re.compile(r"^(?:Table)?\s*:\s*(.+)", re.IGNORECASE)
_LEADING = re.compile(r"(.*?)\s*(?:\b(?:is|are|become|becomes|follow|follows)\b)?\s*(?<=[:\w])[:=]?", re.IGNORECASE)
_CELLS = re.compile(r"(?<!\\)\|")
_ESCAPED = re.compile(r"\\([\\`*{}\[\]<>#|&$~^!_+=.)-])")


def read(text: str) -> Sheet:
    """The tables and settings of a Markdown text.

    >>> read("**Q**\\n\\n| | 0 |\\n|---|---|\\n| I | 1 |").tables[0]
    Written(table='query', cells=(('1',),), rows=('I',), columns=('0',), says='')
    """
    sheet = Sheet()
    above: list[str] = []
    spent = ""  # a caption that stood below its table
    for kind, lines in _blocks(text.splitlines()):
        if kind == "table":
            below, *lines = lines
            header, *body = ([_plain(cell) for cell in _split(line)] for line in lines)
            captions = [*_captions(above), *(each for each in header[:1] if len(header) > 1 < len(each))]
            if not any(map(step_named, captions)) and _BELOW.fullmatch(below.strip()):
                captions, spent = _BELOW.findall(below.strip()), below
            sheet.add(captions, *part_labels(header, body))
            above = []
        elif kind == "tex":
            for found in latex.matrices("\n".join(lines), before="\n".join(above[-2:])):
                sheet.add([*found.captions, *_captions(above)], *part_labels(found.header, found.body))
            above = []
        elif lines[0] == spent:
            spent = ""
        else:
            _note(sheet, lines[0], above)
    return sheet


def _note(sheet: Sheet, line: str, above: list[str]) -> None:
    head = _HEAD.fullmatch(line.strip())
    if head:
        sheet.head = int(head[1])
    elif line.startswith("#") and "head" not in line.lower() and sheet.head and not line.startswith("###"):
        sheet.head = None
    if line.strip() and not sheet.read_setting(line):
        above.append(line)


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The text cut into tables, matrices and lines; what stands in a code fence is neither."""
    at, fenced = 0, False
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            at += 1
        elif fenced:
            at += 1
        elif "|" in line and at + 1 < len(lines) and "-" in lines[at + 1] and _RULER.fullmatch(lines[at + 1]):
            end = at + 2
            while end < len(lines) and "|" in lines[end]:
                end += 1
            below = next((each for each in lines[end : end + 2] if each.strip()), "")
            yield "table", [below, line, *lines[at + 2 : end]]
            at = end
        elif r"\begin{" in line:
            end = _matrix_end(lines, at)
            yield "tex", lines[at:end]
            at = end
        else:
            yield "line", [line]
            at += 1


def _matrix_end(lines: list[str], start: int) -> int:
    depth = 0
    for at in range(start, len(lines)):
        depth += lines[at].count(r"\begin{") - lines[at].count(r"\end{")
        if depth <= 0:
            return at + 1
    return len(lines)


def _captions(above: list[str]) -> list[str]:
    """The lines above a table, those that look like captions (headings, bold lines) first, nearest first."""
    near = [line.strip() for line in reversed(above[-FARTHEST:]) if line.strip() not in ("$$", "---")]
    bold = next((place for place, line in enumerate(near) if line.startswith(("**", "__"))), None)
    if bold is not None and not step_named(_plain(near[bold])):
        # The table has a name, and it is no step: a formula in between does not make it one.
        near = [near[bold], *(line for line in near[:bold] if not re.search(r"[\\$=^]", line))]
    lines = [_plain(line) for line in sorted(near, key=lambda line: not line.startswith(("#", "**", "__")))]
    return lines + [" ".join(words) for line in near[:1] for words in _last_words(line)]


def _last_words(line: str) -> Iterator[list[str]]:
    """What a sentence leads up to: `so the values V are:` leads to `values V`."""
    found = _LEADING.fullmatch(line[-100:])
    words = found[1].split() if found else []
    yield from (words[-count:] for count in (3, 2, 1) if len(words) >= count)


def _split(line: str) -> list[str]:
    line = line.strip()
    line = line[1:] if line.startswith("|") else line
    line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
    return [cell.strip() for cell in _CELLS.split(line)]


def _plain(text: str) -> str:
    """A cell without its marking: bold, code, escapes."""
    text = text.strip().strip("`")
    if len(text) > LONGEST_CELL:
        return text
    text = re.sub(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    return _ESCAPED.sub(r"\1", text)
