"""`projections`: how W_Q, W_K, W_V of a head change each word's nearest words; nearest words against next words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from peasy.commands.alignment_head import LayerHead
from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.datasets.stories import story_words
from peasy.experiments.models import ModelSource, format_head, open_model, untrained
from peasy.experiments.pronoun import best_referent_head, pronoun_stories, referent_weights
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status, make_result, table
from peasy.experiments.statistics import (
    ALPHA,
    Outcome,
    binomial_p_value,
    combine,
    outcome_of,
    paired_p_value,
    permutation_p_value,
)
from peasy.views.document import DocumentPart
from peasy.views.embedding import embedding_map, nearest_neighbours

_CONTEXT = "They wanted the"
"""Context before each word, in place of "I want to buy a ...", which does not occur in the stories."""
SPACES = {"normed": "x", "query": "W_Q x", "key": "W_K x", "value": "W_V x"}
_NUM_CLASSES, _NOUNS_PER_CLASS, _NUM_NEIGHBOURS = 6, 5, 5


@dataclass(frozen=True)
class SpaceStatistics:
    """Statistics of one vector space: its width, and how often the nearest word is of the `same_class`.

    `neighbours_kept`: fraction of the nearest words in x that stay nearest. `hits`: for each word, whether the nearest
    is of its class.
    """

    width: int
    same_class: float
    effective_dimension: float
    neighbours_kept: float
    hits: tuple[bool, ...] = ()


@dataclass(frozen=True)
class WordNeighbours:
    """For some words: the most similar words, the most likely next words, and the fraction of words in both lists."""

    similar: dict[str, tuple[str, ...]]
    next_words: dict[str, tuple[str, ...]]
    overlap: float
    permuted: tuple[float, ...] = ()
    """Overlaps with the next words of other words: chance."""


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", probes: int = 24
) -> ExperimentResult:
    """Project nouns of several classes by the head that resolves "it"; the control is the same model untrained."""
    loaded = open_model(model)
    nouns = _choose_nouns(loaded)
    names, labels = list(nouns), list(nouns.values())
    on_status('searching the head that resolves "it" ...')
    head = best_referent_head(referent_weights(loaded, pronoun_stories(probes, seed)))[0]
    on_status(f"{len(nouns)} words in head {format_head(head)} ...")
    vectors, control = (_project_nouns(one, names, head) for one in (loaded, untrained(loaded, seed)))
    spaces, fresh = (
        {name: _space_statistics(space, by["normed"], labels) for name, space in by.items()}
        for by in (vectors, control)
    )
    on_status("similar words and next words ...")
    sides = _similar_and_next(loaded, ["the", *names])
    planes = [
        embedding_map(f"{symbol} (head {format_head(head)})", names, vectors[name], labels)[0]
        for name, symbol in SPACES.items()
    ]
    chance = float(np.mean([(labels.count(label) - 1) / (len(labels) - 1) for label in labels]))
    return conclude(head, spaces, fresh, sides, planes, chance, seed)


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
    vectors: dict[str, list[np.ndarray]] = {name: [] for name in SPACES}
    for noun in nouns:
        record = look(loaded, f"{_CONTEXT} {noun}", layers=layer, heads=head_index, steps=tuple(SPACES))
        for capture in record.captures:
            if capture.step in vectors and capture.path.part == "attention" and capture.path.layer == layer:
                array = capture.array[-1] if capture.array.ndim == 2 else capture.array[0, -1]
                vectors[capture.step].append(np.asarray(array, dtype=float))
    return {name: np.stack(rows) for name, rows in vectors.items()}


def _space_statistics(vectors: np.ndarray, inputs: np.ndarray, labels: Sequence[str]) -> SpaceStatistics:
    """Compare one space with the head's input space."""
    near, was_near = (nearest_neighbours(_centred(space), _NUM_NEIGHBOURS) for space in (vectors, inputs))
    hits = tuple(labels[line[0][0]] == labels[index] for index, line in enumerate(near))
    kept = [len(dict(after).keys() & dict(old).keys()) for after, old in zip(near, was_near, strict=True)]
    neighbours_kept = np.mean([count / _NUM_NEIGHBOURS for count in kept])
    variances = np.linalg.svd(_centred(vectors), compute_uv=False) ** 2
    dimension = variances.sum() ** 2 / max((variances**2).sum(), 1e-300)  # participation ratio
    return SpaceStatistics(vectors.shape[1], float(np.mean(hits)), float(dimension), float(neighbours_kept), hits)


def _centred(vectors: np.ndarray) -> np.ndarray:
    """Subtract the mean, which is common to all words."""
    centred: np.ndarray = vectors - vectors.mean(axis=0)
    return centred


def _similar_and_next(loaded: LoadedModel, words: Sequence[str]) -> WordNeighbours:
    """Compare nearest token embeddings with the most likely next words, both within the words of the stories."""
    import torch

    model: Any = loaded.model
    texts = islice(open_corpus("stories").texts("train"), 400)
    words_of_stories = dict.fromkeys(word for text in texts for word in text.rstrip(".").lower().split())
    ids_of_words = {word: _word_ids(loaded, word) for word in words_of_stories if word.isalpha()}
    names = [word for word, ids in ids_of_words.items() if len(ids) == 1]  # words that are single tokens
    ids = [ids_of_words[word][0] for word in names]
    embeddings = model.embedding.token.weight.detach().float()[ids].numpy()
    similar, next_words, words = {}, {}, [word for word in words if word in names]
    lines = nearest_neighbours(_centred(embeddings), _NUM_NEIGHBOURS)
    for word in words:
        similar[word] = tuple(names[other] for other, _ in lines[names.index(word)])
        text = _CONTEXT if _CONTEXT.endswith(f" {word}") else f"{_CONTEXT} {word}"
        with torch.inference_mode():
            logits = model(torch.tensor([loaded.encode_prompt(text)]), last_only=True)[0, -1][ids]
        next_words[word] = tuple(names[index] for index in logits.topk(_NUM_NEIGHBOURS).indices.tolist())
    permuted = []
    for shift in range(len(words)):  # each word's similar words against the next words of another word
        pairs = zip(words, [*words[shift:], *words[:shift]], strict=True)
        permuted.append(
            np.mean([len(set(similar[one]) & set(next_words[two])) / _NUM_NEIGHBOURS for one, two in pairs])
        )
    return WordNeighbours(similar, next_words, float(permuted[0]), tuple(map(float, permuted[1:])))


def conclude(
    head: LayerHead, spaces: Mapping[str, SpaceStatistics], control: Mapping[str, SpaceStatistics],
    neighbours: WordNeighbours, figures: Sequence[DocumentPart], by_chance: float, seed: int,
) -> ExperimentResult:  # fmt: skip
    """Classes: paired tests of each projection against the same model untrained, and against chance. Two spaces: the
    overlap of similar and next words is no larger than with the next words of other words."""
    sharpest = max(("query", "key", "value"), key=lambda name: spaces[name].same_class)
    projected = [name for name in spaces if name != "normed"]
    p_values = {name: paired_p_value(spaces[name].hits, control[name].hits) for name in projected}
    by_luck = {name: binomial_p_value(sum(spaces[name].hits), len(spaces[name].hits), by_chance) for name in projected}
    sorted_by_class = [name for name in projected if max(p_values[name], by_luck[name]) < ALPHA / len(projected)]
    learned = bool(sorted_by_class)
    p_overlap = permutation_p_value(neighbours.overlap, neighbours.permuted)
    apart = p_overlap >= ALPHA
    can_tell = 1 / (1 + len(neighbours.permuted)) < ALPHA
    classes = (
        Outcome.SUPPORTED
        if len(sorted_by_class) == len(projected)
        else (Outcome.CONDITIONS if learned else Outcome.NOT_SUPPORTED)
    )
    outcome = combine([classes, outcome_of(apart) if can_tell else Outcome.CANNOT_TELL])
    verdict = (
        f"Head {format_head(head)} projects from {spaces['normed'].width} to {spaces['key'].width} dimensions. Of the "
        f"{_NUM_NEIGHBOURS} nearest neighbours of each word, {spaces['query'].neighbours_kept:.0%} remain under W_Q, "
        f"{spaces['key'].neighbours_kept:.0%} under W_K and {spaces['value'].neighbours_kept:.0%} under W_V. The "
        f"nearest word is of the same class in {spaces['normed'].same_class:.0%} of cases before projection and in "
        f"{spaces[sharpest].same_class:.0%} under {SPACES[sharpest]} (untrained: {control[sharpest].same_class:.0%}, "
        f"chance: {by_chance:.0%}): the classes are {'learned' if learned else 'NOT learned'} (largest p of W_Q, W_K, "
        f"W_V against untrained: {max(p_values.values()):.3f}; learned in {len(sorted_by_class)} of 3). Similar "
        f"words and likely next words overlap by {neighbours.overlap:.0%}: these are "
        f"{'two spaces' if apart else 'NOT two spaces'} (against the next words of other words: p = {p_overlap:.2f})."
    )
    columns = [
        ("space", ""), ("width", ""), ("effective dimension", ".1f"), ("neighbours kept", ".0%"),
        ("nearest of same class", ".0%"), ("untrained", ".0%"),
    ]  # fmt: skip
    rows = (
        (SPACES[name], s.width, s.effective_dimension, s.neighbours_kept, s.same_class, control[name].same_class)
        for name, s in spaces.items()
    )
    word_columns = [("word", ""), ("most similar", ""), ("most likely next", "")]
    word_rows = (
        (word, " ".join(near), " ".join(neighbours.next_words[word]))
        for word, near in islice(neighbours.similar.items(), 8)
    )
    parts = (
        *figures,
        table("The same words in four vector spaces", columns, rows),
        table("Similar words and next words", word_columns, word_rows),
    )
    measured = {
        name: {SPACES[space]: asdict(statistics) for space, statistics in by.items()}
        for name, by in (("spaces", spaces), ("untrained", control))
    }
    numbers = {"head": format_head(head), **measured, "chance": by_chance, **asdict(neighbours)}
    return make_result("projections", parts, verdict, outcome, numbers, seed)
