"""`projections`: what W_Q, W_K and W_V of a real head do to words, and two spaces: likeness and what comes next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.corpora import open_corpus
from peasy.corpora.stories import world
from peasy.parts import need
from peasy.views.document import Part, Table
from peasy.views.embedding import embedding_map, nearest_points
from peasy.workbench.aligner import Head
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.it import best, follow_it, stories_about_it
from peasy.workbench.experiments.subject import Subject, name_head, open_subject, untrained

if TYPE_CHECKING:
    from peasy.workbench.load import LoadedModel

QUESTION = "W_Q, W_K and W_V are linear maps of a word's vector. What do they do to words, and which space finds what?"
FRAME = "They wanted the"
"""Each word is read after this; it stands in for "I want to buy a ...", which the stories do not say."""
SPACES = {"normed": "x", "query": "W_Q x", "key": "W_K x", "value": "W_V x"}
CLASSES, EACH, NEAR = 6, 5, 5


@dataclass(frozen=True)
class Space:
    """Words in one space: how many numbers each has, how often the nearest is of the same class, and more.

    `directions`: how many directions the words really use; `kept`: the share of nearest words of x that are kept.
    """

    width: int
    kin: float
    directions: float
    kept: float


@dataclass(frozen=True)
class Sides:
    """For some words: those most alike to each, and those that the model expects after it; the shares that are both."""

    alike: dict[str, tuple[str, ...]]
    after: dict[str, tuple[str, ...]]
    shared: float


def run(seed: int = 0, hear: Hear = unheard, model: Subject = "stories", probes: int = 24) -> Finding:
    """The head that finds what "it" stands for, on nouns of some classes; the same model untrained as control."""
    need("torch")
    loaded = open_subject(model)
    nouns = choose_nouns(loaded)
    hear("looking for the head that finds what it stands for ...")
    head = best(follow_it(loaded, stories_about_it(probes, seed)))[0]
    hear(f"{len(nouns)} words through head {name_head(head)} ...")
    vectors = project(loaded, list(nouns), head)
    labels = list(nouns.values())
    spaces = {name: measure(each, vectors["normed"], labels) for name, each in vectors.items()}
    control = project(untrained(loaded, seed), list(nouns), head)
    fresh = {name: measure(each, control["normed"], labels) for name, each in control.items()}
    hear("what is alike, and what comes next ...")
    sides = compare_sides(loaded, ["the", *list(nouns)[::EACH]])
    planes = [
        embedding_map(f"{SPACES[name]} (head {name_head(head)})", list(nouns), vectors[name], labels)[0]
        for name in SPACES
    ]
    return conclude(head, spaces, fresh, sides, planes, chance(labels), seed)


def choose_nouns(loaded: "LoadedModel") -> dict[str, str]:
    """Some nouns of some classes that are one token to this model, each with its class."""
    found: dict[str, str] = {}
    things = {name: kind for name, kind in world().classes.items() if kind.pronouns == ("it",)}
    for name, kind in islice(things.items(), CLASSES):
        single = [noun for noun in kind.nouns if len(_ids(loaded, noun)) == 1]
        found |= dict.fromkeys(single[:EACH], name)
    return found


def _ids(loaded: "LoadedModel", word: str) -> list[int]:
    return list(loaded.need_tokenizer().encode(f" {word}", special=False).ids)


def project(loaded: "LoadedModel", nouns: Sequence[str], head: Head) -> dict[str, np.ndarray]:
    """What enters the head for each noun, and what its three maps make of it."""
    from peasy.workbench.look import look as open_look

    layer, number = head
    found: dict[str, list[np.ndarray]] = {name: [] for name in SPACES}
    for noun in nouns:
        ids = read_from_start(loaded, f"{FRAME} {noun}")
        look = open_look(loaded, ids, layers=layer, heads=number, steps=tuple(SPACES)).look
        for capture in look.captures:
            if capture.step in found and capture.place.part == "attention" and capture.place.layer == layer:
                array = capture.array[-1] if capture.array.ndim == 2 else capture.array[0, -1]
                found[capture.step].append(np.asarray(array, dtype=float))
    return {name: np.stack(each) for name, each in found.items()}


def read_from_start(loaded: "LoadedModel", text: str) -> list[int]:
    """The ids of a text that stands alone: after the token that begins one."""
    begin = loaded.model.config.special.begin
    return [*([] if begin is None else [begin]), *loaded.prompt(text)]


def measure(vectors: np.ndarray, before: np.ndarray, labels: Sequence[str]) -> Space:
    """One space beside what entered the head."""
    near, was = nearest_points(_centred(vectors), NEAR), nearest_points(_centred(before), NEAR)
    kin = np.mean([labels[line[0][0]] == labels[at] for at, line in enumerate(near)])
    kept = np.mean(
        [len({a for a, _ in one} & {b for b, _ in other}) / NEAR for one, other in zip(near, was, strict=True)]
    )
    sizes = np.linalg.svd(_centred(vectors), compute_uv=False) ** 2
    return Space(vectors.shape[1], float(kin), float(sizes.sum() ** 2 / max((sizes**2).sum(), 1e-300)), float(kept))


def _centred(vectors: np.ndarray) -> np.ndarray:
    """What all words have in common says nothing about any of them."""
    return vectors - vectors.mean(axis=0)


def chance(labels: Sequence[str]) -> float:
    """How often the nearest would be of the same class if classes meant nothing."""
    return float(np.mean([(labels.count(label) - 1) / (len(labels) - 1) for label in labels]))


def compare_sides(loaded: "LoadedModel", words: Sequence[str]) -> Sides:
    """Nearest vectors of the table, and likeliest next words, of each word; both among the words of the stories."""
    import torch

    model: Any = loaded.model
    known = vocabulary(loaded)
    names, ids = list(known), list(known.values())
    table = model.embedding.token.weight.detach().float()[ids].numpy()
    alike, after = {}, {}
    lines = nearest_points(_centred(table), NEAR)
    for word in words:
        alike[word] = tuple(names[other] for other, _ in lines[names.index(word)])
        text = FRAME if FRAME.endswith(f" {word}") else f"{FRAME} {word}"
        with torch.inference_mode():
            scores = model(torch.tensor([read_from_start(loaded, text)]), last=True)[0, -1][ids]
        after[word] = tuple(names[at] for at in scores.topk(NEAR).indices.tolist())
    shared = np.mean([len(set(alike[word]) & set(after[word])) / NEAR for word in words])
    return Sides(alike, after, float(shared))


def vocabulary(loaded: "LoadedModel", stories: int = 400) -> dict[str, int]:
    """Words of the stories that are one token to this model."""
    texts = islice(open_corpus("stories").texts("train"), stories)
    words = dict.fromkeys(word for text in texts for word in text.rstrip(".").lower().split())
    found = {word: _ids(loaded, word) for word in words if word.isalpha()}
    return {word: ids[0] for word, ids in found.items() if len(ids) == 1}


def conclude(
    head: Head,
    spaces: Mapping[str, Space],
    fresh: Mapping[str, Space],
    sides: Sides,
    planes: Sequence[Part],
    by_chance: float,
    seed: int,
) -> Finding:
    """The maps must change who is near whom, training must have made the classes, and the two spaces must differ."""
    sharpest = max(("query", "key", "value"), key=lambda name: spaces[name].kin)
    moved = min(each.kept for name, each in spaces.items() if name != "normed")
    learned = spaces[sharpest].kin > fresh[sharpest].kin + 0.2
    apart = sides.shared < 0.2
    verdict = (
        f"Head {name_head(head)} maps {spaces['normed'].width} numbers to {spaces['key'].width}; of the {NEAR} nearest "
        f"words of each word its maps keep {spaces['query'].kept:.0%} (W_Q), {spaces['key'].kept:.0%} (W_K) and "
        f"{spaces['value'].kept:.0%} (W_V). The nearest word is of the same class in {spaces['normed'].kin:.0%} "
        f"before and in {spaces[sharpest].kin:.0%} under {SPACES[sharpest]} (untrained {fresh[sharpest].kin:.0%}, by "
        f"chance {by_chance:.0%}): the classes are {'learned' if learned else 'NOT learned'}. What is alike to a word "
        f"and what comes after it share {sides.shared:.0%}: {'two spaces' if apart else 'NOT two spaces'}."
    )
    parts = (*planes, _spaces_table(spaces, fresh), _sides_table(sides))
    caveat = (
        "Pictures show two directions of many, the table all of them. The maps act on what enters the layer, which in "
        "a later layer is more than the word itself. Queries and keys are shown as they meet, turned by their place; "
        "all words stand at the same one."
    )
    numbers = {
        "head": name_head(head),
        "spaces": {SPACES[name]: vars(each) for name, each in spaces.items()},
        "untrained": {SPACES[name]: vars(each) for name, each in fresh.items()},
        "chance": by_chance,
        "alike": sides.alike,
        "after": sides.after,
        "shared": sides.shared,
    }
    return Finding("projections", QUESTION, parts, verdict, learned and apart and moved < 1, caveat, numbers, seed)


def _spaces_table(spaces: Mapping[str, Space], fresh: Mapping[str, Space]) -> Table:
    rows = tuple(
        (
            SPACES[name],
            str(each.width),
            f"{each.directions:.1f}",
            f"{each.kept:.0%}",
            f"{each.kin:.0%}",
            f"{fresh[name].kin:.0%}",
        )
        for name, each in spaces.items()
    )
    columns = ("space", "numbers", "directions used", "neighbours kept", "nearest is kin", "untrained")
    return Table(columns, rows, "The same words in four spaces")


def _sides_table(sides: Sides) -> Table:
    rows = tuple((word, " ".join(sides.alike[word]), " ".join(sides.after[word])) for word in sides.alike)
    return Table(("word", "most alike", "most likely next"), rows, "Two spaces of one model")
