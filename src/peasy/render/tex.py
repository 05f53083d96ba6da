r"""Parser of the TeX subset used in captions, with MathML and plain-text output.

An unknown command is an error: captions are our own, so one that cannot be rendered is a bug.
"""

import re
from pathlib import Path
from xml.sax.saxutils import escape

from peasy import config
from peasy.parameters import Record

_TABLES = config.load(Path(__file__).with_suffix(".toml"))
_SYMBOLS: dict[str, str] = _TABLES["symbols"]
LETTERS: dict[str, str] = _TABLES["letters"]
_ACCENTS: dict[str, str] = _TABLES["accents"]

_TEXT_KINDS = {"operatorname": "function", "text": "mtext", "mathrm": "mtext"}
_TEXT = r"\\(?:operatorname|text|mathrm)\s*\{(?:[^\\{}$%#&~^_]|\\[_%&#$ -])*\}"
_TOKEN = re.compile(rf"{_TEXT}|\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\S", re.DOTALL)


class UnknownTeX(ValueError):
    """TeX outside the supported subset."""


class _TexNode(Record):
    """Node of a formula. A leaf has `text`; its kind is a MathML tag, "function", "space" or "fence".

    Others have `children`: "row", "frac" (above, below), "sqrt", "scripts" (base, subscript, superscript) and "accent"
    (base), whose sign is `text`.
    """

    kind: str
    text: str = ""
    children: "tuple[_TexNode | None, ...]" = ()


_LEAVES = {
    **{name: _TexNode("mo", sign) for name, sign in _SYMBOLS.items()},
    **{name: _TexNode("mi", letter) for name, letter in LETTERS.items()},
    **{name: _TexNode("function", name) for name in _TABLES["functions"]},
    **{name: _TexNode("space", str(width)) for name, width in _TABLES["spaces"].items()},
}


def parse(tex: str) -> _TexNode:
    """Parse a formula into a tree."""
    return _TexParser(tex).row()


class _TexParser:
    def __init__(self, tex: str) -> None:
        self.tex = tex
        self.tokens: list[str] = _TOKEN.findall(tex)[::-1]

    def error(self, what: str) -> UnknownTeX:
        return UnknownTeX(f"{what} in {self.tex!r}")

    @property
    def next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def advance(self) -> str:
        if not self.tokens:
            raise self.error("the formula ends too early")
        return self.tokens.pop()

    def row(self, until: str = "") -> _TexNode:
        """Parse everything up to and including `until`, or to the end."""
        items: list[_TexNode] = []
        while self.next != until:
            if self.next in {"}", r"\right", "&", r"\\"}:
                raise self.error(f"unmatched {self.next}")
            items.append(self.scripted())
        if until:
            self.advance()
        return items[0] if len(items) == 1 else _TexNode("row", "", tuple(items))

    def scripted(self) -> _TexNode:
        base = _TexNode("row") if self.next in {"_", "^"} else self.atom()
        scripts: dict[str, _TexNode] = {}
        while self.next in {"_", "^"}:
            mark = self.advance()
            if mark in scripts:
                raise self.error(f"two {mark} after one node")
            scripts[mark] = self.atom()
        return _TexNode("scripts", "", (base, scripts.get("_"), scripts.get("^"))) if scripts else base

    def atom(self) -> _TexNode:
        token = self.advance()
        if token == "{":
            return self.row(until="}")
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0] in "0123456789":
            return _TexNode("mn", token)
        if token.isascii() and token.isalpha():
            return _TexNode("mi", token)
        if token in "+-=()[],.:;/|!<>'*":
            return _TexNode("mo", {"-": "−", "'": "′", "*": "∗"}.get(token, token))
        raise self.error(f"the character {token!r}")

    def command(self, name: str) -> _TexNode:
        if name in _LEAVES:
            return _LEAVES[name]
        if name in _ACCENTS:
            return _TexNode("accent", _ACCENTS[name], (self.atom(),))
        kind, _, text = name.partition("{")
        if text:
            return _TexNode(_TEXT_KINDS[kind.strip()], re.sub(r"\\(.)", r"\1", text[:-1]))
        match name:
            case "frac" | "tfrac":
                return _TexNode("frac", "", (self.atom(), self.atom()))
            case "sqrt":
                return _TexNode("sqrt", "", (self.atom(),))
            case "mathbf" | "big":
                return self.atom()
            case "Big":
                return _TexNode("mo", self.delimiter())
            case "left":
                opened, inner = self.delimiter(), self.row(until=r"\right")
                return _TexNode("row", "", (_TexNode("fence", opened), inner, _TexNode("fence", self.delimiter())))
        raise self.error(f"the unknown command \\{name}")

    def delimiter(self) -> str:
        token = self.advance()
        delimiter = _SYMBOLS.get(token[1:]) if token.startswith("\\") else token
        if delimiter is None or delimiter not in set("()[]{}|.⟨⟩‖⌊⌋⌈⌉"):
            raise self.error(f"the fence {token}")
        return "" if delimiter == "." else delimiter


def mathml(tex: str) -> str:
    """Return the formula as a MathML element.

    >>> mathml("d_k")
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><msub><mi>d</mi><mi>k</mi></msub></math>'
    """
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">{_to_mathml(parse(tex))}</math>'


def _to_mathml(node: _TexNode) -> str:
    children = [_to_mathml(child) for child in node.children if child is not None]
    inner, text = "".join(children), escape(node.text)
    match node.kind:
        case "row" | "frac" | "sqrt":
            return f"<m{node.kind}>{inner}</m{node.kind}>"
        case "accent":
            return f'<mover accent="true">{inner}<mo>{text}</mo></mover>'
        case "scripts":
            base, low, high = node.children
            below, above = ("under", "over") if base is not None and base.text in {"∑", "∏"} else ("sub", "sup")
            tag = f"m{below if low is not None else ''}{above if high is not None else ''}"
            return f"<{tag}>{inner}</{tag}>"
        case "space":
            return f'<mspace width="{text}em"/>'
        case "function":
            return f"<mi>{text}</mi><mo>&#x2061;</mo>"
        case "fence":
            return f'<mo fence="true" stretchy="true">{text}</mo>' if text else ""
        case "mo" if text in "()[]|":
            return f'<mo stretchy="false">{text}</mo>'
    return f"<{node.kind}>{text}</{node.kind}>"


_SUPERSCRIPTS = dict(zip("0123456789+-−n⊤iT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿᵀⁱᵀ", strict=True))


def to_plain_text(tex: str) -> str:
    r"""Return the formula as a line of plain text.

    >>> to_plain_text(r"\operatorname{softmax}\left(\frac{Q K^{\top}}{\sqrt{d_k}} + M\right) V")
    'softmax(QKᵀ / √d_k + M) V'
    """
    text = _to_text(parse(tex))
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"([(\[⟨]) | ([)\]⟩,])", lambda match: match[1] or match[2], text)


def _to_text(node: _TexNode) -> str:
    first, *others = node.children or (None,)
    if node.kind == "row":
        return _join(node.children)
    if first is None:
        spaced = node.kind == "mo" and (node.text in "+−=·×≤≥≠≈∈→↦⊙⊕∘±∝<>" or node.text == "mod")
        stop = node.kind == "mo" and node.text in (",", ";", ":")
        return " " if node.kind == "space" else f" {node.text} " if spaced else f"{node.text} " if stop else node.text
    match node.kind, others:
        case "frac", [_TexNode() as below]:
            return f"{_bracketed(first)} / {_bracketed(below)}"
        case "sqrt", _:
            return f"√{_bracketed(first)}"
        case "accent", _:
            return _to_text(first) + {"¯": "\u0304", "^": "\u0302", "~": "\u0303"}.get(node.text, node.text)
        case "scripts", [low, high]:
            lowered = "" if low is None else f"_{_bracketed(low)}"
            return _to_text(first) + lowered + ("" if high is None else _superscript(high))
    raise AssertionError(node)


def _join(items: "tuple[_TexNode | None, ...]") -> str:
    # Single letters are joined, as in QKᵀ; names, indexed letters and fractions need spaces or brackets around them.
    text = ""
    nodes = [item for item in items if item is not None]
    for index, item in enumerate(nodes):
        piece = _to_text(item)
        neighbours = nodes[max(index - 1, 0) : index] + nodes[index + 1 : index + 2]
        if item.kind == "frac" and any(other.kind not in {"mo", "fence", "space"} for other in neighbours):
            piece = f"({piece})"
        touching = text[-1:] not in set(" ([⟨‖") and piece[:1] not in set(" )]⟩‖,")
        if text and touching and (_needs_space(item) or _needs_space(nodes[index - 1]) or text[-1] in ")‖⟩"):
            text += "" if piece[:1] in "([⟨" and nodes[index - 1].kind in {"function", "mtext"} else " "
        text += piece
    return re.sub("^ − ", "−", text)  # a leading minus is a sign


def _needs_space(node: _TexNode) -> bool:
    if node.kind == "scripts":
        base, low, _ = node.children
        return low is not None or (base is not None and _needs_space(base))
    return node.kind in {"frac", "sqrt", "function", "mtext"}


def _bracketed(node: _TexNode) -> str:
    """Return the node as text, in brackets unless it is atomic."""
    text = _to_text(node).strip()
    is_atomic = " " not in text or node.kind == "scripts" or re.fullmatch("⟨[^⟨⟩]*⟩", text)
    return text if is_atomic else f"({text})"


def _superscript(node: _TexNode) -> str:
    text = _to_text(node).replace(" ", "")
    if text and all(character in _SUPERSCRIPTS for character in text):
        return "".join(_SUPERSCRIPTS[character] for character in text)
    return f"^{_bracketed(node)}"
