"""`it`: where a pronoun looks, which heads carry what it stands for, and how that is learned."""

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

QUESTION = '"It" stands for one of two things. Does attention find out for which, and do many examples teach it?'
SENTENCE = "The pizza came out of the oven and it"
CHANCE, NEAR = 0.5, 0.1
"""Of two endings one is right; so close to that the search for heads is over."""
KEPT, CONTROLS = 6, 6
HARM = 0.1
"""A head without which the words before "it" cost so many nats more, each, serves all reading and not this question."""
SETTINGS: dict[str, Any] = {
    "model": {"stack": {"shift": False}, "embedding": {"ngrams": 1}},
    "save": 8,
    "validate": 4,
}


@dataclass(frozen=True)
class Moment:
    """A checkpoint: stories seen, the share of right endings, and the weight of "it" on what it means or not."""

    stories: int
    right: float
    meant: float
    other: float


@dataclass(frozen=True)
class Carried:
    """Heads that were switched off together, and what became of endings and of the words before them.

    `right`: the share of right endings with all heads ("whole"), without these ("left"), without as many others
    ("control"); `cost`: nats for each word before. `aside` are heads that all reading needs.
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
    """Look, switch off, and train once more from nothing (`steps=0`: do not)."""
    need("torch")
    loaded = open_subject(model)
    asked = stories_about_it(probes + search, seed)
    hear(f'where "it" looks in {probes} stories ...')
    weights = follow_it(loaded, asked[search:])
    carried = find_heads(loaded, asked[:search], asked[search:], seed, hear)
    learned = learn_it(seed, steps, asked[: max(search, 1)], hear) if steps else []
    return conclude(look_once(loaded), weights, carried, learned, probes, seed)


def stories_about_it(count: int, seed: int) -> list[Probe]:
    """Held-out stories about things; another seed begins further on."""
    about = (probe for probe in open_corpus("stories:things", held_out=10**6).probes("valid"))
    return list(islice(about, seed * count, (seed + 1) * count))


def look_once(loaded: "LoadedModel") -> Matrix:
    """Every head's weights of "it" in the sentence of the document."""
    look = loaded.look(SENTENCE, rows=-1).look
    found = [
        (f"head {name_head((place.layer, head))}", capture.array[index, 0])
        for place, capture in look.of("weights").items()
        for index, head in enumerate(capture.heads)
    ]
    values = tuple(tuple(float(row[list(group)].sum()) for group in look.tokens.groups) for _, row in found)
    rows = tuple(name for name, _ in found)
    return Matrix('where "it" looks', values, rows, look.tokens.words, "layer.head", "key", says=CAVEAT, shaded=True)


def follow_it(loaded: "LoadedModel", probes: Sequence[Probe]) -> dict[Head, tuple[float, float]]:
    """The mean weight of the pronoun on the thing it stands for and on the other one, by head."""
    found: dict[Head, list[tuple[float, float]]] = {}
    for probe in probes:
        look = loaded.look(probe.prompt, rows=-1).look
        meant, other = (_places(look.tokens, noun) for noun in (probe.referent, probe.other))
        for place, capture in look.of("weights").items():
            for index, head in enumerate(capture.heads):
                row = capture.array[index, 0]
                found.setdefault((place.layer, head), []).append((float(row[meant].sum()), float(row[other].sum())))
    return {head: (float(np.mean(each, axis=0)[0]), float(np.mean(each, axis=0)[1])) for head, each in found.items()}


def _places(tokens: Any, noun: str) -> list[int]:
    last = noun.split()[-1]
    return [place for word, group in zip(tokens.words, tokens.groups, strict=True) if word == last for place in group]


def find_heads(
    loaded: "LoadedModel", search: Sequence[Probe], fresh: Sequence[Probe], seed: int, hear: Hear
) -> Carried:
    """The fewest heads found without which endings are guessed; judged on stories that the search has not seen."""
    from peasy.looking.part import parts_of

    heads = [(part.place.layer, head) for part in parts_of(loaded.model) for head in range(part.heads)]
    hear("which heads all reading needs ...")
    usual = cost(loaded, search)
    aside = tuple(head for head in heads if cost(without(loaded, [head]), search) > usual + HARM)
    free = [head for head in heads if head not in aside] or heads
    chosen, tried = grow(free, lambda off: right(without(loaded, off), search), hear)
    others = list(combinations([head for head in free if head not in chosen], len(chosen)))
    controls = Random(seed).sample(others, min(CONTROLS, len(others))) or [()]
    hear(f"as many other heads, {len(controls)} times ...")
    sets: dict[str, Sequence[tuple[Head, ...]]] = {"whole": [()], "left": [chosen], "control": controls}
    models = {name: [without(loaded, each) for each in some] for name, some in sets.items()}
    shares = {name: float(np.mean([right(each, fresh) for each in some])) for name, some in models.items()}
    costs = {name: float(np.mean([cost(each, fresh) for each in some])) for name, some in models.items()}
    return Carried(chosen, shares, costs, aside, tried)


def right(loaded: "LoadedModel", probes: Sequence[Probe]) -> float:
    """The share of right endings."""
    from peasy.workbench.measure import measure_endings

    return measure_endings(loaded, probes, None, lambda _: None).share


def cost(loaded: "LoadedModel", probes: Sequence[Probe]) -> float:
    """What the words up to the pronoun cost: nats for each token."""
    from peasy.workbench.measure import measure_text

    context = max(len(loaded.prompt(probe.prompt)) for probe in probes) + 1
    tally, _ = measure_text(loaded, [(probe.prompt, False) for probe in probes], context, lambda _: None, whole=True)
    return tally.nats / tally.tokens


def grow(
    heads: Sequence[Head], right: Callable[[tuple[Head, ...]], float], hear: Hear = unheard
) -> tuple[tuple[Head, ...], int]:
    """Sets of heads, one larger each time and the worst kept, until endings are near chance; and how many were tried.

    Never more than half of all heads, so that as many others are left to compare with.

    >>> grow([(0, 0), (0, 1), (1, 0), (1, 1)], lambda off: 0.5 if {(0, 1), (1, 1)} <= set(off) else 1.0)
    (((0, 1), (1, 1)), 10)
    """
    kept: list[tuple[Head, ...]] = [()]
    tried = 0
    for size in range(1, max(len(heads) // 2, 1) + 1):
        grown = sorted({tuple(sorted((*some, head))) for some in kept for head in heads if head not in some})
        scored = sorted((right(each), each) for each in grown)
        tried, kept = tried + len(grown), [each for _, each in scored[:KEPT]]
        hear(f"without {size} of {len(heads)} heads: {scored[0][0]:.0%} right at worst")
        if scored[0][0] <= CHANCE + NEAR:
            break
    return kept[0], tried


def learn_it(seed: int, steps: int, probes: Sequence[Probe], hear: Hear) -> list[Moment]:
    """A model of the same make from nothing, asked at every checkpoint."""
    from peasy.workbench.experiments.learning import learn, some_stories

    moments: list[Moment] = []
    corpus = some_stories(steps)
    batch = int(corpus.suggests["batch"])

    def watch(step: int, loaded: "LoadedModel") -> None:
        meant, other = best(follow_it(loaded, probes))[1]
        moments.append(Moment(step * batch, right(loaded, probes), meant, other))

    how: dict[str, Any] = {"steps": steps, "seed": seed, "settings": SETTINGS, "preset": "small", "watch": watch}
    learn("gpt", corpus, "from nothing", hear, **how)
    return moments


def best(weights: dict[Head, tuple[float, float]]) -> tuple[Head, tuple[float, float]]:
    """The head that tells the two things apart best."""
    return max(weights.items(), key=lambda each: each[1][0] - each[1][1])


def conclude(
    picture: Matrix,
    weights: dict[Head, tuple[float, float]],
    carried: Carried,
    learned: Sequence[Moment],
    probes: int,
    seed: int,
) -> Finding:
    """Endings must be right with all heads, guessed without some, and right again without as many others."""
    head, (meant, other) = best(weights)
    named = ", ".join(map(name_head, carried.heads))
    share, paid = carried.right, carried.cost
    fell = share["whole"] > 0.9 and share["left"] <= CHANCE + 1.5 * NEAR
    stayed = share["control"] > (share["whole"] + CHANCE) / 2
    looks = meant > other
    verdict = (
        f'Head {name_head(head)} gives the thing that "it" stands for {meant:.2f} of its weight and the other thing '
        f"{other:.2f}. With all heads {share['whole']:.0%} of {probes} endings are right, without {named} "
        f"{share['left']:.0%} (guessing: {CHANCE:.0%}), without as many other heads {share['control']:.0%}; the words "
        f"before cost {paid['whole']:.2f}, {paid['left']:.2f} and {paid['control']:.2f} nats each: "
        f"{'these heads carry it' if fell and stayed else 'no small set of heads carries it alone'}."
    )
    grew = True
    parts: list[Part] = [picture, _heads_table(weights, carried), _off_table(carried), _searched(carried)]
    if learned:
        first, last = learned[0], learned[-1]
        grew = last.meant - last.other > first.meant - first.other and last.right > first.right
        verdict += (
            f" Trained from nothing, the weight on the right thing went from {first.meant:.2f} after {first.stories:,} "
            f"stories to {last.meant:.2f} after {last.stories:,}, and right endings from {first.right:.0%} to "
            f"{last.right:.0%}: examples {'teach' if grew else 'did not teach'} it."
        )
        parts.append(_curves(learned))
    caveat = (
        "The search keeps the best few sets of each size, so another set as small may exist. Heads that all reading "
        "needs would do as well and show nothing: they are left aside. A head that looks at the right thing need not "
        "be among those that the answer needs: weights show where a head looked, not why the model answered."
    )
    numbers = {
        "heads": {name_head(each): {"meant": pair[0], "other": pair[1]} for each, pair in weights.items()},
        "carried": {**vars(carried), "heads": [name_head(each) for each in carried.heads]},
        "learned": [vars(moment) for moment in learned],
    }
    return Finding("it", QUESTION, tuple(parts), verdict, fell and stayed and looks and grew, caveat, numbers, seed)


def _heads_table(weights: dict[Head, tuple[float, float]], carried: Carried) -> Table:
    rows = tuple(
        (name_head(head), f"{meant:.2f}", f"{other:.2f}", "yes" if head in carried.heads else "")
        for head, (meant, other) in weights.items()
    )
    return Table(("head", "on what it means", "on the other", "carries it"), rows, 'Mean weight of "it" over stories')


def _off_table(carried: Carried) -> Table:
    off = {"whole": "none", "left": ", ".join(map(name_head, carried.heads))}
    off["control"] = f"{len(carried.heads)} of the others (mean)"
    rows = tuple((said, f"{carried.right[name]:.1%}", f"{carried.cost[name]:.3f}") for name, said in off.items())
    return Table(("switched off", "right endings", "nats for each word before"), rows, "Heads switched off")


def _searched(carried: Carried) -> Paragraph:
    aside = ", ".join(map(name_head, carried.aside))
    said = f"{carried.searched} sets of heads were tried, small ones first."
    return Paragraph(f"{said} Left aside, because all reading needs them: {aside}." if aside else said, "note")


def _curves(learned: Sequence[Moment]) -> Curves:
    lines = {
        "right endings": [(float(each.stories), each.right) for each in learned],
        "weight on what it means": [(float(each.stories), each.meant) for each in learned],
        "weight on the other": [(float(each.stories), each.other) for each in learned],
    }
    drawn = tuple((name, tuple(points)) for name, points in lines.items())
    return Curves("Learning what it stands for", drawn, "stories seen", "share")
