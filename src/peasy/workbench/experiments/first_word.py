"""`first-word`: effect of the causal mask on the first token, and attention sinks of a trained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.corpora import open_corpus
from peasy.formula import attend
from peasy.parts import need
from peasy.views.document import Curves, Maps, Part, Table
from peasy.workbench.aligner import Head
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.subject import Subject, name_head, open_subject, untrained

if TYPE_CHECKING:
    from torch import Tensor

    from peasy.looking.reading import Reading
    from peasy.workbench.load import LoadedModel

QUESTION = (
    "Under a causal mask the first token attends only to itself. What is its output, and is it an attention sink for "
    "the other tokens?"
)
SENTENCE = "The pizza came out of the oven and it tasted good"
EXACT = 1e-5
SINK = 0.5
"""A head is an attention sink if it gives the first token at least this weight."""


@dataclass(frozen=True)
class Masked:
    """One sentence in every head, unmasked and masked: `weights` by head, relative `change` of the context by position.

    `own`: largest difference between the first token's context and its value vector.
    """

    words: tuple[str, ...]
    weights: dict[Head, tuple[np.ndarray, np.ndarray]]
    own: float
    change: tuple[float, ...]


@dataclass(frozen=True)
class Rest:
    """Mean attention weight of each head on the first token; `even` is that of uniform attention."""

    heads: dict[Head, float]
    even: float

    @property
    def sinks(self) -> list[Head]:
        """Heads that are attention sinks."""
        return [head for head, weight in self.heads.items() if weight >= SINK]


def run(
    seed: int = 0, hear: Hear = unheard, model: Subject = "stories", texts: int = 48, causal: bool = True
) -> Finding:
    """Compare one sentence with and without a mask, then many texts. `causal=False` omits the mask (the control)."""
    need("torch")
    loaded = open_subject(model)
    hear("one sentence, with and without a mask ...")
    comparison = compare(loaded, causal)
    readings = read_stories(loaded, texts, seed)
    hear(f"attention to the first token in {texts} texts ...")
    rests = {"trained": rest(loaded, readings), "untrained": rest(untrained(loaded, seed), readings)}
    hear("masking the first token ...")
    costs = hide(loaded, readings)
    return conclude(comparison, rests, costs, seed)


def compare(loaded: "LoadedModel", causal: bool = True) -> Masked:
    """Apply the formula with and without a mask to the model's queries, keys and values."""
    look = loaded.look(SENTENCE, steps=("query", "key", "value")).look
    arrays = {step: look.of(step) for step in ("query", "key", "value")}
    weights, value_errors, changes = {}, [], []
    for place, queries in arrays["query"].items():
        for index, head in enumerate(queries.heads):
            q, k, v = (arrays[step][place].array[index].astype(float) for step in ("query", "key", "value"))
            unmasked, masked = attend(q, k, v), attend(q, k, v, causal=causal)
            weights[place.layer, head] = (unmasked.weights, masked.weights)
            value_errors.append(float(np.abs(masked.context[0] - v[0]).max()))
            norms = np.maximum(np.linalg.norm(unmasked.context, axis=1), 1e-12)
            changes.append(np.linalg.norm(masked.context - unmasked.context, axis=1) / norms)
    return Masked(
        look.tokens.pieces, weights, max(value_errors), tuple(float(median) for median in np.median(changes, axis=0))
    )


def read_stories(loaded: "LoadedModel", count: int, seed: int) -> list["Reading"]:
    """Load validation stories as token ids after bos, as in training."""
    from peasy.looking.reading import Reading

    bos = loaded.model.config.special.begin
    texts = islice(open_corpus("stories", held_out=10**6).texts("valid"), seed * count, (seed + 1) * count)
    rows = loaded.need_tokenizer().ids(list(texts), special=False)
    return [Reading((*([] if bos is None else [bos]), *ids)) for ids in rows]


def rest(loaded: "LoadedModel", readings: Sequence["Reading"]) -> Rest:
    """Return the mean attention weight on the first token over all queries after it."""
    from peasy.looking.head import study_heads

    report = study_heads(loaded.model, readings)
    uniform = np.mean([1 / (position + 1) for reading in readings for position in range(1, len(reading.ids))])
    return Rest({(score.place.layer, score.head): float(score.first) for score in report.heads}, float(uniform))


def hide(loaded: "LoadedModel", readings: Sequence["Reading"]) -> dict[str, float]:
    """Return the loss (nats per token) with the first token masked, with the second one masked, and with no change."""
    from peasy.nn.edit import Change

    class MaskKey(Change):
        """Intervention: mask one key for all later queries."""

        def __init__(self, key: int) -> None:
            self.key = key

        def hides(self, place: Any, heads: int, queries: "Tensor", keys: "Tensor") -> "Tensor":
            return ((queries > self.key)[:, None] & (keys == self.key)).expand(heads, -1, -1)

    changes = {"nothing": None, "the first token": MaskKey(0), "the second": MaskKey(1)}
    return {name: float(np.mean([cost(loaded, text, change) for text in readings])) for name, change in changes.items()}


def cost(loaded: "LoadedModel", reading: "Reading", change: Any) -> float:
    """Return the loss in nats per token from the fourth token on; earlier ones have almost no keys left."""
    import torch

    from peasy.looking.reading import read

    logits = read(loaded.model, reading, edit=change, every=True)[2:-1]
    return float(torch.nn.functional.cross_entropy(logits.float(), torch.tensor(reading.ids[3:])))


def conclude(masked: Masked, rests: dict[str, Rest], costs: dict[str, float], seed: int) -> Finding:
    """Holds if the first context is its value vector and the last is as without a mask; sinks are only reported."""
    first, last = masked.change[0], masked.change[-1]
    alone = masked.own <= EXACT
    trained, fresh = rests["trained"], rests["untrained"]
    strongest = max(trained.heads, key=lambda head: trained.heads[head])
    increase = {name: cost - costs["nothing"] for name, cost in costs.items()}
    verdict = (
        f"Under the causal mask the context of the first token is {'its own value' if alone else 'NOT its own value'} "
        f"vector (difference {masked.own:.0e}). Without the mask it would differ by {first:.0%}, the last token's by "
        f"{last:.0%}. {len(trained.sinks)} of {len(trained.heads)} heads give the first token most of their weight "
        f"(untrained: {len(fresh.sinks)}); the strongest is head {name_head(strongest)} with a weight of "
        f"{trained.heads[strongest]:.2f} (uniform attention: {trained.even:.2f}). Masking the first token raises the "
        f"loss by {increase['the first token']:.2f} nats per token, masking the second {increase['the second']:.2f}: "
        f"{'there is an attention sink' if trained.sinks else 'there is no attention sink here'}."
    )
    parts: tuple[Part, ...] = (
        _maps(masked),
        Curves(
            "Effect of the causal mask",
            (("change of the context", _by_place(masked.change)),),
            "position",
            "relative change (median head)",
        ),
        _rest_table(rests),
        Table(("masked key", "nats per token"), tuple((name, f"{cost:.3f}") for name, cost in costs.items())),
    )
    caveat = (
        "The first token here is bos, which begins every text and carries no information: attending to it is a way of "
        "attending to nothing. Large models show stronger attention sinks. Masking a token also removes its "
        "information; masking the second token is the control for that."
    )
    numbers = {
        "own": masked.own,
        "change": list(masked.change),
        "first": {name: {name_head(head): w for head, w in rest.heads.items()} for name, rest in rests.items()},
        "even": trained.even,
        "costs": costs,
    }
    holds = alone and first > 0.1 and last < EXACT
    return Finding("first-word", QUESTION, parts, verdict, holds, caveat, numbers, seed)


def _by_place(shares: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple((float(position), share) for position, share in enumerate(shares, 1))


def _maps(masked: Masked) -> Maps:
    """Draw the unmasked and masked weights of the head whose first row the mask changes most."""
    head = max(masked.weights, key=lambda head: 1 - masked.weights[head][0][0, 0])
    unmasked, causal = masked.weights[head]
    maps = np.stack([unmasked, np.where(causal > 0, causal, np.nan)])[None]
    title = f'"{SENTENCE}" in head {name_head(head)}'
    return Maps(
        title, maps, masked.words, masked.words, across=("self", "masked"), across_axis="attention", down_axis=""
    )


def _rest_table(rests: dict[str, Rest]) -> Table:
    trained, fresh = rests["trained"], rests["untrained"]
    rows = [(name_head(head), f"{weight:.2f}", f"{fresh.heads[head]:.2f}") for head, weight in trained.heads.items()]
    rows.append(("uniform", f"{trained.even:.2f}", f"{fresh.even:.2f}"))
    return Table(("head", "trained", "untrained"), tuple(rows), "Mean attention weight on the first token")
