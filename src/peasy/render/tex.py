r"""Parser of the TeX subset used in captions, with MathML and plain-text output.

An unknown command is an error: captions are our own, so one that cannot be rendered is a bug.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from xml.sax.saxutils import escape

SYMBOLS = {
    "top": "⊤", "cdot": "·", "times": "×", "dots": "…", "ldots": "…", "cdots": "⋯", "sum": "∑", "prod": "∏",
    "infty": "∞", "langle": "⟨", "rangle": "⟩", "lVert": "‖", "rVert": "‖", "lvert": "|", "rvert": "|",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥",
    "ne": "≠", "neq": "≠", "approx": "≈", "in": "∈", "to": "→", "rightarrow": "→", "mapsto": "↦", "odot": "⊙",
    "oplus": "⊕", "circ": "∘", "pm": "±", "partial": "∂", "nabla": "∇", "ell": "ℓ", "mid": "∣", "propto": "∝",
    "forall": "∀", "mod": "mod", "bmod": "mod", "colon": ":", "lt": "<", "gt": ">", "prime": "′", "ast": "∗",
    "{": "{", "}": "}", "%": "%", "_": "_", "&": "&", "#": "#", "$": "$", "|": "‖",
}  # fmt: skip
LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε", "zeta": "ζ",
    "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ",
    "sigma": "σ", "tau": "τ", "phi": "ϕ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ",
    "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
FUNCTIONS = {"tanh", "exp", "log", "ln", "sin", "cos", "tan", "max", "min", "arg", "det", "dim", "lim"}
SPACES = {",": 0.17, ":": 0.22, ";": 0.28, " ": 0.28, "!": 0.0, "quad": 1.0, "qquad": 2.0}
ACCENTS = {"bar": "¯", "hat": "^", "tilde": "~", "vec": "→", "overline": "¯"}

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|\d+(?:\.\d+)?|.", re.DOTALL)


class UnknownTeX(ValueError):
    """TeX outside the supported subset."""


@dataclass(frozen=True)
class TexLeaf:
    """Leaf node: identifier, number, operator, text or space; `kind` is its MathML tag."""

    kind: str
    text: str


@dataclass(frozen=True)
class TexRow:
    """Sequence of nodes (mrow)."""

    items: "tuple[TexNode, ...]"


@dataclass(frozen=True)
class TexFraction:
    """Fraction (mfrac)."""

    above: "TexNode"
    below: "TexNode"


@dataclass(frozen=True)
class TexRoot:
    """Square root (msqrt)."""

    inner: "TexNode"


@dataclass(frozen=True)
class TexScripts:
    """Node with a subscript, a superscript or both."""

    base: "TexNode"
    low: "TexNode | None"
    high: "TexNode | None"


@dataclass(frozen=True)
class TexAccent:
    """Node with an accent above it."""

    base: "TexNode"
    sign: str


TexNode = TexLeaf | TexRow | TexFraction | TexRoot | TexScripts | TexAccent


def parse(tex: str) -> TexNode:
    """Parse a formula into a tree."""
    return _TexParser(tex).row(until=None)


class _TexParser:
    def __init__(self, tex: str) -> None:
        self.tex = tex
        self.tokens = _TOKEN.findall(tex)
        self.position = 0

    def error(self, what: str) -> UnknownTeX:
        return UnknownTeX(f"{what} in {self.tex!r}")

    def peek(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def advance(self) -> str:
        token = self.peek()
        if token is None:
            raise self.error("the formula ends too early")
        self.position += 1
        return token

    def skip_space(self) -> None:
        while (token := self.peek()) is not None and token.isspace():
            self.position += 1

    def row(self, until: str | None) -> TexNode:
        """Parse everything up to and including `until`."""
        items: list[TexNode] = []
        while True:
            self.skip_space()
            token = self.peek()
            if token is None and until is None:
                break
            if token == until:
                self.advance()
                break
            if token in {"}", r"\right", "&", r"\\"}:
                raise self.error(f"unmatched {token}")
            items.append(self.scripted())
        return items[0] if len(items) == 1 else TexRow(tuple(items))

    def scripted(self) -> TexNode:
        base = TexRow(()) if self.peek() in {"_", "^"} else self.atom()
        scripts: dict[str, TexNode] = {}
        while True:
            self.skip_space()
            mark = self.peek()
            if mark not in {"_", "^"}:
                break
            if mark in scripts:
                raise self.error(f"two {mark} after one node")
            self.advance()
            scripts[mark] = self.argument()
        return TexScripts(base, scripts.get("_"), scripts.get("^")) if scripts else base

    def argument(self) -> TexNode:
        self.skip_space()
        return self.atom()

    def atom(self) -> TexNode:
        token = self.advance()
        if token == "{":
            return self.row(until="}")
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0] in "0123456789":
            return TexLeaf("mn", token)
        if token.isascii() and token.isalpha():
            return TexLeaf("mi", token)
        if token in "+-=()[],.:;/|!<>'*":
            return TexLeaf("mo", {"-": "−", "'": "′", "*": "∗"}.get(token, token))
        raise self.error(f"the character {token!r}")

    def command(self, name: str) -> TexNode:
        if name in SYMBOLS:
            return TexLeaf("mo", SYMBOLS[name])
        if name in LETTERS:
            return TexLeaf("mi", LETTERS[name])
        if name in FUNCTIONS:
            return TexLeaf("function", name)
        if name in SPACES:
            return TexLeaf("space", str(SPACES[name]))
        if name in ACCENTS:
            return TexAccent(self.argument(), ACCENTS[name])
        special: dict[str, Callable[[], TexNode]] = {
            "frac": lambda: TexFraction(self.argument(), self.argument()),
            "tfrac": lambda: TexFraction(self.argument(), self.argument()),
            "sqrt": lambda: TexRoot(self.argument()),
            "operatorname": lambda: TexLeaf("function", self.text_group()),
            "text": lambda: TexLeaf("mtext", self.text_group()),
            "mathrm": lambda: TexLeaf("mtext", self.text_group()),
            "mathbf": self.argument,
            "left": self.delimited,
        }
        if name not in special:
            raise self.error(f"the unknown command \\{name}")
        return special[name]()

    def text_group(self) -> str:
        """Parse text in braces, character by character."""
        self.skip_space()
        if self.advance() != "{":
            raise self.error("text without braces")
        characters = []
        while (token := self.advance()) != "}":
            if token.startswith("\\") and token[1:] not in {"_", "%", "&", "#", "$", " ", "-"}:
                raise self.error(f"the command {token} inside text")
            if token in {"{", "$", "%", "#", "&", "~", "^", "_"}:
                raise self.error(f"the character {token!r} inside text")
            characters.append(token.removeprefix("\\"))
        return "".join(characters)

    def delimited(self) -> TexNode:
        opened = self.delimiter()
        inner = self.row(until=r"\right")
        return TexRow((TexLeaf("fence", opened), inner, TexLeaf("fence", self.delimiter())))

    def delimiter(self) -> str:
        self.skip_space()
        token = self.advance()
        delimiter = SYMBOLS.get(token[1:]) if token.startswith("\\") else token
        if delimiter is None or delimiter not in set("()[]{}|.⟨⟩‖⌊⌋⌈⌉"):
            raise self.error(f"the fence {token}")
        return "" if delimiter == "." else delimiter


def mathml(tex: str) -> str:
    """Return the formula as a MathML element.

    >>> mathml("d_k")
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><msub><mi>d</mi><mi>k</mi></msub></math>'
    """
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">{_to_mathml(parse(tex))}</math>'


def _to_mathml(node: TexNode) -> str:
    match node:
        case TexRow(items):
            return f"<mrow>{''.join(map(_to_mathml, items))}</mrow>"
        case TexFraction(above, below):
            return f"<mfrac>{_to_mathml(above)}{_to_mathml(below)}</mfrac>"
        case TexRoot(inner):
            return f"<msqrt>{_to_mathml(inner)}</msqrt>"
        case TexAccent(base, sign):
            return f'<mover accent="true">{_to_mathml(base)}<mo>{escape(sign)}</mo></mover>'
        case TexScripts(base, low, high):
            return _scripts(base, low, high)
        case TexLeaf("space", width):
            return f'<mspace width="{width}em"/>'
        case TexLeaf("function", name):
            return f"<mi>{escape(name)}</mi><mo>&#x2061;</mo>"
        case TexLeaf("fence", sign):
            return f'<mo fence="true" stretchy="true">{escape(sign)}</mo>' if sign else ""
        case TexLeaf("mo", sign) if sign in "()[]|":
            return f'<mo stretchy="false">{escape(sign)}</mo>'
        case TexLeaf(kind, text):
            return f"<{kind}>{escape(text)}</{kind}>"


def _scripts(base: TexNode, low: TexNode | None, high: TexNode | None) -> str:
    over = isinstance(base, TexLeaf) and base.text in {"∑", "∏"}
    name = {
        (True, True): "munderover" if over else "msubsup",
        (True, False): "munder" if over else "msub",
        (False, True): "mover" if over else "msup",
    }[low is not None, high is not None]
    children = "".join(_to_mathml(node) for node in (base, low, high) if node is not None)
    return f"<{name}>{children}</{name}>"


_SUPERSCRIPTS = dict(zip("0123456789+-−n⊤iT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿᵀⁱᵀ", strict=True))


def to_plain_text(tex: str) -> str:
    r"""Return the formula as a line of plain text.

    >>> to_plain_text(r"\operatorname{softmax}\left(\frac{Q K^{\top}}{\sqrt{d_k}} + M\right) V")
    'softmax(QKᵀ / √d_k + M) V'
    """
    text = _to_text(parse(tex))
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"([(\[⟨]) | ([)\]⟩,])", lambda match: match[1] or match[2], text)


def _to_text(node: TexNode) -> str:
    match node:
        case TexRow(items):
            return _join(items)
        case TexFraction(above, below):
            return f"{_bracketed(above)} / {_bracketed(below)}"
        case TexRoot(inner):
            return f"√{_bracketed(inner)}"
        case TexAccent(base, over):
            return _to_text(base) + {"¯": "\u0304", "^": "\u0302", "~": "\u0303"}.get(over, over)
        case TexScripts(base, low, high):
            lowered = "" if low is None else f"_{_bracketed(low)}"
            return _to_text(base) + lowered + ("" if high is None else _superscript(high))
        case TexLeaf("space", _):
            return " "
        case TexLeaf("mo", sign) if sign in "+−=·×≤≥≠≈∈→↦⊙⊕∘±∝<>" or sign == "mod":
            return f" {sign} "
        case TexLeaf("mo", "," | ";" | ":" as stop):
            return f"{stop} "
        case TexLeaf(_, text):
            return text
    raise AssertionError(node)


def _join(items: tuple[TexNode, ...]) -> str:
    # Single letters are joined, as in QKᵀ; names, indexed letters and fractions need spaces or brackets around them.
    text = ""
    for index, item in enumerate(items):
        piece = _to_text(item)
        if isinstance(item, TexFraction) and (_is_factor(items, index - 1) or _is_factor(items, index + 1)):
            piece = f"({piece})"
        touching = text[-1:] not in set(" ([⟨‖") and piece[:1] not in set(" )]⟩‖,")
        if text and touching and (_needs_space(item) or _needs_space(items[index - 1]) or text[-1] in ")‖⟩"):
            text += "" if piece[:1] in "([⟨" and _is_function(items[index - 1]) else " "
        text += piece
    return re.sub("^ − ", "−", text)  # a leading minus is a sign


def _is_factor(items: tuple[TexNode, ...], index: int) -> bool:
    """True if the item at `index` is a factor of a product."""
    if not 0 <= index < len(items):
        return False
    item = items[index]
    return not (isinstance(item, TexLeaf) and item.kind in {"mo", "fence", "space"})


def _is_function(node: TexNode) -> bool:
    return isinstance(node, TexLeaf) and node.kind in {"function", "mtext"}


def _needs_space(node: TexNode) -> bool:
    if isinstance(node, TexScripts):
        return node.low is not None or _needs_space(node.base)
    return isinstance(node, TexFraction | TexRoot) or _is_function(node)


def _bracketed(node: TexNode) -> str:
    """Return the node as text, in brackets unless it is atomic."""
    text = _to_text(node).strip()
    is_atomic = " " not in text or isinstance(node, TexScripts) or re.fullmatch("⟨[^⟨⟩]*⟩", text)
    return text if is_atomic else f"({text})"


def _superscript(node: TexNode) -> str:
    text = _to_text(node).replace(" ", "")
    if text and all(character in _SUPERSCRIPTS for character in text):
        return "".join(_SUPERSCRIPTS[character] for character in text)
    return f"^{_bracketed(node)}"
