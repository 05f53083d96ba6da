"""`meaning`: words before and after training, one word in two contexts, sentences and documents in clusters."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.corpora import Labelled, open_corpus
from peasy.parts import need
from peasy.views.document import Part, Table
from peasy.views.embedding import embedding_map, nearest_points
from peasy.workbench.cluster import cluster
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.subject import Subject, open_subject, untrained

if TYPE_CHECKING:
    from peasy.workbench.load import LoadedModel

QUESTION = "Do similar words, and similar sentences, come to have similar vectors, and one word two in two contexts?"
WORDS = {
    "praise": ("great", "awesome", "wonderful", "fantastic", "excellent"),
    "blame": ("terrible", "awful", "horrible", "dreadful"),
    "food": ("pizza", "soup", "cake", "bread"),
    "phone": ("phone", "laptop", "camera", "printer"),
    "journey": ("train", "bus", "flight", "taxi"),
}
PAIRS = (("awesome", "great"), ("pizza", "soup"), ("great", "terrible"), ("great", "pizza"), ("awesome", "phone"))
"""Alike, alike, opposites, and two that have nothing in common."""
TWO = ("The pizza is great.", "My phone broke, great.")
WORD = "great"


@dataclass(frozen=True)
class Words:
    """Cosines of pairs of words before and after training, and the vectors that are drawn."""

    before: dict[tuple[str, str], float]
    after: dict[tuple[str, str], float]
    names: tuple[str, ...]
    vectors: dict[str, np.ndarray]


@dataclass(frozen=True)
class Contexts:
    """One word in many sentences: the cosine of the two of the document, and of pairs that mean the same or not.

    `same`: how often the nearest of the other sentences means it the same way (by chance about half the time).
    """

    two: float
    within: float
    across: float
    same: float


@dataclass(frozen=True)
class Clusters:
    """How well clusters are what the labels say, and how well cosines follow what is shared (Spearman)."""

    purity: float
    order: float


def run(
    seed: int = 0, hear: Hear = unheard, words: Subject = "words", sentences: Subject = "sentences", texts: int = 240
) -> Finding:
    """Words, then one word in context, then sentences and documents; each beside the same model untrained."""
    need("torch")
    hear("words before and after ...")
    moved = compare_words(open_subject(words), seed)
    loaded = open_subject(sentences)
    models = {"trained": loaded, "untrained": untrained(loaded, seed)}
    single, several = draw(texts, 1), draw(texts, 4)
    contexts, clustered, documents = {}, {}, {}
    for name, each in models.items():
        hear(f"{name}: one word in many sentences, then {2 * texts} texts ...")
        contexts[name] = compare_contexts(each, texts)
        clustered[name] = judge_clusters(each, single, seed)
        documents[name] = judge_clusters(each, several, seed)
    return conclude(moved, contexts, {"sentences": clustered, "documents": documents}, picture(loaded, single), seed)


def draw(count: int, sentences: int) -> list[Labelled]:
    """Held-out opinions of at most so many sentences; where several are asked for, of at least two."""
    found = open_corpus("opinions", sentences=sentences, held_out=20 * count).documents("valid")
    long = (each for each in found if isinstance(each, Labelled) and (sentences == 1 or each.text.count(".") > 1))
    return list(islice(long, count))


def compare_words(loaded: "LoadedModel", seed: int) -> Words:
    """Cosines of the vectors that training began and ended with."""
    names = [name for group in WORDS.values() for name in group]
    vectors = {
        "before": word_vectors(untrained(loaded, seed), names),
        "after": word_vectors(loaded, names),
    }
    cosines = {
        when: {pair: cosine(*(each[names.index(word)] for word in pair)) for pair in PAIRS}
        for when, each in vectors.items()
    }
    return Words(cosines["before"], cosines["after"], tuple(names), vectors)


def word_vectors(loaded: "LoadedModel", names: Sequence[str]) -> np.ndarray:
    """The one vector of each word."""
    model: Any = loaded.model
    tokenizer = loaded.need_tokenizer()
    rows = [list(tokenizer.encode(name, special=False).ids) for name in names]
    table = model.embedding.weight.detach().float().numpy()
    return np.stack([table[row].mean(axis=0) for row in rows])


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    """How much two vectors point the same way."""
    return float(left @ right / max(float(np.linalg.norm(left) * np.linalg.norm(right)), 1e-12))


def compare_contexts(loaded: "LoadedModel", texts: int) -> Contexts:
    """The vector of one word after good news and after bad news; nothing else about the sentences differs."""
    after_news = re.compile(rf"(,|:|how|just) {WORD}\.$")
    some = [each for each in draw(20 * texts, 1) if after_news.search(each.text)][:texts]
    vectors = np.stack([in_context(loaded, each.text) for each in some])
    meant = [each.label.endswith("good") for each in some]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, alike = unit @ unit.T, np.equal.outer(meant, meant)
    others = ~np.eye(len(some), dtype=bool)
    near = [line[0][0] for line in nearest_points(vectors, 1)]
    return Contexts(
        cosine(*(in_context(loaded, text) for text in TWO)),
        float(cosines[alike & others].mean()),
        float(cosines[~alike].mean()) if (~alike).any() else float("nan"),
        float(np.mean([meant[at] == meant[other] for at, other in enumerate(near)])),
    )


def in_context(loaded: "LoadedModel", text: str) -> np.ndarray:
    """The last vector of the word in this text."""
    from peasy.looking.reading import run
    from peasy.looking.words import find_word
    from peasy.workbench.passage import open_passage

    passage = open_passage(loaded, text)
    places = list(find_word(passage.tokens, WORD))
    return run(loaded.model, passage.reading)[0, places].float().mean(dim=0).numpy()


def judge_clusters(loaded: "LoadedModel", texts: Sequence[Labelled], seed: int) -> Clusters:
    """As many clusters as labels: how pure they are; and do cosines grow with what two texts share?"""
    from peasy.training.metric import spearman

    vectors, labels = loaded.embed([each.text for each in texts]), [each.label for each in texts]
    found = cluster(vectors, len(set(labels)), seed)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    upper = np.triu_indices(len(texts), 1)
    sides = [np.array([label.split(": ")[side] for label in labels]) for side in (0, 1)]
    shared = sum((side[:, None] == side).astype(int) for side in sides)
    return Clusters(purity(found, labels), spearman((unit @ unit.T)[upper], np.asarray(shared)[upper]))


def purity(clusters: Sequence[int], labels: Sequence[str]) -> float:
    """The share of texts that have the commonest label of their cluster.

    >>> purity([0, 0, 1, 1], ["a", "a", "a", "b"])
    0.75
    """
    groups = {each: [label for at, label in zip(clusters, labels, strict=True) if at == each] for each in set(clusters)}
    return sum(max(group.count(label) for label in set(group)) for group in groups.values()) / len(labels)


def picture(loaded: "LoadedModel", texts: Sequence[Labelled], most: int = 48) -> tuple[Part, Table]:
    """The map of some sentences by topic, and the neighbours of the first few."""
    some = list(texts[:most])
    vectors = loaded.embed([each.text for each in some])
    plane, _ = embedding_map(
        "Held-out sentences", [each.text for each in some], vectors, [each.label for each in some], 3
    )
    near = nearest_points(vectors, 1)
    rows = tuple((some[at].text, some[near[at][0][0]].text, f"{near[at][0][1]:.2f}") for at in range(min(5, len(some))))
    return plane, Table(("sentence", "its nearest", "cosine"), rows, "Neighbours")


def conclude(
    words: Words,
    contexts: dict[str, Contexts],
    clusters: dict[str, dict[str, Clusters]],
    pictures: Sequence[Part],
    seed: int,
) -> Finding:
    """Three claims, each with its own control; all must come out."""
    pair, strangers = PAIRS[0], PAIRS[-2:]
    far = float(np.mean([words.after[each] for each in strangers]))
    together = words.after[pair] > words.before[pair] + 0.2 and words.after[pair] > far + 0.2
    trained, fresh = contexts["trained"], contexts["untrained"]
    told_apart = trained.within - trained.across > 0.1 and trained.same > 0.75
    grouped = all(each["trained"].purity > each["untrained"].purity + 0.1 for each in clusters.values())
    opposites = words.after["great", "terrible"]
    sentences, documents = (clusters[name] for name in ("sentences", "documents"))
    verdict = (
        f"Awesome and great had a cosine of {words.before[pair]:.2f} before training and have {words.after[pair]:.2f} "
        f"after it (words with nothing in common: {far:.2f}; but great and terrible too: {opposites:.2f}). "
        f"One static great is the same in both sentences; in context its two vectors have a cosine of "
        f"{trained.two:.2f}, and its nearest use means the same in {trained.same:.0%} (untrained {fresh.same:.0%}). "
        f"Clusters of sentences are {sentences['trained'].purity:.0%} pure (untrained "
        f"{sentences['untrained'].purity:.0%}), of documents {documents['trained'].purity:.0%} "
        f"({documents['untrained'].purity:.0%}); cosines follow what is shared by {sentences['trained'].order:.2f}."
    )
    planes = [_plane(words, when) for when in ("before", "after")]
    parts = (*planes, _words_table(words), _contexts_table(contexts), *pictures, _clusters_table(clusters))
    caveat = (
        "The texts are made up, with the same few hundred words in training and test: real language is harder, and "
        "there a MiniLM is far better. Words are alike here when they stand in the same places, and opposites do. "
        "Clusters are told how many to be."
    )
    numbers = {
        "words": {
            when: {" ".join(pair): value for pair, value in getattr(words, when).items()}
            for when in ("before", "after")
        },
        "contexts": {name: vars(each) for name, each in contexts.items()},
        "clusters": {what: {name: vars(c) for name, c in each.items()} for what, each in clusters.items()},
    }
    return Finding("meaning", QUESTION, parts, verdict, together and told_apart and grouped, caveat, numbers, seed)


def _plane(words: Words, when: str) -> Part:
    groups = [group for group, names in WORDS.items() for _ in names]
    return embedding_map(f"Words {when} training", words.names, words.vectors[when], groups)[0]


def _words_table(words: Words) -> Table:
    rows = tuple((" / ".join(pair), f"{words.before[pair]:.2f}", f"{words.after[pair]:.2f}") for pair in PAIRS)
    return Table(("words", "cosine before", "after"), rows, "Pairs of words")


def _contexts_table(contexts: dict[str, Contexts]) -> Table:
    rows = [("one static vector", "1.00", "1.00", "1.00", "50%")]
    rows += [
        (f"in context, {name}", f"{e.two:.2f}", f"{e.within:.2f}", f"{e.across:.2f}", f"{e.same:.0%}")
        for name, e in contexts.items()
    ]
    columns = ("great as", "pizza / broken phone", "meant alike", "not alike", "nearest means the same")
    return Table(columns, tuple(rows), "One word in two contexts (cosines)")


def _clusters_table(clusters: dict[str, dict[str, Clusters]]) -> Table:
    rows = tuple(
        (what, name, f"{each.purity:.0%}", f"{each.order:.2f}")
        for what, models in clusters.items()
        for name, each in models.items()
    )
    return Table(("texts", "encoder", "purity", "Spearman"), rows, "Clusters")
