"""HTML notes as Markdown: tables, preformatted text, headings, MathML and TeX."""

import re
from html.parser import HTMLParser

from peasy.worked.tables.readers import read_markdown
from peasy.worked.tables.sheet import Sheet

_SKIPPED = ("script", "style", "nav", "svg", "head", "button", "select", "textarea")
_VOID = ("br", "hr", "img", "input", "meta", "link", "wbr", "col", "source")
_BLOCKS = ("p", "div", "li", "ul", "ol", "section", "article", "blockquote", "dd", "dt", "tr", "figure", "br", "hr")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_TEX = {"mfrac": r"\frac{{{}}}{{{}}}", "msup": "{}^{{{}}}", "msub": "{}_{{{}}}", "msubsup": "{}_{{{}}}^{{{}}}",
        "msqrt": r"\sqrt{{{}}}", "mtable": r"\begin{{bmatrix}}{}\end{{bmatrix}}"}  # fmt: skip
_MATRIX_BRACKET = re.compile(r"[\[(|]\s*(?=\\begin\{bmatrix)|(?<=\\end\{bmatrix\})\s*[\])|]")


def read_html(text: str) -> Sheet:
    """Read the tables and calculations of an HTML page.

    >>> page = "<h2>Q</h2><table><tr><td>1</td><td>0</td></tr><tr><td>0</td><td>1</td></tr></table>"
    >>> read_html(page).tables[0].cells
    (('1', '0'), ('0', '1'))
    """
    writer = _MarkdownWriter()
    writer.feed(text)
    writer.close()
    return read_markdown("".join(writer.out))


class _MarkdownWriter(HTMLParser):
    """Writes what it reads as Markdown; elements that hold no text of the page are skipped."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self.skipped: list[str] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.has_header = False
        self.math: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        is_tex = tag == "script" and values.get("type", "").startswith("math/tex")
        hidden = values.get("aria-hidden") == "true" or "katex-html" in values.get("class", "")
        if self.skipped or ((tag in _SKIPPED or hidden) and not is_tex):
            self.skipped += [tag] if tag not in _VOID else []
            return
        if self.math or tag == "math":
            self.math.append(("tex" if "tex" in values.get("encoding", "").lower() else tag, []))
            return
        if tag not in _VOID:
            self.open.append(tag)
        in_cell = "table" in self.open and tag != "table"
        if tag == "table":
            self.rows, self.has_header = [], False
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows = self.rows or [[]]
            self.rows[-1].append("")
            # a row that begins with one heading has a label
            self.has_header |= tag == "th" and len(self.rows) == 1 and len(self.rows[0]) > 1
        elif tag == "pre":
            language = re.search(r"lang(?:uage)?-(\w+)", values.get("class", ""))
            self.write(f"\n\n```{language[1] if language else ''}\n")
        elif tag in _HEADINGS:
            self.write(f"\n\n{'#' * int(tag[1])} ")
        elif tag in _BLOCKS:
            self.write(" " if in_cell else "\n" if "pre" in self.open else "\n\n" if tag != "br" else "\n")
        elif tag in ("sub", "sup"):
            self.write("_{" if tag == "sub" else "^{")
        elif tag in ("b", "strong", "caption", "figcaption") and "pre" not in self.open:
            self.write("\n\n**" if tag.endswith("caption") else "**")
        elif is_tex:
            self.write("\n$$" if "display" in values["type"] else "$")

    def handle_endtag(self, tag: str) -> None:
        if self.skipped:
            if tag in self.skipped:
                while self.skipped.pop() != tag:
                    pass
            return
        if self.math:
            self.close_math(tag)
            return
        if tag not in self.open:
            return
        while self.open.pop() != tag:
            pass
        if tag == "table":
            self.write_table()
        elif tag == "pre":
            self.write("\n```\n")
        elif tag in _HEADINGS or (tag in _BLOCKS and "table" not in self.open):
            self.write("\n")
        elif tag in ("sub", "sup"):
            self.write("}")
        elif tag in ("b", "strong", "caption", "figcaption") and "pre" not in self.open:
            self.write("**\n\n" if tag.endswith("caption") else "**")
        elif tag == "script":
            self.write("$")

    def handle_data(self, data: str) -> None:
        if self.skipped:
            return
        if self.math:
            self.math[-1][1].append(data.strip())
        else:
            self.write(data if "pre" in self.open else re.sub(r"\s+", " ", data))

    def write(self, text: str) -> None:
        """Write a text to the page, or to the current cell of a table."""
        if {"td", "th"} & set(self.open) and self.rows and self.rows[-1]:
            self.rows[-1][-1] += text
        else:
            self.out.append(text)

    def write_table(self) -> None:
        """Write the rows of a table; a first row of numbers is no header."""
        rows = [[re.sub(r"\s+", " ", cell).replace("|", r"\|").strip() for cell in row] for row in self.rows if row]
        self.rows = []
        if not rows:
            return
        is_header = self.has_header or any(cell and not re.fullmatch(r"[-−+\d.,/%∞\s]+", cell) for cell in rows[0][1:])
        width = max(map(len, rows))
        rows = rows if is_header else [[""] * width, *rows]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        self.out.append("\n\n" + "\n".join([lines[0], "|" + "---|" * width, *lines[1:]]) + "\n\n")

    def close_math(self, tag: str) -> None:
        """Write MathML as TeX: that of its annotation if it has one."""
        kind, children = self.math.pop()
        inside = " ".join(filter(None, children))
        if kind == "mtr":
            inside = " & ".join(children) + r" \\ "
        elif kind in ("mfrac", "msup", "msub", "msubsup") and len(children) == _TEX[kind].count("{}"):
            inside = _TEX[kind].format(*children)
        elif kind in ("msqrt", "mtable"):
            inside = _TEX[kind].format(inside)
        elif kind == "semantics":
            inside = next((child[5:] for child in children if child.startswith("\\tex ")), inside)
        elif kind == "tex":
            inside = f"\\tex {inside}"
        if not self.math:
            self.write(f" ${_MATRIX_BRACKET.sub('', inside)}$ ")
        elif tag != "annotation" or kind == "tex":
            self.math[-1][1].append(inside)
