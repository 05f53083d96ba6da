"""Step aliases: maps captions as people write them ("QK^T / √d_k", "Attention weights") to step names."""

import re
from functools import lru_cache
from pathlib import Path

from peasy import config

CAPTIONS = {
    "x": "X", "source": "source", "w_q": "W_Q", "b_q": "b_Q", "w_k": "W_K", "b_k": "b_K", "w_v": "W_V", "b_v": "b_V",
    "w_o": "W_O", "b_o": "b_O", "query": "Q", "key": "K", "key_transposed": "K^T", "value": "V",
    "scores": "scores", "scaled": "scaled", "masked": "masked", "powers": "powers", "sums": "sums",
    "weights": "weights", "context": "context", "concat": "concat", "output": "output",
}  # fmt: skip
"""Every table that can be checked, in order of dependence, with its short caption."""

PROJECTIONS, BIASES = ("w_q", "w_k", "w_v", "w_o"), ("b_q", "b_k", "b_v", "b_o")

PER_HEAD = (
    "query", "key", "key_transposed", "value", "scores", "scaled", "masked", "powers", "sums", "weights", "context",
)  # fmt: skip
"""Tables that exist once per head."""

AMBIGUOUS = {
    "scores": ("scaled", "weights", "x"), "context": ("weights", "output", "scores"),
    "output": ("context", "weights", "scores", "scaled"),
    "weights": ("context",), "x": ("scores",),
}  # fmt: skip
"""Other tables that a caption may also mean, by the step it usually names, if the numbers say so."""
_ALIASES: dict[str, str] = config.load(Path(__file__).with_name("step_aliases.toml"))
_STEP_OF_ALIAS = {alias: step for step, aliases in _ALIASES.items() for alias in aliases.split()}
_FILLERS = {"matrix", "table", "the", "a", "of", "our", "my", "vectors", "values:", "matrices"}
_FORMULA = re.compile(r"(softmax)?[\d.,/]*(dk)?qkt/?[\d.,]*(dk)?(\+m)?v?")
_HEAD = re.compile(r"[\s,(^{]*\bhead[\s_{-]*(\d+)[}).]*", re.IGNORECASE)
_MARKUP = re.compile(
    r"\\(?:text|textbf|textit|mathbf|mathrm|mathit|operatorname|mathsf|emph)\b|\\[dt]?frac|\\(?:left|right)|\\[,;:! ]"
)
_NUMBERING = re.compile(
    r"^\s*(?:(?:step|table|figure|part|phase|schritt|étape|paso|passo|etapa|шаг|bước|步骤|단계)\s*\d+\s*[)\].:：—–-]*"
    r"|第[一二三四五六七八九十\d]+步\s*[：:—]?|[(\[]?\d+[)\].:]+)\s*",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def parse_caption(text: str) -> tuple[str, int | None] | None:
    """Return the step and head that a caption names, or None if it names no step.

    >>> parse_caption("**3. Scores**"), parse_caption("QK^T / √d_k"), parse_caption("weights, head 2")
    (('scores', None), ('scaled', None), ('weights', 2))
    >>> parse_caption("My holidays") is None
    True
    """
    if len(text) > 200:
        return None
    match = _HEAD.search(text)
    head = int(match[1]) if match else None
    bare = f"{text[: match.start()]} {text[match.end() :]}" if match else text
    for candidate in _caption_candidates(bare):
        squeezed = _normalise_caption(candidate)
        step = _STEP_OF_ALIAS.get(squeezed) or _step_of_formula(squeezed)
        if step:
            return step, head
    if head is not None and not _normalise_caption(bare):
        return "context", head
    return None


def table_caption(node: str) -> str:
    """Return the caption of a table for findings; a node of a network keeps its name.

    >>> table_caption("query"), table_caption("head-2.weights"), table_caption("norm.mean")
    ('Q', 'head-2.weights', 'norm.mean')
    """
    head, dot, step = node.rpartition(".")
    return head + dot + CAPTIONS.get(step, step) if not head or head.startswith("head-") else node


def _caption_candidates(text: str) -> list[str]:
    """Candidate captions: the whole text, the part before a remark, the part after a number or an equals sign."""
    text = _NUMBERING.sub("", text.strip().lstrip("#").strip().strip("*").strip())
    sides = [side for side in re.split(r"=", text) if side.strip()]
    formulas = [side for side in sides[1:] if "qkt/" in _normalise_caption(side).replace("qktdk", "qkt/dk")]
    shorter = [re.split(r"[:,;(—–$]| - ", side.strip(" $"), maxsplit=1)[0] for side in sides]
    return [
        text,
        *formulas,
        *sides[:1],
        *shorter[:1],
        *_drop_fillers(shorter[:1]),
        *sides[1:],
        *(re.split(r"[:—–]", text)[1:2]),
    ]


def _drop_fillers(captions: list[str]) -> list[str]:
    """Drop filler words: `Weight matrix W_Q` -> W_Q, `Query matrix Q` -> Query."""
    words = [word for word in " ".join(captions).split() if word.lower() not in _FILLERS]
    if not 1 <= len(words) <= 4:
        return []
    symbol = [words[-1]] if words[-1].lstrip("$")[:2] in ("W_", "W^") else []
    return [*symbol, " ".join(words), *([" ".join(words[:-1])] if len(words) > 1 and len(words[-1]) <= 6 else [])]


def _step_of_formula(text: str) -> str | None:
    """Return the step of a formula that contains QK^T, with any notation of the scale."""
    if not _FORMULA.fullmatch(text):
        return None
    if text.startswith("softmax"):
        return "context" if text.endswith("v") else "weights"
    return "masked" if text.endswith("+m") else "scaled"


def _normalise_caption(text: str) -> str:
    text = _MARKUP.sub("", text).replace("\\top", "t").replace("⊤", "t").replace("ᵀ", "t").replace("\\sqrt", "")
    text = text.replace("√", "").replace("sqrt", "").replace("ₖ", "k").lower()
    return re.sub(r"[\s_{}$*`()\[\]\\·×⋅@:^'\"-]|\b(?:times|cdot)\b", "", text.replace("e^", "e\0")).replace(
        "e\0", "e^"
    )
