"""`projections`: how W_Q, W_K, W_V of a head change each word's nearest words; nearest words against next words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise

import numpy as np

from peasy.commands.align import LayerHead
from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.datasets.stories import story_words
from peasy.experiments.models import ModelSource, format_head, open_model, untrained
from peasy.experiments.pronoun import best_referent_head, pronoun_stories, referent_weights
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison
from peasy.metrics.scores import spearman
from peasy.views.document import DocumentPart
from peasy.views.embedding import embedding_map, nearest_neighbours

_CONTEXT = "They wanted the"
"""Context before each word, in place of "I want to buy a ...", which does not occur in the stories."""
_STEPS = ("normed", "query", "key", "value")
SPACES = {"normed": "x", "query": "W_Q x", "key": "W_K x", "value": "W_V x", "query-key": "W_Q x, W_K x"}
"""Spaces by name; the last one is that of queries and keys together, which scores come from."""
_NUM_TEXTS = 4000
"""Texts in which the next words of a noun are counted."""
_NUM_CLASSES, _NOUNS_PER_CLASS, _NUM_NEIGHBOURS = 6, 5, 5


@dataclass(frozen=True)
class SpaceStatistics:
    """Statistics of one vector space: its width, and how often the nearest word is of the `same_class`.

    `neighbours_kept`: fraction of the nearest words in x that stay nearest. For each word, `hits`: whether the nearest
    is of its class; `closeness`: how much nearer its class is than other words (cosine); `next_words`: Spearman
    correlation of the cosines with those of the next words in the corpus.
    """

    width: int
    same_class: float
    effective_dimension: float
    neighbours_kept: float
    hits: tuple[bool, ...] = ()
    closeness: tuple[float, ...] = ()
    next_words: tuple[float, ...] = ()


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", probes: int = 24
) -> ExperimentResult:
    """Project nouns of several classes by the head that resolves "it"; the control is the same model untrained."""
    loaded = open_model(model)
    nouns = _choose_nouns(loaded)
    names, labels = list(nouns), list(nouns.values())
    on_status('searching the head that resolves "it" ...')
    head = best_referent_head(referent_weights(loaded, pronoun_stories(probes, seed)))
    on_status(f"{len(nouns)} words in head {format_head(head)} ...")
    vectors, control = (_project_nouns(one, names, head) for one in (loaded, untrained(loaded, seed)))
    following = _next_word_counts(names, seed)
    spaces, fresh = (
        {name: _space_statistics(space, by["normed"], labels, following) for name, space in by.items()}
        for by in (vectors, control)
    )
    planes = [
        embedding_map(f"{SPACES[name]} (head {format_head(head)})", names, vectors[name], labels)[0] for name in _STEPS
    ]
    return conclude(head, spaces, fresh, planes, seed)


def _choose_nouns(loaded: LoadedModel) -> dict[str, str]:
    """Choose nouns of several classes that are single tokens, each with its class."""
    nouns: dict[str, str] = {}
    things = {name: kind for name, kind in story_words().noun_classes.items() if kind.pronouns == ("it",)}
    for name, kind in islice(things.items(), _NUM_CLASSES):
        single_tokens = [noun for noun in kind.nouns if len(_word_ids(loaded, noun)) == 1]
        nouns |= dict.fromkeys(single_tokens[:_NOUNS_PER_CLASS], name)
    return nouns


def _word_ids(loaded: LoadedModel, word: str) -> tuple[int, ...]:
    return loaded.require_tokenizer().encode(f" {word}", add_special_tokens=False).ids


def _project_nouns(loaded: LoadedModel, nouns: Sequence[str], head: LayerHead) -> dict[str, np.ndarray]:
    """Return the input of the head for each noun, and its query, key and value vectors."""
    from peasy.commands.look import look

    layer, head_index = head
    vectors: dict[str, list[np.ndarray]] = {name: [] for name in _STEPS}
    for noun in nouns:
        record = look(loaded, f"{_CONTEXT} {noun}", layers=layer, heads=head_index, steps=_STEPS)
        for capture in record.captures:
            if capture.step in vectors and capture.path.part == "attention" and capture.path.layer == layer:
                array = capture.array[-1] if capture.array.ndim == 2 else capture.array[0, -1]
                vectors[capture.step].append(np.asarray(array, dtype=float))
    spaces = {name: np.stack(rows) for name, rows in vectors.items()}
    return spaces | {"query-key": np.concatenate([spaces["query"], spaces["key"]], axis=1)}


def _next_word_counts(nouns: Sequence[str], seed: int) -> np.ndarray:
    """Count in the corpus which words follow each noun: the other way to the next word, without a model."""
    counts: dict[str, dict[str, int]] = {noun: {} for noun in nouns}
    texts = islice(open_corpus("stories", num_train=10**6).texts("train"), seed * _NUM_TEXTS, (seed + 1) * _NUM_TEXTS)
    for text in texts:
        words = text.lower().rstrip(".").split()
        for noun, follower in pairwise(words):
            if noun in counts:
                counts[noun][follower] = counts[noun].get(follower, 0) + 1
    columns = sorted({word for by in counts.values() for word in by})
    return np.array([[float(counts[noun].get(word, 0)) for word in columns] for noun in nouns])


def _space_statistics(
    vectors: np.ndarray, inputs: np.ndarray, labels: Sequence[str], following: np.ndarray
) -> SpaceStatistics:
    """Compare one space with the head's input space, with the classes, and with the next words in the corpus."""
    near, was_near = (nearest_neighbours(_centred(space), _NUM_NEIGHBOURS) for space in (vectors, inputs))
    hits = tuple(labels[line[0][0]] == labels[index] for index, line in enumerate(near))
    kept = [len(dict(after).keys() & dict(old).keys()) for after, old in zip(near, was_near, strict=True)]
    neighbours_kept = np.mean([count / _NUM_NEIGHBOURS for count in kept])
    variances = np.linalg.svd(_centred(vectors), compute_uv=False) ** 2
    dimension = variances.sum() ** 2 / max((variances**2).sum(), 1e-300)  # participation ratio
    cosines, next_cosines = _cosines(vectors), _cosines(following)
    others, same = ~np.eye(len(labels), dtype=bool), np.equal.outer(labels, labels)
    rows = list(zip(cosines, next_cosines, same, others, strict=True))
    closeness = [float(row[near & other].mean() - row[~near].mean()) for row, _, near, other in rows]
    next_words = [spearman(row[other], following[other]) for row, following, _, other in rows]
    return SpaceStatistics(
        vectors.shape[1], float(np.mean(hits)), float(dimension), float(neighbours_kept), hits, tuple(closeness),
        tuple(map(float, next_words)),
    )  # fmt: skip


def _cosines(vectors: np.ndarray) -> np.ndarray:
    unit = _centred(vectors)
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    cosines: np.ndarray = unit @ unit.T
    return cosines


def _centred(vectors: np.ndarray) -> np.ndarray:
    """Subtract the mean, which is common to all words."""
    centred: np.ndarray = vectors - vectors.mean(axis=0)
    return centred


def conclude(
    head: LayerHead, spaces: Mapping[str, SpaceStatistics], control: Mapping[str, SpaceStatistics],
    figures: Sequence[DocumentPart], seed: int,
) -> ExperimentResult:  # fmt: skip
    """Classes: each projection against the same model untrained. Two spaces: values must agree with the next words
    better than queries and keys do, and queries and keys with the classes better than values; word by word."""
    value, pair = spaces["value"], spaces["query-key"]
    comparisons = [
        *(
            Comparison.of_pairs(
                f"{SPACES[name].split()[0]} sorts words by class", "nearest of same class", spaces[name].hits,
                "untrained", control[name].hits,
            )
            for name in ("query", "key", "value")
        ),
        Comparison.of_pairs(
            "values tell the next word", "correlation", value.next_words, "untrained", control["value"].next_words
        ),
        Comparison.of_pairs(
            "values tell the next word better", "correlation", value.next_words, "queries and keys", pair.next_words
        ),
        Comparison.of_pairs(
            "queries and keys tell similar words better", "closeness", pair.closeness, "values", value.closeness
        ),
    ]  # fmt: skip

    def listed(by: Mapping[str, SpaceStatistics]) -> str:
        return ", ".join(f"{by[name].same_class:.0%}" for name in ("query", "key", "value"))

    verdict = (
        f"Head {format_head(head)} projects from {spaces['normed'].width} to {spaces['key'].width} dimensions. Of the "
        f"{_NUM_NEIGHBOURS} nearest neighbours of each word, {spaces['query'].neighbours_kept:.0%} remain under W_Q, "
        f"{spaces['key'].neighbours_kept:.0%} under W_K and {value.neighbours_kept:.0%} under W_V. The nearest word is "
        f"of the same class in {listed(spaces)} of cases (untrained: {listed(control)}). With the next words in the "
        f"corpus, similarity correlates by {np.mean(value.next_words):.2f} among values and "
        f"{np.mean(pair.next_words):.2f} among queries and keys; a word is nearer to its class than to others by "
        f"{np.mean(value.closeness):.2f} and {np.mean(pair.closeness):.2f}."
    )
    columns = [
        ("space", ""), ("width", ""), ("dimension", ".1f"), ("neighbours kept", ".0%"), ("same class", ".0%"),
        ("untrained", ".0%"), ("closeness", ".2f"), ("next words", ".2f"),
    ]  # fmt: skip
    rows = (
        (
            SPACES[name], by.width, by.effective_dimension, by.neighbours_kept, by.same_class, control[name].same_class,
            np.mean(by.closeness), np.mean(by.next_words),
        )
        for name, by in spaces.items()
    )  # fmt: skip
    parts = (*figures, table("The same words in five vector spaces", columns, rows))
    numbers = {
        name: {SPACES[space]: asdict(statistics) for space, statistics in by.items()}
        for name, by in (("spaces", spaces), ("untrained", control))
    }
    return make_result("projections", parts, verdict, comparisons, {"head": format_head(head), **numbers}, seed)
