"""`first-word`: effect of the causal mask on the first token, and attention sinks of a trained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.commands.alignment_head import LayerHead
from peasy.datasets import open_corpus
from peasy.experiments.model_variants import ModelSource, format_head, open_model, untrained
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status
from peasy.extras import require_extra
from peasy.formula import attend
from peasy.views.document import Curves, DocumentPart, Maps, Table

if TYPE_CHECKING:
    from torch import Tensor

    from peasy.commands.load import LoadedModel
    from peasy.inspection.forward import ModelInput

QUESTION = (
    "Under a causal mask the first token attends only to itself. What is its output, and is it an attention sink for "
    "the other tokens?"
)
SENTENCE = "The pizza came out of the oven and it tasted good"
TOLERANCE = 1e-5
SINK_WEIGHT = 0.5
"""A head is an attention sink if it gives the first token at least this weight."""


@dataclass(frozen=True)
class MaskComparison:
    """One sentence in every head, unmasked and masked: `weights` by head, `context_change` (relative) by position.

    `value_error`: largest difference between the first token's context and its value vector.
    """

    tokens: tuple[str, ...]
    weights: dict[LayerHead, tuple[np.ndarray, np.ndarray]]
    value_error: float
    context_change: tuple[float, ...]


@dataclass(frozen=True)
class FirstTokenAttention:
    """Mean attention weight of each head on the first token; `uniform` is that of uniform attention."""

    heads: dict[LayerHead, float]
    uniform: float

    @property
    def sinks(self) -> list[LayerHead]:
        """Heads that are attention sinks."""
        return [head for head, weight in self.heads.items() if weight >= SINK_WEIGHT]


def run(
    seed: int = 0,
    on_status: OnStatus = ignore_status,
    model: ModelSource = "stories",
    texts: int = 48,
    causal: bool = True,
) -> ExperimentResult:
    """Compare one sentence with and without a mask, then many texts. `causal=False` omits the mask (the control)."""
    require_extra("torch")
    loaded = open_model(model)
    on_status("one sentence, with and without a mask ...")
    comparison = compare_masks(loaded, causal)
    inputs = validation_stories(loaded, texts, seed)
    on_status(f"attention to the first token in {texts} texts ...")
    attention = {
        "trained": first_token_attention(loaded, inputs),
        "untrained": first_token_attention(untrained(loaded, seed), inputs),
    }
    on_status("masking the first token ...")
    losses = mask_first_tokens(loaded, inputs)
    return conclude(comparison, attention, losses, seed)


def compare_masks(loaded: "LoadedModel", causal: bool = True) -> MaskComparison:
    """Apply the formula with and without a mask to the model's queries, keys and values."""
    record = loaded.look(SENTENCE, steps=("query", "key", "value")).record
    arrays = {step: record.by_path(step) for step in ("query", "key", "value")}
    weights, value_errors, changes = {}, [], []
    for path, queries in arrays["query"].items():
        for index, head in enumerate(queries.heads):
            q, k, v = (arrays[step][path].array[index].astype(float) for step in ("query", "key", "value"))
            unmasked, masked = attend(q, k, v), attend(q, k, v, causal=causal)
            weights[path.layer, head] = (unmasked.weights, masked.weights)
            value_errors.append(float(np.abs(masked.context[0] - v[0]).max()))
            norms = np.maximum(np.linalg.norm(unmasked.context, axis=1), 1e-12)
            changes.append(np.linalg.norm(masked.context - unmasked.context, axis=1) / norms)
    return MaskComparison(
        record.tokens.pieces, weights, max(value_errors), tuple(float(median) for median in np.median(changes, axis=0))
    )


def validation_stories(loaded: "LoadedModel", count: int, seed: int) -> list["ModelInput"]:
    """Load validation stories as token ids after bos, as in training."""
    from peasy.inspection.forward import ModelInput

    bos = loaded.model.config.special_tokens.bos
    texts = islice(open_corpus("stories", num_valid=10**6).texts("valid"), seed * count, (seed + 1) * count)
    rows = loaded.require_tokenizer().encode_batch_ids(list(texts), add_special_tokens=False)
    return [ModelInput((*([] if bos is None else [bos]), *ids)) for ids in rows]


def first_token_attention(loaded: "LoadedModel", inputs: Sequence["ModelInput"]) -> FirstTokenAttention:
    """Return the mean attention weight on the first token over all queries after it."""
    from peasy.inspection.head_scores import score_heads

    report = score_heads(loaded.model, inputs)
    uniform = np.mean([1 / (position + 1) for text in inputs for position in range(1, len(text.ids))])
    return FirstTokenAttention(
        {(score.path.layer, score.head): float(score.first) for score in report.heads}, float(uniform)
    )


def mask_first_tokens(loaded: "LoadedModel", inputs: Sequence["ModelInput"]) -> dict[str, float]:
    """Return the loss (nats per token) with the first token masked, with the second one masked, and with no change."""
    from peasy.nn.intervention import Intervention

    class MaskKey(Intervention):
        """Intervention: mask one key for all later queries."""

        def __init__(self, key: int) -> None:
            self.key = key

        def mask_edges(self, path: Any, num_heads: int, query_positions: "Tensor", key_positions: "Tensor") -> "Tensor":
            return ((query_positions > self.key)[:, None] & (key_positions == self.key)).expand(num_heads, -1, -1)

    changes = {"none": None, "first": MaskKey(0), "second": MaskKey(1)}
    return {
        name: float(np.mean([masked_loss(loaded, text, change) for text in inputs])) for name, change in changes.items()
    }


def masked_loss(loaded: "LoadedModel", model_input: "ModelInput", intervention: Any) -> float:
    """Return the loss in nats per token from the fourth token on; earlier ones have almost no keys left."""
    import torch

    from peasy.inspection.forward import forward_logits

    logits = forward_logits(loaded.model, model_input, intervention=intervention, all_positions=True)[2:-1]
    return float(torch.nn.functional.cross_entropy(logits.float(), torch.tensor(model_input.ids[3:])))


def conclude(
    comparison: MaskComparison, attention: dict[str, FirstTokenAttention], losses: dict[str, float], seed: int
) -> ExperimentResult:
    """Holds if the first context is its value vector and the last is as without a mask; sinks are only reported."""
    first, last = comparison.context_change[0], comparison.context_change[-1]
    alone = comparison.value_error <= TOLERANCE
    trained, fresh = attention["trained"], attention["untrained"]
    strongest = max(trained.heads, key=lambda head: trained.heads[head])
    increase = {name: loss - losses["none"] for name, loss in losses.items()}
    verdict = (
        f"Under the causal mask the context of the first token is {'its own value' if alone else 'NOT its own value'} "
        f"vector (difference {comparison.value_error:.0e}). Without the mask it would differ by {first:.0%}, the last "
        f"token's by {last:.0%}. {len(trained.sinks)} of {len(trained.heads)} heads give the first token most of their "
        f"weight (untrained: {len(fresh.sinks)}); the strongest is head {format_head(strongest)} with a weight of "
        f"{trained.heads[strongest]:.2f} (uniform attention: {trained.uniform:.2f}). Masking the first token raises "
        f"the loss by {increase['first']:.2f} nats per token, masking the second {increase['second']:.2f}: "
        f"{'there is an attention sink' if trained.sinks else 'there is no attention sink here'}."
    )
    parts: tuple[DocumentPart, ...] = (
        _attention_maps(comparison),
        Curves(
            "Effect of the causal mask",
            (("change of the context", _by_position(comparison.context_change)),),
            "position",
            "relative change (median head)",
        ),
        _sink_table(attention),
        Table(("masked key", "nats per token"), tuple((name, f"{loss:.3f}") for name, loss in losses.items())),
    )
    caveat = (
        "The first token here is bos, which begins every text and carries no information: attending to it is a way of "
        "attending to nothing. Large models show stronger attention sinks. Masking a token also removes its "
        "information; masking the second token is the control for that."
    )
    numbers = {
        "value_error": comparison.value_error,
        "context_change": list(comparison.context_change),
        "first_token_weight": {
            name: {format_head(head): weight for head, weight in heads.heads.items()}
            for name, heads in attention.items()
        },
        "uniform": trained.uniform,
        "losses": losses,
    }
    holds = alone and first > 0.1 and last < TOLERANCE
    return ExperimentResult("first-word", QUESTION, parts, verdict, holds, caveat, numbers, seed)


def _by_position(values: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple((float(position), share) for position, share in enumerate(values, 1))


def _attention_maps(comparison: MaskComparison) -> Maps:
    """Draw the unmasked and masked weights of the head whose first row the mask changes most."""
    head = max(comparison.weights, key=lambda head: 1 - comparison.weights[head][0][0, 0])
    unmasked, causal = comparison.weights[head]
    maps = np.stack([unmasked, np.where(causal > 0, causal, np.nan)])[None]
    title = f'"{SENTENCE}" in head {format_head(head)}'
    return Maps(
        title,
        maps,
        comparison.tokens,
        comparison.tokens,
        across=("self", "masked"),
        across_axis="attention",
        down_axis="",
    )


def _sink_table(attention: dict[str, FirstTokenAttention]) -> Table:
    trained, fresh = attention["trained"], attention["untrained"]
    rows = [(format_head(head), f"{weight:.2f}", f"{fresh.heads[head]:.2f}") for head, weight in trained.heads.items()]
    rows.append(("uniform", f"{trained.uniform:.2f}", f"{fresh.uniform:.2f}"))
    return Table(("head", "trained", "untrained"), tuple(rows), "Mean attention weight on the first token")
