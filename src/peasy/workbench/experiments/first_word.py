"""`first-word`: what a mask does to the first word, and whether a trained model rests its eyes there."""

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
    "Under a mask the first word sees only itself. What becomes of it, and do others look at it for want of better?"
)
SENTENCE = "The pizza came out of the oven and it tasted good"
EXACT = 1e-5
SINK = 0.5
"""A head that gives the first token so much of its weight rests there."""


@dataclass(frozen=True)
class Masked:
    """One sentence by every head, with the mask and without: `weights` by head, `change` of the context by place.

    `own`: how far the first word's context is from its own value; `change`: relative to the context without a mask.
    """

    words: tuple[str, ...]
    weights: dict[Head, tuple[np.ndarray, np.ndarray]]
    own: float
    change: tuple[float, ...]


@dataclass(frozen=True)
class Rest:
    """How much weight each head gives the first token, and what an even look would give it."""

    heads: dict[Head, float]
    even: float

    @property
    def sinks(self) -> list[Head]:
        """Heads that rest on the first token."""
        return [head for head, weight in self.heads.items() if weight >= SINK]


def run(
    seed: int = 0, hear: Hear = unheard, model: Subject = "stories", texts: int = 48, causal: bool = True
) -> Finding:
    """One sentence under the mask and without; then many texts. `causal=False` leaves out the mask in both places."""
    need("torch")
    loaded = open_subject(model)
    hear("one sentence, with the mask and without ...")
    masked = compare(loaded, causal)
    readings = read_stories(loaded, texts, seed)
    hear(f"the first token of {texts} texts ...")
    rests = {"trained": rest(loaded, readings), "untrained": rest(untrained(loaded, seed), readings)}
    hear("hiding it ...")
    costs = hide(loaded, readings)
    return conclude(masked, rests, costs, seed)


def compare(loaded: "LoadedModel", causal: bool = True) -> Masked:
    """Queries, keys and values as the model makes them; the formula does the rest, both ways."""
    look = loaded.look(SENTENCE, steps=("query", "key", "value")).look
    arrays = {step: look.of(step) for step in ("query", "key", "value")}
    weights, own, change = {}, [], []
    for place, queries in arrays["query"].items():
        for index, head in enumerate(queries.heads):
            q, k, v = (arrays[step][place].array[index].astype(float) for step in ("query", "key", "value"))
            free, bound = attend(q, k, v), attend(q, k, v, causal=causal)
            weights[place.layer, head] = (free.weights, bound.weights)
            own.append(float(np.abs(bound.context[0] - v[0]).max()))
            sizes = np.maximum(np.linalg.norm(free.context, axis=1), 1e-12)
            change.append(np.linalg.norm(bound.context - free.context, axis=1) / sizes)
    return Masked(look.tokens.pieces, weights, max(own), tuple(float(each) for each in np.median(change, axis=0)))


def read_stories(loaded: "LoadedModel", count: int, seed: int) -> list["Reading"]:
    """Held-out stories as they stand in training: after the token that begins a text."""
    from peasy.looking.reading import Reading

    begin = loaded.model.config.special.begin
    texts = islice(open_corpus("stories", held_out=10**6).texts("valid"), seed * count, (seed + 1) * count)
    rows = loaded.need_tokenizer().ids(list(texts), special=False)
    return [Reading((*([] if begin is None else [begin]), *ids)) for ids in rows]


def rest(loaded: "LoadedModel", readings: Sequence["Reading"]) -> Rest:
    """The mean weight on the first token, of all queries that have a choice."""
    from peasy.looking.head import study_heads

    found = study_heads(loaded.model, readings)
    even = np.mean([1 / (place + 1) for reading in readings for place in range(1, len(reading.ids))])
    return Rest({(each.place.layer, each.head): float(each.first) for each in found.heads}, float(even))


def hide(loaded: "LoadedModel", readings: Sequence["Reading"]) -> dict[str, float]:
    """What a token costs (nats) when nobody after it may look at the first token, at the second, or when all may."""
    from peasy.nn.edit import Change

    class Hidden(Change):
        """One key, hidden from all queries after it."""

        def __init__(self, key: int) -> None:
            self.key = key

        def hides(self, place: Any, heads: int, queries: "Tensor", keys: "Tensor") -> "Tensor":
            return ((queries > self.key)[:, None] & (keys == self.key)).expand(heads, -1, -1)

    changes = {"nothing": None, "the first token": Hidden(0), "the second": Hidden(1)}
    return {name: float(np.mean([cost(loaded, each, change) for each in readings])) for name, change in changes.items()}


def cost(loaded: "LoadedModel", reading: "Reading", change: Any) -> float:
    """Nats for each token from the fourth on: those before have next to nothing left to look at."""
    import torch

    from peasy.looking.reading import read

    scores = read(loaded.model, reading, edit=change, every=True)[2:-1]
    return float(torch.nn.functional.cross_entropy(scores.float(), torch.tensor(reading.ids[3:])))


def conclude(masked: Masked, rests: dict[str, Rest], costs: dict[str, float], seed: int) -> Finding:
    """The first word must come out as its own value, the last as without a mask; sinks are told as they are."""
    first, last = masked.change[0], masked.change[-1]
    alone = masked.own <= EXACT
    trained, fresh = rests["trained"], rests["untrained"]
    most = max(trained.heads, key=lambda head: trained.heads[head])
    dearer = {name: cost - costs["nothing"] for name, cost in costs.items()}
    verdict = (
        f"Under the mask the first word's context is {'its own value' if alone else 'NOT its own value'} (difference "
        f"{masked.own:.0e}); without the mask it would differ by {first:.0%}, the last word's by {last:.0%}. "
        f"{len(trained.sinks)} of {len(trained.heads)} heads rest on the first token (untrained: {len(fresh.sinks)}); "
        f"most does {name_head(most)}, with {trained.heads[most]:.2f} of its weight where an even look gives "
        f"{trained.even:.2f}. Hiding that token from all others costs {dearer['the first token']:.2f} nats a token, "
        f"hiding the second {dearer['the second']:.2f}: "
        f"{'there is an attention sink' if trained.sinks else 'there is no attention sink here'}."
    )
    parts: tuple[Part, ...] = (
        _maps(masked),
        Curves(
            "What the mask changes",
            (("change of the context", _by_place(masked.change)),),
            "word",
            "share (median head)",
        ),
        _rest_table(rests),
        Table(("hidden from all others", "nats a token"), tuple((name, f"{cost:.3f}") for name, cost in costs.items())),
    )
    caveat = (
        "The first token here is the one that begins every text: it says nothing, so that looking at it is a way of "
        "looking at nothing. Large models show sinks more strongly. Hiding a token also takes away what it says: the "
        "second token is the control for that."
    )
    numbers = {
        "own": masked.own,
        "change": list(masked.change),
        "first": {name: {name_head(head): w for head, w in each.heads.items()} for name, each in rests.items()},
        "even": trained.even,
        "costs": costs,
    }
    holds = alone and first > 0.1 and last < EXACT
    return Finding("first-word", QUESTION, parts, verdict, holds, caveat, numbers, seed)


def _by_place(shares: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple((float(place), share) for place, share in enumerate(shares, 1))


def _maps(masked: Masked) -> Maps:
    """The head whose first word the mask changes most, without the mask and with it."""
    head = max(masked.weights, key=lambda each: 1 - masked.weights[each][0][0, 0])
    free, bound = masked.weights[head]
    shown = np.stack([free, np.where(bound > 0, bound, np.nan)])[None]
    title = f'"{SENTENCE}" by head {name_head(head)}'
    return Maps(
        title, shown, masked.words, masked.words, across=("self", "masked"), across_axis="attention", down_axis=""
    )


def _rest_table(rests: dict[str, Rest]) -> Table:
    trained, fresh = rests["trained"], rests["untrained"]
    rows = [(name_head(head), f"{weight:.2f}", f"{fresh.heads[head]:.2f}") for head, weight in trained.heads.items()]
    rows.append(("an even look", f"{trained.even:.2f}", f"{fresh.even:.2f}"))
    return Table(("head", "trained", "untrained"), tuple(rows), "Weight on the first token")
