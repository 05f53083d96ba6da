"""Catalogue of known attention mistakes: the change to the formula, an explanation and a fix for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peasy.proof.doctor.diagnosis import CAUTION, MISTAKE, Difference, Finding
from peasy.proof.doctor.variant import Variant

_SCALED = "scaled = QKᵀ / √d_k"
_MASKED = "masked = scaled + M, with M = -∞ where a query may not attend"
_WEIGHTS = "weights = softmax(masked), over the keys of each query"
_HEADS = "Concat(head_1, ..., head_h): each token's width is split into heads"
_CAUSAL = "query i may attend to key j where j ≤ i + (keys - queries)"


@dataclass(frozen=True)
class Mistake:
    """A mistake: its name, the changes to the formula (`ways`: alternatives), explanation and fix.

    `seek` are words to search in the source for the likely line; `last`: take the last match, not the first.
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
        """Return the variants with this mistake added, where it can apply."""
        variants = [replace(variant, **changes) for changes in self.ways if self._fits(variant, changes)]
        return [changed for changed in variants if changed != variant]

    def _fits(self, variant: Variant, way: Mapping[str, Any]) -> bool:
        """Causal mistakes need a causal variant, and no line can be wrong twice."""
        correct = Variant(causal=variant.causal, turn=variant.turn)
        if any(key not in ("causal", "turn") and getattr(variant, key) != getattr(correct, key) for key in way):
            return False
        return "causal" not in way or variant.causal == 0

    def finding(self, source: "Source", difference: Difference | None = None) -> Finding:
        """Return it as a finding, with the likely source line."""
        line, code = source.find(self.seek, self.last)
        return Finding(self.name, self.level, self.says, self.formula, self.likely, self.fix, line, code, difference)


@dataclass(frozen=True)
class Source:
    """Source code of the target, if available; `first` is the line number of its first line."""

    text: str = ""
    first: int = 1

    def find(self, words: Sequence[str], last: bool = False) -> tuple[int | None, str]:
        """Return number and text of the first (or `last`) line with one of these words, in their order."""
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
        "no scale", "The scores are not divided by √d_k.", _SCALED,
        "scores = q @ k.transpose(-2, -1)", "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        [{"scale": "none"}], (" @ ", "matmul", "bmm", "einsum", "dot("),
    ),
    Mistake(
        "scale d_k instead of its root", "The scores are divided by d_k, not by √d_k.", _SCALED,
        "scores / d_k", "scores / math.sqrt(d_k)",
        [{"scale": "width"}], _PRODUCT,
    ),
    Mistake(
        "scale by model width", "The scores are divided by √d_model instead of √d_k: each head is narrower.",
        _SCALED, "scores / math.sqrt(d_model)", "scores / math.sqrt(d_model // n_heads)",
        [{"scale": "model"}], _PRODUCT,
    ),
    Mistake(
        "scale multiplied", "The scores are multiplied by √d_k instead of divided.", _SCALED,
        "scores * math.sqrt(d_k)", "scores / math.sqrt(d_k)",
        [{"scale": "times"}], _PRODUCT,
    ),
    Mistake(
        "scale after softmax", "The weights are divided by √d_k after the softmax, not the scores before it.", _SCALED,
        "softmax(scores) / math.sqrt(d_k)", "softmax(scores / math.sqrt(d_k))",
        [{"scale": "late"}], _PRODUCT,
    ),
    Mistake(
        "softmax over queries", "The softmax runs over the queries: columns sum to 1, rows do not.", _WEIGHTS,
        "softmax(scores, dim=-2)", "softmax(scores, dim=-1)",
        [{"over": "queries"}], ("softmax", "exp("),
    ),
    Mistake(
        "mask after softmax", "The mask is applied after the softmax: masked keys still count in each row's sum.",
        _MASKED, "softmax(scores) * mask", "softmax(scores.masked_fill(~mask, float('-inf')))",
        [{"masking": "after"}], ("* mask", "*mask", *_MASK),
    ),
    Mistake(
        "mask inverted", "The mask is inverted: queries attend only to the keys that should be masked.", _MASKED,
        "scores.masked_fill(mask, -inf) with True = may attend", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "inverted"}, {"ahead": True}], _MASK,
    ),
    Mistake(
        "mask multiplies scores", "Masked scores become 0 instead of -∞: e⁰ = 1 still gets a weight.",
        _MASKED, "scores * mask", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "zeroed"}], ("* mask", "*mask", "* torch.tril", "* np.tril", ", 0)", *_MASK),
    ),
    Mistake(
        "mask ignored", "The mask argument has no effect.", _MASKED,
        "def attention(q, k, v, mask): ... and no mask below", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "ignored"}], ("mask",),
    ),
    Mistake(
        "causal sees the next token", "Each query also attends to the next token: the one it should predict.", _CAUSAL,
        "torch.tril(ones, diagonal=1), or triu(diagonal=2) masked", "torch.tril(ones), or triu(diagonal=1) masked",
        [{"causal": 1}], _TRIANGLE,
    ),
    Mistake(
        "causal misses itself", "No query attends to its own token; the first row is fully masked.", _CAUSAL,
        "torch.tril(ones, diagonal=-1), or triu(diagonal=0) masked", "torch.tril(ones), or triu(diagonal=1) masked",
        [{"causal": -1}], _TRIANGLE,
    ),
    Mistake(
        "keys and values swapped", "The queries are scored against the values, and the keys are summed.",
        "context = softmax(QKᵀ/√d_k) V", "softmax(q @ v.transpose(-2, -1)) @ k",
        "softmax(q @ k.transpose(-2, -1)) @ v",
        [{"swapped": True}], (" @ ", "matmul", "bmm", "einsum", "dot("),
    ),
    Mistake(
        "heads split by a wrong reshape", "The width is reshaped directly into heads, which mixes tokens.", _HEADS,
        "x.view(batch, heads, time, width)", "x.view(batch, time, heads, width).transpose(1, 2)",
        [{"split": "reshape"}], (".view(", ".reshape(", "rearrange("),
    ),
    Mistake(
        "heads merged without transpose", "The heads are merged without transposing back, which mixes tokens.",
        _HEADS, "context.reshape(batch, time, d_model)", "context.transpose(1, 2).reshape(batch, time, d_model)",
        [{"merge": "reshape"}], (".reshape(", ".view(", "rearrange("), last=True,
    ),
    Mistake(
        "groups shared in the wrong order", "Key/value heads are tiled; adjacent query heads should share one.",
        "query head i uses key head i // group", "k.repeat(1, group, 1, 1)", "k.repeat_interleave(group, dim=1)",
        [{"groups": "tile"}], ("repeat(", "tile(", "expand("),
    ),
)  # fmt: skip
"""Mistakes that show in the outputs of one call. If two fit equally well, the first is reported."""

CACHED = (
    Mistake(
        "causal top-left with a cache",
        "With a cache the causal mask is aligned top-left: new queries cannot attend to all earlier keys.",
        _CAUSAL, "torch.tril(torch.ones(queries, keys)), or is_causal=True",
        "torch.tril(torch.ones(queries, keys), diagonal=keys - queries)",
        [{"corner": "start"}], ("is_causal", *_TRIANGLE),
    ),
    Mistake(
        "positions not shifted with the cache",
        "Positions of new tokens start at 0 again instead of after the cached tokens.",
        "position of a new token = tokens in the cache + its index", "positions = torch.arange(x.size(1))",
        "positions = torch.arange(past, past + x.size(1))",
        [{"shifted": False}], ("arange", "pos", "rope", "rotary", "freqs"),
    ),
    Mistake(
        "cache not used", "The cached keys and values are not used.", "K = all keys so far, V = all values so far",
        "k, v = new ones only", "k = torch.cat([past_k, k], dim=-2)", (), ("cache", "past"),
    ),
)  # fmt: skip
"""Mistakes that only show when a sequence is processed in chunks with a cache."""

TOP_LEFT = replace(
    CACHED[0],
    level=CAUTION,
    says="With fewer queries than keys the causal mask is aligned top-left; with a cache that would be wrong.",
)
DROPOUT = Mistake(
    "dropout left on", "The same input gives different outputs: dropout is active outside of training.",
    "context = weights · V", "F.dropout(weights, p)", "F.dropout(weights, p, training=self.training)",
    (), ("dropout(", "Dropout(", "drop"),
)  # fmt: skip
NAN_ROWS = Mistake(
    "NaN on fully masked rows", "A fully masked row gives NaN, which spreads through the network.",
    "a fully masked row gives zeros", "softmax of a row of -∞",
    "torch.nan_to_num(weights), or zeros for such rows",
    (), ("softmax",), CAUTION,
)  # fmt: skip
