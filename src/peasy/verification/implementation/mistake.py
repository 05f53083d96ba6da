"""Catalogue of known attention mistakes, each with its change to the formula and a fix; report of those found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from peasy.verification.implementation.call_binding import CallBinding
from peasy.verification.implementation.diagnosis import (
    CAUTION,
    MISTAKE,
    Diagnosis,
    FirstDifference,
    ImplementationFinding,
)
from peasy.verification.implementation.target import SourceCode, TargetDescription
from peasy.verification.implementation.variant import Variant

_SCALED_FORMULA = "scaled = QKᵀ / √d_k"
_MASKED_FORMULA = "masked = scaled + M, with M = -∞ where a query may not attend"
_WEIGHTS_FORMULA = "weights = softmax(masked), over the keys of each query"
_HEADS_FORMULA = "Concat(head_1, ..., head_h): each token's width is split into heads"
_CAUSAL_FORMULA = "query i may attend to key j where j ≤ i + (keys - queries)"


@dataclass(frozen=True)
class Mistake:
    """A mistake: its name, the changes to the formula (`variant_changes`: alternatives), explanation and fix.

    `source_words` are searched in the source for the likely line; `prefer_last`: take the last match, not the first.
    """

    name: str
    description: str
    formula: str
    likely_code: str
    fix: str
    variant_changes: Sequence[Mapping[str, str | int | bool]] = ()
    source_words: tuple[str, ...] = ()
    level: str = MISTAKE
    prefer_last: bool = False

    def apply_to(self, variant: Variant) -> list[Variant]:
        """Return the variants with this mistake added, where it can apply."""
        applicable = (changes for changes in self.variant_changes if self._is_applicable(variant, changes))
        variants = (replace(variant, **changes) for changes in applicable)  # type: ignore[arg-type]
        return [changed for changed in variants if changed != variant]

    def _is_applicable(self, variant: Variant, changes: Mapping[str, str | int | bool]) -> bool:
        """Causal mistakes need a causal variant, and no line can be wrong twice."""
        correct = Variant(causal=variant.causal, rope=variant.rope)
        if any(key not in ("causal", "rope") and getattr(variant, key) != getattr(correct, key) for key in changes):
            return False
        return "causal" not in changes or variant.causal == 0

    def to_finding(self, source: SourceCode, difference: FirstDifference | None = None) -> ImplementationFinding:
        """Return it as a finding, with the likely source line."""
        line, code = source.find_line(self.source_words, self.prefer_last)
        return ImplementationFinding(
            self.name, self.level, self.description, self.formula, self.likely_code, self.fix, line, code, difference
        )


_SCORE_WORDS = ("sqrt", "** -0.5", "**-0.5", "** 0.5", "**0.5", "scale", " @ ", "matmul", "bmm", "einsum", "dot(")
_MASK_WORDS = ("masked_fill", "where(", "-inf", "1e9", "mask", "tril", "triu")
_CAUSAL_WORDS = ("tril", "triu", "diagonal", "causal", "mask")

MISTAKES = (
    Mistake(
        "no scale", "The scores are not divided by √d_k.", _SCALED_FORMULA,
        "scores = q @ k.transpose(-2, -1)", "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        [{"scale": "none"}], (" @ ", "matmul", "bmm", "einsum", "dot("),
    ),
    Mistake(
        "scale by d_k", "The scores are divided by d_k, not by √d_k.", _SCALED_FORMULA,
        "scores / d_k", "scores / math.sqrt(d_k)",
        [{"scale": "width"}], _SCORE_WORDS,
    ),
    Mistake(
        "scale by model width", "The scores are divided by √d_model instead of √d_k: each head is narrower.",
        _SCALED_FORMULA, "scores / math.sqrt(d_model)", "scores / math.sqrt(d_model // n_heads)",
        [{"scale": "model"}], _SCORE_WORDS,
    ),
    Mistake(
        "scale multiplied", "The scores are multiplied by √d_k instead of divided.", _SCALED_FORMULA,
        "scores * math.sqrt(d_k)", "scores / math.sqrt(d_k)",
        [{"scale": "times"}], _SCORE_WORDS,
    ),
    Mistake(
        "scale after softmax", "The weights are divided by √d_k after the softmax, not the scores before it.",
        _SCALED_FORMULA, "softmax(scores) / math.sqrt(d_k)", "softmax(scores / math.sqrt(d_k))",
        [{"scale": "late"}], _SCORE_WORDS,
    ),
    Mistake(
        "softmax over queries", "The softmax runs over the queries: columns sum to 1, rows do not.", _WEIGHTS_FORMULA,
        "softmax(scores, dim=-2)", "softmax(scores, dim=-1)",
        [{"softmax_over": "queries"}], ("softmax", "exp("),
    ),
    Mistake(
        "mask after softmax", "The mask is applied after the softmax: masked keys still count in each row's sum.",
        _MASKED_FORMULA, "softmax(scores) * mask", "softmax(scores.masked_fill(~mask, float('-inf')))",
        [{"masking": "after"}], ("* mask", "*mask", *_MASK_WORDS),
    ),
    Mistake(
        "mask inverted", "The mask is inverted: queries attend only to the keys that should be masked.",
        _MASKED_FORMULA,
        "scores.masked_fill(mask, -inf) with True = may attend", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "inverted"}, {"attends_ahead": True}], _MASK_WORDS,
    ),
    Mistake(
        "mask multiplies scores", "Masked scores become 0 instead of -∞: e⁰ = 1 still gets a weight.",
        _MASKED_FORMULA, "scores * mask", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "zeroed"}], ("* mask", "*mask", "* torch.tril", "* np.tril", ", 0)", *_MASK_WORDS),
    ),
    Mistake(
        "mask ignored", "The mask argument has no effect.", _MASKED_FORMULA,
        "def attention(q, k, v, mask): ... and no mask below", "scores.masked_fill(~mask, float('-inf'))",
        [{"masking": "ignored"}], ("mask",),
    ),
    Mistake(
        "causal mask off by one (future)", "Each query also attends to the next token: the one it should predict.",
        _CAUSAL_FORMULA,
        "torch.tril(ones, diagonal=1), or triu(diagonal=2) masked", "torch.tril(ones), or triu(diagonal=1) masked",
        [{"causal": 1}], _CAUSAL_WORDS,
    ),
    Mistake(
        "causal mask off by one (self)", "No query attends to its own token; the first row is fully masked.",
        _CAUSAL_FORMULA,
        "torch.tril(ones, diagonal=-1), or triu(diagonal=0) masked", "torch.tril(ones), or triu(diagonal=1) masked",
        [{"causal": -1}], _CAUSAL_WORDS,
    ),
    Mistake(
        "keys and values swapped", "The queries are scored against the values, and the keys are summed.",
        "context = softmax(QKᵀ/√d_k) V", "softmax(q @ v.transpose(-2, -1)) @ k",
        "softmax(q @ k.transpose(-2, -1)) @ v",
        [{"keys_values_swapped": True}], (" @ ", "matmul", "bmm", "einsum", "dot("),
    ),
    Mistake(
        "heads split by a wrong reshape", "The width is reshaped directly into heads, which mixes tokens.",
        _HEADS_FORMULA, "x.view(batch, heads, time, width)", "x.view(batch, time, heads, width).transpose(1, 2)",
        [{"head_split": "reshape"}], (".view(", ".reshape(", "rearrange("),
    ),
    Mistake(
        "heads merged without transpose", "The heads are merged without transposing back, which mixes tokens.",
        _HEADS_FORMULA, "context.reshape(batch, time, d_model)",
        "context.transpose(1, 2).reshape(batch, time, d_model)",
        [{"head_merge": "reshape"}], (".reshape(", ".view(", "rearrange("), prefer_last=True,
    ),
    Mistake(
        "kv heads tiled", "Key/value heads are tiled; adjacent query heads should share one.",
        "query head i uses key head i // group", "k.repeat(1, group, 1, 1)", "k.repeat_interleave(group, dim=1)",
        [{"group_order": "tile"}], ("repeat(", "tile(", "expand("),
    ),
)  # fmt: skip
"""Mistakes that show in the outputs of one call. If two fit equally well, the first is reported."""

CACHE_MISTAKES = (
    Mistake(
        "causal top-left with a cache",
        "With a cache the causal mask is aligned top-left: new queries cannot attend to all earlier keys.",
        _CAUSAL_FORMULA, "torch.tril(torch.ones(queries, keys)), or is_causal=True",
        "torch.tril(torch.ones(queries, keys), diagonal=keys - queries)",
        [{"causal_alignment": "start"}], ("is_causal", *_CAUSAL_WORDS),
    ),
    Mistake(
        "positions not shifted with the cache",
        "Positions of new tokens start at 0 again instead of after the cached tokens.",
        "position of a new token = tokens in the cache + its index", "positions = torch.arange(x.size(1))",
        "positions = torch.arange(past, past + x.size(1))",
        [{"offset_positions": False}], ("arange", "pos", "rope", "rotary", "freqs"),
    ),
    Mistake(
        "cache not used", "The cached keys and values are not used.", "K = all keys so far, V = all values so far",
        "k, v = new ones only", "k = torch.cat([past_k, k], dim=-2)", (), ("cache", "past"),
    ),
)  # fmt: skip
"""Mistakes that only show when a sequence is processed in chunks with a cache."""

TOP_LEFT_CAUTION = replace(
    CACHE_MISTAKES[0],
    level=CAUTION,
    description="With fewer queries than keys the causal mask is aligned top-left; with a cache that would be wrong.",
)
DROPOUT_MISTAKE = Mistake(
    "dropout left on", "The same input gives different outputs: dropout is active outside of training.",
    "context = weights · V", "F.dropout(weights, p)", "F.dropout(weights, p, training=self.training)",
    (), ("dropout(", "Dropout(", "drop"),
)  # fmt: skip
NAN_ROWS_CAUTION = Mistake(
    "NaN on fully masked rows", "A fully masked row gives NaN, which spreads through the network.",
    "a fully masked row gives zeros", "softmax of a row of -∞",
    "torch.nan_to_num(weights), or zeros for such rows",
    (), ("softmax",), CAUTION,
)  # fmt: skip


@dataclass
class Report:
    """Mutable state of an examination."""

    description: TargetDescription
    binding: CallBinding
    conventions: list[str] = field(default_factory=list)
    findings: list[ImplementationFinding] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    explained: bool = True
    difference: FirstDifference | None = None

    def add_mistakes(self, mistakes: Sequence[Mistake], difference: FirstDifference | None = None) -> None:
        """Add mistakes as findings, each once."""
        for mistake in mistakes:
            if mistake.name not in {finding.name for finding in self.findings}:
                self.findings.append(mistake.to_finding(self.description.source, difference))

    def set_unexplained(self, call: str, difference: FirstDifference | None = None) -> None:
        """Note that no known mistake explains the outputs of this kind of call."""
        self.explained = False
        self.notes.append(f"No known mistake explains its outputs {call}.")
        self.difference = self.difference or difference

    def to_diagnosis(self, name: str, kind: str) -> Diagnosis:
        """Return the final diagnosis."""
        return Diagnosis(
            name, kind, self.binding.summary(), tuple(self.conventions), tuple(self.findings), tuple(self.checks),
            self.explained, self.difference, tuple(self.notes),
        )  # fmt: skip
