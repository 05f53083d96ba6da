"""`it`: coreference of a pronoun: which heads attend to its referent, ablation of heads, and how training finds it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.corpora import Probe, open_corpus
from peasy.looking.label import CAVEAT
from peasy.parts import need
from peasy.views.document import Curves, Matrix, Paragraph, Part, Table
from peasy.workbench.aligner import Head
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.subject import Subject, name_head, open_subject, without

if TYPE_CHECKING:
    from peasy.workbench.load import LoadedModel

QUESTION = '"It" refers to one of two nouns. Does attention find the right one, and is that learned from examples?'
SENTENCE = "The pizza came out of the oven and it"
CHANCE, NEAR = 0.5, 0.1
"""One of two endings is right; the search for heads stops this close to chance."""
KEPT, CONTROLS = 6, 6
HARM = 0.1
"""Heads whose ablation raises the loss before "it" by more nats per token are needed for language modelling itself."""
SETTINGS: dict[str, Any] = {
    "model": {"stack": {"shift": False}, "embedding": {"ngrams": 1}},
    "save": 8,
    "validate": 4,
}


@dataclass(frozen=True)
class Moment:
    """Checkpoint in training: stories seen, accuracy, and attention from "it" to its referent and the other noun."""

    stories: int
    right: float
    meant: float
    other: float


@dataclass(frozen=True)
class Carried:
    """Set of ablated heads, with accuracy and loss under ablation.

    `right`: accuracy of endings with all heads ("whole"), without these ("left"), without as many others ("control");
    `cost`: nats per token before the pronoun. `aside`: heads excluded because language modelling itself needs them.
    """

    heads: tuple[Head, ...]
    right: dict[str, float]
    cost: dict[str, float]
    aside: tuple[Head, ...]
    searched: int


def run(
    seed: int = 0, hear: Hear = unheard, model: Subject = "stories", probes: int = 192, search: int = 48,
    steps: int = 1200,
) -> Finding:  # fmt: skip
    """Measure attention, ablate heads, and train a model from scratch (`steps=0`: skip the training)."""
    need("torch")
    loaded = open_subject(model)
    stories = stories_about_it(probes + search, seed)
    hear(f'attention from "it" in {probes} stories ...')
    weights = follow_it(loaded, stories[search:])
    carried = find_heads(loaded, stories[:search], stories[search:], seed, hear)
    checkpoints = learn_it(seed, steps, stories[: max(search, 1)], hear) if steps else []
    return conclude(look_once(loaded), weights, carried, checkpoints, probes, seed)


def stories_about_it(count: int, seed: int) -> list[Probe]:
    """Validation stories with the pronoun "it"; each seed selects different ones."""
    things = (probe for probe in open_corpus("stories:things", held_out=10**6).probes("valid"))
    return list(islice(things, seed * count, (seed + 1) * count))


def look_once(loaded: "LoadedModel") -> Matrix:
    """Attention weights from "it" in the example sentence, for every head."""
    look = loaded.look(SENTENCE, rows=-1).look
    weights = [
        (f"head {name_head((place.layer, head))}", capture.array[index, 0])
        for place, capture in look.of("weights").items()
        for index, head in enumerate(capture.heads)
    ]
    values = tuple(tuple(float(row[list(group)].sum()) for group in look.tokens.groups) for _, row in weights)
    rows = tuple(name for name, _ in weights)
    title = 'attention from "it"'
    return Matrix(title, values, rows, look.tokens.words, "layer.head", "key", says=CAVEAT, shaded=True)


def follow_it(loaded: "LoadedModel", probes: Sequence[Probe]) -> dict[Head, tuple[float, float]]:
    """Return, by head, the mean attention weight from the pronoun to its referent and to the other noun."""
    weights: dict[Head, list[tuple[float, float]]] = {}
    for probe in probes:
        look = loaded.look(probe.prompt, rows=-1).look
        meant, other = (_places(look.tokens, noun) for noun in (probe.referent, probe.other))
        for place, capture in look.of("weights").items():
            for index, head in enumerate(capture.heads):
                row = capture.array[index, 0]
                weights.setdefault((place.layer, head), []).append((float(row[meant].sum()), float(row[other].sum())))
    means = {head: np.mean(pairs, axis=0) for head, pairs in weights.items()}
    return {head: (float(mean[0]), float(mean[1])) for head, mean in means.items()}


def _places(tokens: Any, noun: str) -> list[int]:
    last = noun.split()[-1]
    groups = [group for word, group in zip(tokens.words, tokens.groups, strict=True) if word == last]
    return [position for group in groups for position in group]


def find_heads(
    loaded: "LoadedModel", search: Sequence[Probe], fresh: Sequence[Probe], seed: int, hear: Hear
) -> Carried:
    """Search the smallest set of heads whose ablation reduces accuracy to chance; evaluate it on unseen stories."""
    from peasy.looking.part import parts_of

    heads = [(part.place.layer, head) for part in parts_of(loaded.model) for head in range(part.heads)]
    hear("which heads language modelling needs ...")
    baseline = cost(loaded, search)
    aside = tuple(head for head in heads if cost(without(loaded, [head]), search) > baseline + HARM)
    candidates = [head for head in heads if head not in aside] or heads
    chosen, tried = grow(candidates, lambda off: right(without(loaded, off), search), hear)
    others = list(combinations([head for head in candidates if head not in chosen], len(chosen)))
    controls = Random(seed).sample(others, min(CONTROLS, len(others))) or [()]
    hear(f"ablating as many other heads, {len(controls)} times ...")
    sets: dict[str, Sequence[tuple[Head, ...]]] = {"whole": [()], "left": [chosen], "control": controls}
    models = {name: [without(loaded, ablated) for ablated in group] for name, group in sets.items()}
    accuracy = {name: float(np.mean([right(model, fresh) for model in group])) for name, group in models.items()}
    losses = {name: float(np.mean([cost(model, fresh) for model in group])) for name, group in models.items()}
    return Carried(chosen, accuracy, losses, aside, tried)


def right(loaded: "LoadedModel", probes: Sequence[Probe]) -> float:
    """Return the accuracy of endings."""
    from peasy.workbench.measure import measure_endings

    return measure_endings(loaded, probes, None, lambda _: None).share


def cost(loaded: "LoadedModel", probes: Sequence[Probe]) -> float:
    """Return the loss in nats per token up to the pronoun."""
    from peasy.workbench.measure import measure_text

    context = max(len(loaded.prompt(probe.prompt)) for probe in probes) + 1
    tally, _ = measure_text(loaded, [(probe.prompt, False) for probe in probes], context, lambda _: None, whole=True)
    return tally.nats / tally.tokens


def grow(
    heads: Sequence[Head], right: Callable[[tuple[Head, ...]], float], hear: Hear = unheard
) -> tuple[tuple[Head, ...], int]:
    """Beam search over sets of heads to ablate, until accuracy is near chance; also return the number of sets tried.

    At most half of all heads, so that as many others are left for the control.

    >>> grow([(0, 0), (0, 1), (1, 0), (1, 1)], lambda off: 0.5 if {(0, 1), (1, 1)} <= set(off) else 1.0)
    (((0, 1), (1, 1)), 10)
    """
    kept: list[tuple[Head, ...]] = [()]
    tried = 0
    for size in range(1, max(len(heads) // 2, 1) + 1):
        grown = sorted({tuple(sorted((*base, head))) for base in kept for head in heads if head not in base})
        scored = sorted((right(ablated), ablated) for ablated in grown)
        tried, kept = tried + len(grown), [ablated for _, ablated in scored[:KEPT]]
        hear(f"without {size} of {len(heads)} heads: lowest accuracy {scored[0][0]:.0%}")
        if scored[0][0] <= CHANCE + NEAR:
            break
    return kept[0], tried


def learn_it(seed: int, steps: int, probes: Sequence[Probe], hear: Hear) -> list[Moment]:
    """Train a model of the same architecture from scratch and evaluate every checkpoint."""
    from peasy.workbench.experiments.learning import learn, some_stories

    moments: list[Moment] = []
    corpus = some_stories(steps)
    batch = int(corpus.suggests["batch"])

    def evaluate(step: int, loaded: "LoadedModel") -> None:
        meant, other = best(follow_it(loaded, probes))[1]
        moments.append(Moment(step * batch, right(loaded, probes), meant, other))

    learn(
        "gpt", corpus, "from scratch", hear,
        steps=steps, seed=seed, settings=SETTINGS, preset="small", watch=evaluate,
    )  # fmt: skip
    return moments


def best(weights: dict[Head, tuple[float, float]]) -> tuple[Head, tuple[float, float]]:
    """Return the head with the largest difference between attention to the referent and to the other noun."""
    return max(weights.items(), key=lambda item: item[1][0] - item[1][1])


def conclude(
    picture: Matrix,
    weights: dict[Head, tuple[float, float]],
    carried: Carried,
    learned: Sequence[Moment],
    probes: int,
    seed: int,
) -> Finding:
    """Holds if accuracy is high with all heads, at chance without some, and high without as many others."""
    head, (meant, other) = best(weights)
    named = ", ".join(map(name_head, carried.heads))
    accuracy, loss = carried.right, carried.cost
    fell = accuracy["whole"] > 0.9 and accuracy["left"] <= CHANCE + 1.5 * NEAR
    stayed = accuracy["control"] > (accuracy["whole"] + CHANCE) / 2
    attends = meant > other
    verdict = (
        f'In head {name_head(head)}, "it" attends to its referent with weight {meant:.2f} and to the other noun with '
        f"{other:.2f}. With all heads {accuracy['whole']:.0%} of {probes} endings are right, without {named} "
        f"{accuracy['left']:.0%} (chance: {CHANCE:.0%}), without as many other heads {accuracy['control']:.0%}; the "
        f"loss before the pronoun is {loss['whole']:.2f}, {loss['left']:.2f} and {loss['control']:.2f} nats per token: "
        f"{'these heads are responsible' if fell and stayed else 'no small set of heads is responsible alone'}."
    )
    improved = True
    parts: list[Part] = [picture, _heads_table(weights, carried), _off_table(carried), _searched(carried)]
    if learned:
        first, last = learned[0], learned[-1]
        improved = last.meant - last.other > first.meant - first.other and last.right > first.right
        verdict += (
            f" In training from scratch, the weight on the referent went from {first.meant:.2f} after "
            f"{first.stories:,} stories to {last.meant:.2f} after {last.stories:,}, and the accuracy from "
            f"{first.right:.0%} to {last.right:.0%}: it {'is' if improved else 'was NOT'} learned from examples."
        )
        parts.append(_curves(learned))
    caveat = (
        "The search keeps only the best few sets of each size, so another set as small may exist. Heads that language "
        "modelling itself needs are excluded: ablating them would also reduce accuracy, and show nothing. A head that "
        "attends to the referent need not be one that the answer depends on: attention weights show where a head "
        "attends, not why the model answers as it does."
    )
    numbers = {
        "heads": {name_head(head): {"meant": pair[0], "other": pair[1]} for head, pair in weights.items()},
        "carried": {**vars(carried), "heads": [name_head(head) for head in carried.heads]},
        "learned": [vars(moment) for moment in learned],
    }
    holds = fell and stayed and attends and improved
    return Finding("it", QUESTION, tuple(parts), verdict, holds, caveat, numbers, seed)


def _heads_table(weights: dict[Head, tuple[float, float]], carried: Carried) -> Table:
    rows = tuple(
        (name_head(head), f"{meant:.2f}", f"{other:.2f}", "yes" if head in carried.heads else "")
        for head, (meant, other) in weights.items()
    )
    columns = ("head", "on the referent", "on the other noun", "in the ablated set")
    return Table(columns, rows, 'Mean attention weight from "it"')


def _off_table(carried: Carried) -> Table:
    ablated = {"whole": "none", "left": ", ".join(map(name_head, carried.heads))}
    ablated["control"] = f"{len(carried.heads)} of the others (mean)"
    rows = tuple((label, f"{carried.right[name]:.1%}", f"{carried.cost[name]:.3f}") for name, label in ablated.items())
    return Table(("ablated heads", "accuracy of endings", "nats per token before"), rows, "Ablation of heads")


def _searched(carried: Carried) -> Paragraph:
    aside = ", ".join(map(name_head, carried.aside))
    text = f"{carried.searched} sets of heads were tried, small ones first."
    excluded = f" Excluded, because language modelling itself needs them: {aside}." if aside else ""
    return Paragraph(text + excluded, "note")


def _curves(learned: Sequence[Moment]) -> Curves:
    curves = {
        "accuracy of endings": [(float(moment.stories), moment.right) for moment in learned],
        "weight on the referent": [(float(moment.stories), moment.meant) for moment in learned],
        "weight on the other noun": [(float(moment.stories), moment.other) for moment in learned],
    }
    lines = tuple((name, tuple(points)) for name, points in curves.items())
    return Curves("Learning to resolve the pronoun", lines, "stories seen", "accuracy, weight")
