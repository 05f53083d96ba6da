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
class Leaf:
    """Leaf node: identifier, number, operator, text or space; `kind` is its MathML tag."""

    kind: str
    text: str


@dataclass(frozen=True)
class Row:
    """Sequence of nodes (mrow)."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True)
class Fraction:
    """Fraction (mfrac)."""

    above: "Node"
    below: "Node"


@dataclass(frozen=True)
class Root:
    """Square root (msqrt)."""

    inner: "Node"


@dataclass(frozen=True)
class Scripted:
    """Node with a subscript, a superscript or both."""

    base: "Node"
    low: "Node | None"
    high: "Node | None"


@dataclass(frozen=True)
class Accent:
    """Node with an accent above it."""

    base: "Node"
    sign: str


Node = Leaf | Row | Fraction | Root | Scripted | Accent


def parse(tex: str) -> Node:
    """Parse a formula into a tree."""
    return _Reader(tex).row(until=None)


class _Reader:
    def __init__(self, tex: str) -> None:
        self.tex = tex
        self.tokens = _TOKEN.findall(tex)
        self.place = 0

    def refuse(self, what: str) -> UnknownTeX:
        return UnknownTeX(f"{what} in {self.tex!r}")

    def peek(self) -> str | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise self.refuse("the formula ends too early")
        self.place += 1
        return token

    def skip_space(self) -> None:
        while (token := self.peek()) is not None and token.isspace():
            self.place += 1

    def row(self, until: str | None) -> Node:
        """Parse everything up to and including `until`."""
        items: list[Node] = []
        while True:
            self.skip_space()
            token = self.peek()
            if token is None and until is None:
                break
            if token == until:
                self.take()
                break
            if token in {"}", r"\right", "&", r"\\"}:
                raise self.refuse(f"unmatched {token}")
            items.append(self.scripted())
        return items[0] if len(items) == 1 else Row(tuple(items))

    def scripted(self) -> Node:
        base = Row(()) if self.peek() in {"_", "^"} else self.atom()
        scripts: dict[str, Node] = {}
        while True:
            self.skip_space()
            mark = self.peek()
            if mark not in {"_", "^"}:
                break
            if mark in scripts:
                raise self.refuse(f"two {mark} after one node")
            self.take()
            scripts[mark] = self.argument()
        return Scripted(base, scripts.get("_"), scripts.get("^")) if scripts else base

    def argument(self) -> Node:
        self.skip_space()
        return self.atom()

    def atom(self) -> Node:
        token = self.take()
        if token == "{":
            return self.row(until="}")
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0] in "0123456789":
            return Leaf("mn", token)
        if token.isascii() and token.isalpha():
            return Leaf("mi", token)
        if token in "+-=()[],.:;/|!<>'*":
            return Leaf("mo", {"-": "−", "'": "′", "*": "∗"}.get(token, token))
        raise self.refuse(f"the character {token!r}")

    def command(self, name: str) -> Node:
        if name in SYMBOLS:
            return Leaf("mo", SYMBOLS[name])
        if name in LETTERS:
            return Leaf("mi", LETTERS[name])
        if name in FUNCTIONS:
            return Leaf("function", name)
        if name in SPACES:
            return Leaf("space", str(SPACES[name]))
        if name in ACCENTS:
            return Accent(self.argument(), ACCENTS[name])
        special: dict[str, Callable[[], Node]] = {
            "frac": lambda: Fraction(self.argument(), self.argument()),
            "tfrac": lambda: Fraction(self.argument(), self.argument()),
            "sqrt": lambda: Root(self.argument()),
            "operatorname": lambda: Leaf("function", self.words()),
            "text": lambda: Leaf("mtext", self.words()),
            "mathrm": lambda: Leaf("mtext", self.words()),
            "mathbf": self.argument,
            "left": self.fenced,
        }
        if name not in special:
            raise self.refuse(f"the unknown command \\{name}")
        return special[name]()

    def words(self) -> str:
        """Parse text in braces, character by character."""
        self.skip_space()
        if self.take() != "{":
            raise self.refuse("text without braces")
        characters = []
        while (token := self.take()) != "}":
            if token.startswith("\\") and token[1:] not in {"_", "%", "&", "#", "$", " ", "-"}:
                raise self.refuse(f"the command {token} inside text")
            if token in {"{", "$", "%", "#", "&", "~", "^", "_"}:
                raise self.refuse(f"the character {token!r} inside text")
            characters.append(token.removeprefix("\\"))
        return "".join(characters)

    def fenced(self) -> Node:
        opened = self.fence()
        inner = self.row(until=r"\right")
        return Row((Leaf("fence", opened), inner, Leaf("fence", self.fence())))

    def fence(self) -> str:
        self.skip_space()
        token = self.take()
        delimiter = SYMBOLS.get(token[1:]) if token.startswith("\\") else token
        if delimiter is None or delimiter not in set("()[]{}|.⟨⟩‖⌊⌋⌈⌉"):
            raise self.refuse(f"the fence {token}")
        return "" if delimiter == "." else delimiter


def mathml(tex: str) -> str:
    """Return the formula as a MathML element.

    >>> mathml("d_k")
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><msub><mi>d</mi><mi>k</mi></msub></math>'
    """
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">{_marked_up(parse(tex))}</math>'


def _marked_up(node: Node) -> str:
    match node:
        case Row(items):
            return f"<mrow>{''.join(map(_marked_up, items))}</mrow>"
        case Fraction(above, below):
            return f"<mfrac>{_marked_up(above)}{_marked_up(below)}</mfrac>"
        case Root(inner):
            return f"<msqrt>{_marked_up(inner)}</msqrt>"
        case Accent(base, sign):
            return f'<mover accent="true">{_marked_up(base)}<mo>{escape(sign)}</mo></mover>'
        case Scripted(base, low, high):
            return _scripts(base, low, high)
        case Leaf("space", width):
            return f'<mspace width="{width}em"/>'
        case Leaf("function", name):
            return f"<mi>{escape(name)}</mi><mo>&#x2061;</mo>"
        case Leaf("fence", sign):
            return f'<mo fence="true" stretchy="true">{escape(sign)}</mo>' if sign else ""
        case Leaf("mo", sign) if sign in "()[]|":
            return f'<mo stretchy="false">{escape(sign)}</mo>'
        case Leaf(kind, text):
            return f"<{kind}>{escape(text)}</{kind}>"


def _scripts(base: Node, low: Node | None, high: Node | None) -> str:
    over = isinstance(base, Leaf) and base.text in {"∑", "∏"}
    name = {
        (True, True): "munderover" if over else "msubsup",
        (True, False): "munder" if over else "msub",
        (False, True): "mover" if over else "msup",
    }[low is not None, high is not None]
    children = "".join(_marked_up(node) for node in (base, low, high) if node is not None)
    return f"<{name}>{children}</{name}>"


_RAISED = dict(zip("0123456789+-−n⊤iT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿᵀⁱᵀ", strict=True))


def plain(tex: str) -> str:
    r"""Return the formula as a line of plain text.

    >>> plain(r"\operatorname{softmax}\left(\frac{Q K^{\top}}{\sqrt{d_k}} + M\right) V")
    'softmax(QKᵀ / √d_k + M) V'
    """
    text = _said(parse(tex))
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"([(\[⟨]) | ([)\]⟩,])", lambda match: match[1] or match[2], text)


def _said(node: Node) -> str:
    match node:
        case Row(items):
            return _joined(items)
        case Fraction(above, below):
            return f"{_held(above)} / {_held(below)}"
        case Root(inner):
            return f"√{_held(inner)}"
        case Accent(base, over):
            return _said(base) + {"¯": "\u0304", "^": "\u0302", "~": "\u0303"}.get(over, over)
        case Scripted(base, low, high):
            lowered = "" if low is None else f"_{_held(low)}"
            return _said(base) + lowered + ("" if high is None else _raised(high))
        case Leaf("space", _):
            return " "
        case Leaf("mo", sign) if sign in "+−=·×≤≥≠≈∈→↦⊙⊕∘±∝<>" or sign == "mod":
            return f" {sign} "
        case Leaf("mo", "," | ";" | ":" as stop):
            return f"{stop} "
        case Leaf(_, text):
            return text
    raise AssertionError(node)


def _joined(items: tuple[Node, ...]) -> str:
    # Single letters are joined, as in QKᵀ; names, indexed letters and fractions need spaces or brackets around them.
    text = ""
    for index, item in enumerate(items):
        piece = _said(item)
        if isinstance(item, Fraction) and (_is_factor(items, index - 1) or _is_factor(items, index + 1)):
            piece = f"({piece})"
        touching = text[-1:] not in set(" ([⟨‖") and piece[:1] not in set(" )]⟩‖,")
        if text and touching and (_wants_air(item) or _wants_air(items[index - 1]) or text[-1] in ")‖⟩"):
            text += "" if piece[:1] in "([⟨" and _is_function(items[index - 1]) else " "
        text += piece
    return re.sub("^ − ", "−", text)  # a leading minus is a sign


def _is_factor(items: tuple[Node, ...], place: int) -> bool:
    """True if the item at `index` is a factor of a product."""
    if not 0 <= place < len(items):
        return False
    item = items[place]
    return not (isinstance(item, Leaf) and item.kind in {"mo", "fence", "space"})


def _is_function(node: Node) -> bool:
    return isinstance(node, Leaf) and node.kind in {"function", "mtext"}


def _wants_air(node: Node) -> bool:
    if isinstance(node, Scripted):
        return node.low is not None or _wants_air(node.base)
    return isinstance(node, Fraction | Root) or _is_function(node)


def _held(node: Node) -> str:
    """Return the node as text, in brackets unless it is atomic."""
    text = _said(node).strip()
    is_atomic = " " not in text or isinstance(node, Scripted) or re.fullmatch("⟨[^⟨⟩]*⟩", text)
    return text if is_atomic else f"({text})"


def _raised(node: Node) -> str:
    text = _said(node).replace(" ", "")
    if text and all(character in _RAISED for character in text):
        return "".join(_RAISED[character] for character in text)
    return f"^{_held(node)}"
