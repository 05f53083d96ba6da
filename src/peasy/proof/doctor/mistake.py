"""The mistakes that the doctor knows: what each one changes in the formula, and what to say about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peasy.proof.doctor.diagnosis import CAUTION, MISTAKE, Difference, Finding
from peasy.proof.doctor.variant import Variant

_SCALED = "scaled = QKᵀ / √d_k"
_MASKED = "masked = scaled + M, with M = -∞ where a query may not look"
_WEIGHTS = "weights = softmax(masked), over the keys of each query"
_HEADS = "Concat(head_1, ..., head_h): each token's width is cut into heads"
_CAUSAL = "query i may look at key j where j ≤ i + (keys - queries)"


@dataclass(frozen=True)
class Mistake:
    """A name, the lines of the formula it changes (any of several ways), and what a person is told.

    `seek` are words of the source line that most likely does it, the `last` such line where that is likelier.
    """

    name: str
    says: str
    formula: str
    likely: str
    fix: str
    ways: Sequence[Mapping[str, Any]] = ()
    seek: tuple[str, ...] = ()
    level: str = MISTAKE
    last: bool = False

    def applied(self, variant: Variant) -> list[Variant]:
        """What code with this mistake would compute, where it could have been right before."""
        changed = [replace(variant, **way) for way in self.ways if self._fits(variant, way)]
        return [each for each in changed if each != variant]

    def _fits(self, variant: Variant, way: Mapping[str, Any]) -> bool:
        """Causal mistakes need a causal patient; no line is wrong twice."""
        plain = Variant(causal=variant.causal, turn=variant.turn)
        if any(key not in ("causal", "turn") and getattr(variant, key) != getattr(plain, key) for key in way):
            return False
        return "causal" not in way or variant.causal == 0

    def finding(self, source: "Source", difference: Difference | None = None) -> Finding:
        """As a finding, with the line of the source that most likely does it."""
        line, code = source.find(self.seek, self.last)
        return Finding(self.name, self.level, self.says, self.formula, self.likely, self.fix, line, code, difference)


@dataclass(frozen=True)
class Source:
    """The patient's own text, where it can be read; `first` is the number of its first line in the file."""

    text: str = ""
    first: int = 1

    def find(self, words: Sequence[str], last: bool = False) -> tuple[int | None, str]:
        """The first (or `last`) line with one of these words, the likeliest word first."""
        lines = list(enumerate(self.text.splitlines(), self.first))
        for word in words:
            for number, line in reversed(lines) if last else lines:
                if word in line.split("#")[0] and not line.strip().startswith(("def ", "class ", "import ", "from ")):
                    return number, line.strip()
        return None, ""


_PRODUCT = ("sqrt", "** -0.5", "**-0.5", "** 0.5", "**0.5", "scale", " @ ", "matmul", "bmm", "einsum", "dot(")
_MASK = ("masked_fill", "where(", "-inf", "1e9", "mask", "tril", "triu")
_TRIANGLE = ("tril", "triu", "diagonal", "causal", "mask")

MISTAKES = (
    Mistake(
        "no scale", "The scores are not divided by the root of the key's width.", _SCALED,
        "scores = q @ k.transpose(-2, -1)", "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        [{"scale": "none"}], (" @ ", "matmul", "bmm", "einsum", "dot("),
    ),
    Mistake(
        "scale d_k instead of its root", "The scores are divided by the key's width itself, not by its root.", _SCALED,
        "scores / d_k", "scores / math.sqrt(d_k)",
        [{"scale": "width"}], _PRODUCT,
    ),
    Mistake(
        "scale by model width", "The scores are divided by the root of the model's width; each head is narrower.",
        _SCALED, "scores / math.sqrt(d_model)", "scores / math.sqrt(d_model // n_heads)",
        [{"scale": "model"}], _PRODUCT,
    ),
    Mistake(
        "scale multiplied", "The scores are multiplied by the root of the key's width instead of divided.", _SCALED,
        "scores * math.sqrt(d_k)", "scores / math.sqrt(d_k)",
        [{"scale": "times"}], _PRODUCT,
    ),
    Mistake(
        "scale after softmax", "The weights are divided by the root of the key's width, after the softmax.", _SCALED,
        "softmax(scores) / math.sqrt(d_k)", "softmax(scores / math.sqrt(d_k))",
        [{"scale": "late"}], _PRODUCT,
    ),
    Mistake(
        "softmax over queries", "The softmax runs over the queries: columns sum to 1, rows do not.", _WEIGHTS,
        "softmax(scores, dim=-2)", "softmax(scores, dim=-1)",
        [{"over": "queries"}], ("softmax", "exp("),
    ),
    Mistake(
        "mask after softmax", "The mask is laid over the weights: hidden keys still took their share of each row.",
        _MASKED, "softmax(scores) * mask", "softmax(scores.masked_fill(~mask, float('-inf')))",
        [{"masking": "after"}], ("* mask", "*mask", *_MASK),
    ),
    Mistake(
        "mask inverted", "The mask is the wrong way round: what should be hidden is all that is seen.", _MASKED,
        "scores.masked_fill(mask, -inf) with True = may look", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "inverted"}, {"ahead": True}], _MASK,
    ),
    Mistake(
        "mask multiplies scores", "The mask makes hidden scores 0, not minus infinity: e⁰ = 1 is still a share.",
        _MASKED, "scores * mask", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "zeroed"}], ("* mask", "*mask", "* torch.tril", "* np.tril", ", 0)", *_MASK),
    ),
    Mistake(
        "mask ignored", "A mask is taken and changes nothing.", _MASKED,
        "def attention(q, k, v, mask): ... and no mask below", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "ignored"}], ("mask",),
    ),
    Mistake(
        "causal sees the next token", "Each query sees one token too many: the one it should predict.", _CAUSAL,
        "torch.tril(ones, diagonal=1), or triu(diagonal=2) hidden", "torch.tril(ones), or triu(diagonal=1) hidden",
        [{"causal": 1}], _TRIANGLE,
    ),
    Mistake(
        "causal misses itself", "No query sees its own token, and the first one sees nothing.", _CAUSAL,
        "torch.tril(ones, diagonal=-1), or triu(diagonal=0) hidden", "torch.tril(ones), or triu(diagonal=1) hidden",
        [{"causal": -1}], _TRIANGLE,
    ),
    Mistake(
        "keys and values swapped", "The queries are scored against the values, and the keys are summed.",
        "context = softmax(QKᵀ/√d_k) V", "softmax(q @ v.transpose(-2, -1)) @ k",
        "softmax(q @ k.transpose(-2, -1)) @ v",
        [{"swapped": True}], (" @ ", "matmul", "bmm", "einsum", "dot("),
    ),
    Mistake(
        "heads split by a wrong reshape", "The width is reshaped straight into heads, which mixes tokens.", _HEADS,
        "x.view(batch, heads, time, width)", "x.view(batch, time, heads, width).transpose(1, 2)",
        [{"split": "reshape"}], (".view(", ".reshape(", "rearrange("),
    ),
    Mistake(
        "heads merged without transpose", "The heads are reshaped away without bringing time back, which mixes tokens.",
        _HEADS, "context.reshape(batch, time, d_model)", "context.transpose(1, 2).reshape(batch, time, d_model)",
        [{"merge": "reshape"}], (".reshape(", ".view(", "rearrange("), last=True,
    ),
    Mistake(
        "groups shared in the wrong order", "Key heads are tiled: neighbours should share one.",
        "query head i uses key head i // group", "k.repeat(1, group, 1, 1)", "k.repeat_interleave(group, dim=1)",
        [{"groups": "tile"}], ("repeat(", "tile(", "expand("),
    ),
)  # fmt: skip
"""All that can be told by computing it. Of two that fit equally well the first is named."""

CACHED = (
    Mistake(
        "causal top-left with a cache",
        "With a cache the causal mask starts at the first key: new queries see too little.",
        _CAUSAL, "torch.tril(torch.ones(queries, keys)), or is_causal=True",
        "torch.tril(torch.ones(queries, keys), diagonal=keys - queries)",
        [{"corner": "start"}], ("is_causal", *_TRIANGLE),
    ),
    Mistake(
        "positions not shifted with the cache",
        "New tokens are placed from 0 again, though cached ones stand before them.",
        "place of a new token = tokens in the cache + its index", "positions = torch.arange(x.size(1))",
        "positions = torch.arange(past, past + x.size(1))",
        [{"shifted": False}], ("arange", "pos", "rope", "rotary", "freqs"),
    ),
    Mistake(
        "cache not used", "Keys and values of the cache take no part.", "K = all keys so far, V = all values so far",
        "k, v = new ones only", "k = torch.cat([past_k, k], dim=-2)", (), ("cache", "past"),
    ),
)  # fmt: skip
"""What only shows when a text is read in pieces."""

TOP_LEFT = replace(
    CACHED[0],
    level=CAUTION,
    says="With fewer queries than keys the causal mask starts at the first key; with a cache that would be wrong.",
)
DROPOUT = Mistake(
    "dropout left on", "The same input gives different results: dropout is on where nothing is trained.",
    "context = weights · V", "F.dropout(weights, p)", "F.dropout(weights, p, training=self.training)",
    (), ("dropout(", "Dropout(", "drop"),
)  # fmt: skip
NAN_ROWS = Mistake(
    "NaN on fully masked rows", "A query that may look at nothing gets NaN, which spreads from there.",
    "a row without a visible key gets zeros", "softmax of a row of -∞",
    "torch.nan_to_num(weights), or zeros for such rows",
    (), ("softmax",), CAUTION,
)  # fmt: skip
