"""`projections`: what W_Q, W_K and W_V of a trained head do to word vectors; similar words against next words."""

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

QUESTION = "W_Q, W_K and W_V are linear maps of a token's vector. How do they change which words are similar?"
FRAME = "They wanted the"
"""Context before each word, in place of "I want to buy a ...", which does not occur in the stories."""
SPACES = {"normed": "x", "query": "W_Q x", "key": "W_K x", "value": "W_V x"}
CLASSES, EACH, NEAR = 6, 5, 5


@dataclass(frozen=True)
class Space:
    """Statistics of one vector space: its width, and `kin`: how often the nearest word is of the same class.

    `directions`: effective dimension of the words; `kept`: fraction of the nearest words in x that stay nearest.
    """

    width: int
    kin: float
    directions: float
    kept: float


@dataclass(frozen=True)
class Sides:
    """For some words: the most similar words, the most likely next words, and the fraction of words in both lists."""

    alike: dict[str, tuple[str, ...]]
    after: dict[str, tuple[str, ...]]
    shared: float


def run(seed: int = 0, hear: Hear = unheard, model: Subject = "stories", probes: int = 24) -> Finding:
    """Project nouns of several classes by the head that resolves "it"; the control is the same model untrained."""
    need("torch")
    loaded = open_subject(model)
    nouns = choose_nouns(loaded)
    hear('searching the head that resolves "it" ...')
    head = best(follow_it(loaded, stories_about_it(probes, seed)))[0]
    hear(f"{len(nouns)} words in head {name_head(head)} ...")
    vectors = project(loaded, list(nouns), head)
    labels = list(nouns.values())
    spaces = {name: measure(space, vectors["normed"], labels) for name, space in vectors.items()}
    control = project(untrained(loaded, seed), list(nouns), head)
    fresh = {name: measure(space, control["normed"], labels) for name, space in control.items()}
    hear("similar words and next words ...")
    sides = compare_sides(loaded, ["the", *list(nouns)[::EACH]])
    planes = [
        embedding_map(f"{SPACES[name]} (head {name_head(head)})", list(nouns), vectors[name], labels)[0]
        for name in SPACES
    ]
    return conclude(head, spaces, fresh, sides, planes, chance(labels), seed)


def choose_nouns(loaded: "LoadedModel") -> dict[str, str]:
    """Choose nouns of several classes that are single tokens, each with its class."""
    nouns: dict[str, str] = {}
    things = {name: kind for name, kind in world().classes.items() if kind.pronouns == ("it",)}
    for name, kind in islice(things.items(), CLASSES):
        single_tokens = [noun for noun in kind.nouns if len(_ids(loaded, noun)) == 1]
        nouns |= dict.fromkeys(single_tokens[:EACH], name)
    return nouns


def _ids(loaded: "LoadedModel", word: str) -> list[int]:
    return list(loaded.need_tokenizer().encode(f" {word}", special=False).ids)


def project(loaded: "LoadedModel", nouns: Sequence[str], head: Head) -> dict[str, np.ndarray]:
    """Return the input of the head for each noun, and its query, key and value vectors."""
    from peasy.workbench.look import look as open_look

    layer, head_index = head
    vectors: dict[str, list[np.ndarray]] = {name: [] for name in SPACES}
    for noun in nouns:
        ids = read_from_start(loaded, f"{FRAME} {noun}")
        look = open_look(loaded, ids, layers=layer, heads=head_index, steps=tuple(SPACES)).look
        for capture in look.captures:
            if capture.step in vectors and capture.place.part == "attention" and capture.place.layer == layer:
                array = capture.array[-1] if capture.array.ndim == 2 else capture.array[0, -1]
                vectors[capture.step].append(np.asarray(array, dtype=float))
    return {name: np.stack(rows) for name, rows in vectors.items()}


def read_from_start(loaded: "LoadedModel", text: str) -> list[int]:
    """Return the token ids of a text after bos."""
    bos = loaded.model.config.special.begin
    return [*([] if bos is None else [bos]), *loaded.prompt(text)]


def measure(vectors: np.ndarray, before: np.ndarray, labels: Sequence[str]) -> Space:
    """Compare one space with the head's input space."""
    near, was_near = nearest_points(_centred(vectors), NEAR), nearest_points(_centred(before), NEAR)
    kin = np.mean([labels[line[0][0]] == labels[index] for index, line in enumerate(near)])
    kept = np.mean(
        [len({a for a, _ in after} & {b for b, _ in old}) / NEAR for after, old in zip(near, was_near, strict=True)]
    )
    variances = np.linalg.svd(_centred(vectors), compute_uv=False) ** 2
    dimension = variances.sum() ** 2 / max((variances**2).sum(), 1e-300)  # participation ratio
    return Space(vectors.shape[1], float(kin), float(dimension), float(kept))


def _centred(vectors: np.ndarray) -> np.ndarray:
    """Subtract the mean, which is common to all words."""
    return vectors - vectors.mean(axis=0)


def chance(labels: Sequence[str]) -> float:
    """Probability that the nearest word is of the same class by chance."""
    return float(np.mean([(labels.count(label) - 1) / (len(labels) - 1) for label in labels]))


def compare_sides(loaded: "LoadedModel", words: Sequence[str]) -> Sides:
    """Compare nearest token embeddings with the most likely next words, both within the words of the stories."""
    import torch

    model: Any = loaded.model
    ids_of_words = vocabulary(loaded)
    names, ids = list(ids_of_words), list(ids_of_words.values())
    table = model.embedding.token.weight.detach().float()[ids].numpy()
    alike, after = {}, {}
    lines = nearest_points(_centred(table), NEAR)
    for word in words:
        alike[word] = tuple(names[other] for other, _ in lines[names.index(word)])
        text = FRAME if FRAME.endswith(f" {word}") else f"{FRAME} {word}"
        with torch.inference_mode():
            logits = model(torch.tensor([read_from_start(loaded, text)]), last=True)[0, -1][ids]
        after[word] = tuple(names[index] for index in logits.topk(NEAR).indices.tolist())
    shared = np.mean([len(set(alike[word]) & set(after[word])) / NEAR for word in words])
    return Sides(alike, after, float(shared))


def vocabulary(loaded: "LoadedModel", stories: int = 400) -> dict[str, int]:
    """Return the words of the stories that are single tokens, with their ids."""
    texts = islice(open_corpus("stories").texts("train"), stories)
    words = dict.fromkeys(word for text in texts for word in text.rstrip(".").lower().split())
    ids_of_words = {word: _ids(loaded, word) for word in words if word.isalpha()}
    return {word: ids[0] for word, ids in ids_of_words.items() if len(ids) == 1}


def conclude(
    head: Head,
    spaces: Mapping[str, Space],
    fresh: Mapping[str, Space],
    sides: Sides,
    planes: Sequence[Part],
    by_chance: float,
    seed: int,
) -> Finding:
    """Holds if the projections change the neighbours, the classes are learned, and the two spaces differ."""
    sharpest = max(("query", "key", "value"), key=lambda name: spaces[name].kin)
    kept = min(space.kept for name, space in spaces.items() if name != "normed")
    learned = spaces[sharpest].kin > fresh[sharpest].kin + 0.2
    apart = sides.shared < 0.2
    verdict = (
        f"Head {name_head(head)} projects from {spaces['normed'].width} to {spaces['key'].width} dimensions. Of the "
        f"{NEAR} nearest neighbours of each word, {spaces['query'].kept:.0%} remain under W_Q, "
        f"{spaces['key'].kept:.0%} under W_K and {spaces['value'].kept:.0%} under W_V. The nearest word is of the same "
        f"class in {spaces['normed'].kin:.0%} of cases before projection and in {spaces[sharpest].kin:.0%} under "
        f"{SPACES[sharpest]} (untrained: {fresh[sharpest].kin:.0%}, chance: {by_chance:.0%}): the classes are "
        f"{'learned' if learned else 'NOT learned'}. Similar words and likely next words overlap by "
        f"{sides.shared:.0%}: these are {'two spaces' if apart else 'NOT two spaces'}."
    )
    parts = (*planes, _spaces_table(spaces, fresh), _sides_table(sides))
    caveat = (
        "The figures show two principal components only, the table uses all dimensions. The projections act on the "
        "input of the layer, which in later layers contains more than the word itself. Queries and keys are shown "
        "after the rotary positional encoding; all words are at the same position."
    )
    numbers = {
        "head": name_head(head),
        "spaces": {SPACES[name]: vars(space) for name, space in spaces.items()},
        "untrained": {SPACES[name]: vars(space) for name, space in fresh.items()},
        "chance": by_chance,
        "alike": sides.alike,
        "after": sides.after,
        "shared": sides.shared,
    }
    return Finding("projections", QUESTION, parts, verdict, learned and apart and kept < 1, caveat, numbers, seed)


def _spaces_table(spaces: Mapping[str, Space], fresh: Mapping[str, Space]) -> Table:
    rows = tuple(
        (
            SPACES[name],
            str(space.width),
            f"{space.directions:.1f}",
            f"{space.kept:.0%}",
            f"{space.kin:.0%}",
            f"{fresh[name].kin:.0%}",
        )
        for name, space in spaces.items()
    )
    columns = ("space", "width", "effective dimension", "neighbours kept", "nearest of same class", "untrained")
    return Table(columns, rows, "The same words in four vector spaces")


def _sides_table(sides: Sides) -> Table:
    rows = tuple((word, " ".join(sides.alike[word]), " ".join(sides.after[word])) for word in sides.alike)
    return Table(("word", "most similar", "most likely next"), rows, "Similar words and next words")
