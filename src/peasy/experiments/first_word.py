"""`first-word`: effect of the causal mask on the first token, and attention sinks of a trained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from peasy.commands.align import LayerHead
from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.experiments.models import ModelSource, format_head, open_model, untrained
from peasy.experiments.result import ExperimentResult, OnStatus, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, Outcome
from peasy.formula import attend
from peasy.views.document import Maps

if TYPE_CHECKING:
    from torch import Tensor

    from peasy.inspection.forward import ModelInput

_SENTENCE = "The pizza came out of the oven and it tasted good"
_TOLERANCE = 1e-5
_SINK_WEIGHT = 0.5
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
        return [head for head, weight in self.heads.items() if weight >= _SINK_WEIGHT]


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", texts: int = 48,
    causal: bool = True,
) -> ExperimentResult:  # fmt: skip
    """Compare one sentence with and without a mask, then many texts. `causal=False` omits the mask (the control)."""
    loaded = open_model(model)
    on_status("one sentence, with and without a mask ...")
    comparison = compare_masks(loaded, causal)
    inputs = _validation_stories(loaded, texts, seed)
    on_status(f"attention to the first token in {texts} texts ...")
    models = {"trained": loaded, "untrained": untrained(loaded, seed)}
    attention = {name: _first_token_attention(one, inputs) for name, one in models.items()}
    on_status("masking the first token ...")
    return conclude(comparison, attention, _mask_first_tokens(loaded, inputs), seed)


def compare_masks(loaded: LoadedModel, causal: bool = True) -> MaskComparison:
    """Apply the formula with and without a mask to the model's queries, keys and values."""
    steps = ("query", "key", "value")
    record = loaded.look(_SENTENCE, steps=steps)
    arrays = {step: record.by_path(step) for step in steps}
    weights, value_errors, changes = {}, [], []
    for path, queries in arrays["query"].items():
        for index, head in enumerate(queries.heads):
            q, k, v = (arrays[step][path].array[index].astype(float) for step in steps)
            unmasked, masked = attend(q, k, v), attend(q, k, v, causal=causal)
            weights[path.layer, head] = (unmasked.weights, masked.weights)
            value_errors.append(float(np.abs(masked.context[0] - v[0]).max()))
            norms = np.maximum(np.linalg.norm(unmasked.context, axis=1), 1e-12)
            changes.append(np.linalg.norm(masked.context - unmasked.context, axis=1) / norms)
    medians = tuple(np.median(changes, axis=0).tolist())
    return MaskComparison(record.tokens.pieces, weights, max(value_errors), medians)


def _validation_stories(loaded: LoadedModel, count: int, seed: int) -> list["ModelInput"]:
    """Load validation stories as token ids after bos, as in training."""
    from peasy.inspection.forward import ModelInput

    texts = islice(open_corpus("stories", num_valid=10**6).texts("valid"), seed * count, (seed + 1) * count)
    return [ModelInput(tuple(loaded.encode_prompt(text))) for text in texts]


def _first_token_attention(loaded: LoadedModel, inputs: Sequence["ModelInput"]) -> FirstTokenAttention:
    """Return the mean attention weight on the first token over all queries after it."""
    from peasy.inspection.head_scores import score_heads

    report = score_heads(loaded.model, inputs)
    uniform = np.mean([1 / (position + 1) for text in inputs for position in range(1, len(text.ids))])
    weights = {(score.path.layer, score.head): float(score.first) for score in report.heads}
    return FirstTokenAttention(weights, float(uniform))


def _mask_first_tokens(loaded: LoadedModel, inputs: Sequence["ModelInput"]) -> dict[str, list[float]]:
    """Return the loss (nats per token) of each text with the first token masked, with the second, and with none."""
    import torch

    from peasy.inspection.forward import forward_logits
    from peasy.nn.intervention import Intervention

    class MaskKey(Intervention):
        """Intervention: mask one key for all later queries."""

        def __init__(self, key: int) -> None:
            self.key = key

        def mask_edges(
            self, path: object, num_heads: int, query_positions: "Tensor", key_positions: "Tensor"
        ) -> "Tensor":
            return ((query_positions > self.key)[:, None] & (key_positions == self.key)).expand(num_heads, -1, -1)

    def loss(text: "ModelInput", change: Intervention | None) -> float:
        """Return the loss from the fourth token on; earlier ones have almost no keys left."""
        logits = forward_logits(loaded.model, text, intervention=change, all_positions=True)
        assert logits is not None
        return float(torch.nn.functional.cross_entropy(logits[2:-1].float(), torch.tensor(text.ids[3:])))

    changes = {"none": None, "first": MaskKey(0), "second": MaskKey(1)}
    return {name: [loss(text, change) for text in inputs] for name, change in changes.items()}


def conclude(
    comparison: MaskComparison, attention: dict[str, FirstTokenAttention], losses: dict[str, list[float]], seed: int
) -> ExperimentResult:
    """That the first context is its value is an identity of the formula; the sink decides, by a test over texts.

    A sink means that masking the first token costs more than masking the second, which as many queries can see.
    """
    first, last = comparison.context_change[0], comparison.context_change[-1]
    alone = comparison.value_error <= _TOLERANCE
    trained, fresh = attention["trained"], attention["untrained"]
    strongest = max(trained.heads, key=lambda head: trained.heads[head])
    means = {name: float(np.mean(by_text)) for name, by_text in losses.items()}
    increase = {name: loss - means["none"] for name, loss in means.items()}
    mean_weight = {name: float(np.mean([*by.heads.values()])) for name, by in attention.items()}
    comparisons = (
        Comparison(
            "the first context is its value", "difference", comparison.value_error, "rounding", _TOLERANCE, True, True
        ),
        Comparison.of_pairs(
            "later tokens need the first", "loss, first masked", losses["first"], "second masked", losses["second"]
        ),
        Comparison(
            "a head attends to it", "weight in the strongest head", trained.heads[strongest],
            "untrained", max(fresh.heads.values()),
        ),
        Comparison("heads attend to it on average", "mean weight", mean_weight["trained"],
                   "untrained", mean_weight["untrained"]),
    )  # fmt: skip
    is_sink = comparisons[1].outcome is Outcome.SUPPORTED and trained.heads[strongest] > fresh.heads[strongest]
    verdict = (
        f"An identity of the formula: under the causal mask the context of the first token is "
        f"{'its own value' if alone else 'NOT its own value'} "
        f"vector (difference {comparison.value_error:.0e}). Without the mask it would differ by {first:.0%}, the last "
        f"token's by {last:.0%}. {len(trained.sinks)} of {len(trained.heads)} heads give the first token most of their "
        f"weight (untrained: {len(fresh.sinks)}); the strongest is head {format_head(strongest)} with a weight of "
        f"{trained.heads[strongest]:.2f} (uniform attention: {trained.uniform:.2f}). Masking the first token raises "
        f"the loss by {increase['first']:.2f} nats per token, masking the second {increase['second']:.2f} "
        f"({len(losses['first'])} texts): there is {'an' if is_sink else 'no'} attention sink."
    )
    by_head = {name: {format_head(head): weight for head, weight in by.heads.items()} for name, by in attention.items()}
    changes = {"change of the context": [*enumerate(comparison.context_change, 1)]}
    columns = [("head", ""), ("trained", ".2f"), ("untrained", ".2f")]
    rows = [(head, weight, by_head["untrained"][head]) for head, weight in by_head["trained"].items()]
    rows.append(("uniform", trained.uniform, fresh.uniform))
    parts = (
        _attention_maps(comparison),
        curves("Effect of the causal mask", changes, "position", "relative change (median head)"),
        table("Mean attention weight on the first token", columns, rows),
        table("", [("masked key", ""), ("nats per token", ".3f")], means.items()),
    )
    numbers = {
        "value_error": comparison.value_error,
        "context_change": list(comparison.context_change),
        "first_token_weight": by_head,
        "uniform": trained.uniform,
        "losses": losses,
    }
    return make_result("first-word", parts, verdict, comparisons, numbers, seed)


def _attention_maps(comparison: MaskComparison) -> Maps:
    """Draw the unmasked and masked weights of the head whose first row the mask changes most."""
    head = max(comparison.weights, key=lambda head: 1 - comparison.weights[head][0][0, 0])
    unmasked, causal = comparison.weights[head]
    maps = np.stack([unmasked, np.where(causal > 0, causal, np.nan)])[None]
    title, tokens = f'"{_SENTENCE}" in head {format_head(head)}', comparison.tokens
    return Maps(title, maps, tokens, tokens, across=("self", "masked"), across_axis="attention", down_axis="")
