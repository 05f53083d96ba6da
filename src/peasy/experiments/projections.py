"""`projections`: how W_Q, W_K, W_V of a head change each word's nearest words; nearest words against next words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.commands.alignment_head import LayerHead
from peasy.datasets import open_corpus
from peasy.datasets.stories import story_words
from peasy.experiments.model_variants import ModelSource, format_head, open_model, untrained
from peasy.experiments.pronoun import best_referent_head, pronoun_stories, referent_weights
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status
from peasy.extras import require_extra
from peasy.views.document import DocumentPart, Table
from peasy.views.embedding import embedding_map, nearest_neighbours

if TYPE_CHECKING:
    from peasy.commands.load import LoadedModel

QUESTION = "W_Q, W_K and W_V are linear maps of a token's vector. How do they change which words are similar?"
CONTEXT = "They wanted the"
"""Context before each word, in place of "I want to buy a ...", which does not occur in the stories."""
SPACES = {"normed": "x", "query": "W_Q x", "key": "W_K x", "value": "W_V x"}
NUM_CLASSES, NOUNS_PER_CLASS, NUM_NEIGHBOURS = 6, 5, 5


@dataclass(frozen=True)
class SpaceStatistics:
    """Statistics of one vector space: its width, and how often the nearest word is of the `same_class`.

    `neighbours_kept`: fraction of the nearest words in x that stay nearest.
    """

    width: int
    same_class: float
    effective_dimension: float
    neighbours_kept: float


@dataclass(frozen=True)
class WordNeighbours:
    """For some words: the most similar words, the most likely next words, and the fraction of words in both lists."""

    similar: dict[str, tuple[str, ...]]
    next_words: dict[str, tuple[str, ...]]
    overlap: float


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", probes: int = 24
) -> ExperimentResult:
    """Project nouns of several classes by the head that resolves "it"; the control is the same model untrained."""
    require_extra("torch")
    loaded = open_model(model)
    nouns = choose_nouns(loaded)
    on_status('searching the head that resolves "it" ...')
    head = best_referent_head(referent_weights(loaded, pronoun_stories(probes, seed)))[0]
    on_status(f"{len(nouns)} words in head {format_head(head)} ...")
    vectors = project_nouns(loaded, list(nouns), head)
    labels = list(nouns.values())
    spaces = {name: space_statistics(space, vectors["normed"], labels) for name, space in vectors.items()}
    control = project_nouns(untrained(loaded, seed), list(nouns), head)
    fresh = {name: space_statistics(space, control["normed"], labels) for name, space in control.items()}
    on_status("similar words and next words ...")
    sides = similar_and_next(loaded, ["the", *list(nouns)[::NOUNS_PER_CLASS]])
    planes = [
        embedding_map(f"{SPACES[name]} (head {format_head(head)})", list(nouns), vectors[name], labels)[0]
        for name in SPACES
    ]
    return conclude(head, spaces, fresh, sides, planes, chance_same_class(labels), seed)


def choose_nouns(loaded: "LoadedModel") -> dict[str, str]:
    """Choose nouns of several classes that are single tokens, each with its class."""
    nouns: dict[str, str] = {}
    things = {name: kind for name, kind in story_words().noun_classes.items() if kind.pronouns == ("it",)}
    for name, kind in islice(things.items(), NUM_CLASSES):
        single_tokens = [noun for noun in kind.nouns if len(_word_ids(loaded, noun)) == 1]
        nouns |= dict.fromkeys(single_tokens[:NOUNS_PER_CLASS], name)
    return nouns


def _word_ids(loaded: "LoadedModel", word: str) -> list[int]:
    return list(loaded.require_tokenizer().encode(f" {word}", add_special_tokens=False).ids)


def project_nouns(loaded: "LoadedModel", nouns: Sequence[str], head: LayerHead) -> dict[str, np.ndarray]:
    """Return the input of the head for each noun, and its query, key and value vectors."""
    from peasy.commands.look import look

    layer, head_index = head
    vectors: dict[str, list[np.ndarray]] = {name: [] for name in SPACES}
    for noun in nouns:
        ids = ids_after_bos(loaded, f"{CONTEXT} {noun}")
        record = look(loaded, ids, layers=layer, heads=head_index, steps=tuple(SPACES)).record
        for capture in record.captures:
            if capture.step in vectors and capture.path.part == "attention" and capture.path.layer == layer:
                array = capture.array[-1] if capture.array.ndim == 2 else capture.array[0, -1]
                vectors[capture.step].append(np.asarray(array, dtype=float))
    return {name: np.stack(rows) for name, rows in vectors.items()}


def ids_after_bos(loaded: "LoadedModel", text: str) -> list[int]:
    """Return the token ids of a text after bos."""
    bos = loaded.model.config.special_tokens.bos
    return [*([] if bos is None else [bos]), *loaded.encode_prompt(text)]


def space_statistics(vectors: np.ndarray, inputs: np.ndarray, labels: Sequence[str]) -> SpaceStatistics:
    """Compare one space with the head's input space."""
    near, was_near = (
        nearest_neighbours(_centred(vectors), NUM_NEIGHBOURS),
        nearest_neighbours(_centred(inputs), NUM_NEIGHBOURS),
    )
    same_class = np.mean([labels[line[0][0]] == labels[index] for index, line in enumerate(near)])
    neighbours_kept = np.mean(
        [
            len({a for a, _ in after} & {b for b, _ in old}) / NUM_NEIGHBOURS
            for after, old in zip(near, was_near, strict=True)
        ]
    )
    variances = np.linalg.svd(_centred(vectors), compute_uv=False) ** 2
    dimension = variances.sum() ** 2 / max((variances**2).sum(), 1e-300)  # participation ratio
    return SpaceStatistics(vectors.shape[1], float(same_class), float(dimension), float(neighbours_kept))


def _centred(vectors: np.ndarray) -> np.ndarray:
    """Subtract the mean, which is common to all words."""
    return vectors - vectors.mean(axis=0)


def chance_same_class(labels: Sequence[str]) -> float:
    """Probability that the nearest word is of the same class by chance."""
    return float(np.mean([(labels.count(label) - 1) / (len(labels) - 1) for label in labels]))


def similar_and_next(loaded: "LoadedModel", words: Sequence[str]) -> WordNeighbours:
    """Compare nearest token embeddings with the most likely next words, both within the words of the stories."""
    import torch

    model: Any = loaded.model
    ids_of_words = story_vocabulary(loaded)
    names, ids = list(ids_of_words), list(ids_of_words.values())
    table = model.embedding.token.weight.detach().float()[ids].numpy()
    similar, next_words = {}, {}
    lines = nearest_neighbours(_centred(table), NUM_NEIGHBOURS)
    for word in words:
        similar[word] = tuple(names[other] for other, _ in lines[names.index(word)])
        text = CONTEXT if CONTEXT.endswith(f" {word}") else f"{CONTEXT} {word}"
        with torch.inference_mode():
            logits = model(torch.tensor([ids_after_bos(loaded, text)]), last_only=True)[0, -1][ids]
        next_words[word] = tuple(names[index] for index in logits.topk(NUM_NEIGHBOURS).indices.tolist())
    overlap = np.mean([len(set(similar[word]) & set(next_words[word])) / NUM_NEIGHBOURS for word in words])
    return WordNeighbours(similar, next_words, float(overlap))


def story_vocabulary(loaded: "LoadedModel", stories: int = 400) -> dict[str, int]:
    """Return the words of the stories that are single tokens, with their ids."""
    texts = islice(open_corpus("stories").texts("train"), stories)
    words = dict.fromkeys(word for text in texts for word in text.rstrip(".").lower().split())
    ids_of_words = {word: _word_ids(loaded, word) for word in words if word.isalpha()}
    return {word: ids[0] for word, ids in ids_of_words.items() if len(ids) == 1}


def conclude(
    head: LayerHead,
    spaces: Mapping[str, SpaceStatistics],
    control: Mapping[str, SpaceStatistics],
    neighbours: WordNeighbours,
    figures: Sequence[DocumentPart],
    by_chance: float,
    seed: int,
) -> ExperimentResult:
    """Holds if the projections change the neighbours, the classes are learned, and the two spaces differ."""
    sharpest = max(("query", "key", "value"), key=lambda name: spaces[name].same_class)
    kept = min(space.neighbours_kept for name, space in spaces.items() if name != "normed")
    learned = spaces[sharpest].same_class > control[sharpest].same_class + 0.2
    apart = neighbours.overlap < 0.2
    verdict = (
        f"Head {format_head(head)} projects from {spaces['normed'].width} to {spaces['key'].width} dimensions. Of the "
        f"{NUM_NEIGHBOURS} nearest neighbours of each word, {spaces['query'].neighbours_kept:.0%} remain under W_Q, "
        f"{spaces['key'].neighbours_kept:.0%} under W_K and {spaces['value'].neighbours_kept:.0%} under W_V. The "
        f"nearest word is of the same class in {spaces['normed'].same_class:.0%} of cases before projection and in "
        f"{spaces[sharpest].same_class:.0%} under {SPACES[sharpest]} (untrained: {control[sharpest].same_class:.0%}, "
        f"chance: {by_chance:.0%}): the classes are {'learned' if learned else 'NOT learned'}. Similar "
        f"words and likely next words overlap by {neighbours.overlap:.0%}: these are "
        f"{'two spaces' if apart else 'NOT two spaces'}."
    )
    parts = (*figures, _spaces_table(spaces, control), _neighbours_table(neighbours))
    caveat = (
        "The figures show two principal components only, the table uses all dimensions. The projections act on the "
        "input of the layer, which in later layers contains more than the word itself. Queries and keys are shown "
        "after the rotary positional encoding; all words are at the same position."
    )
    numbers = {
        "head": format_head(head),
        "spaces": {SPACES[name]: vars(space) for name, space in spaces.items()},
        "untrained": {SPACES[name]: vars(space) for name, space in control.items()},
        "chance": by_chance,
        "similar": neighbours.similar,
        "next_words": neighbours.next_words,
        "overlap": neighbours.overlap,
    }
    return ExperimentResult(
        "projections", QUESTION, parts, verdict, learned and apart and kept < 1, caveat, numbers, seed
    )


def _spaces_table(spaces: Mapping[str, SpaceStatistics], control: Mapping[str, SpaceStatistics]) -> Table:
    rows = tuple(
        (
            SPACES[name],
            str(space.width),
            f"{space.effective_dimension:.1f}",
            f"{space.neighbours_kept:.0%}",
            f"{space.same_class:.0%}",
            f"{control[name].same_class:.0%}",
        )
        for name, space in spaces.items()
    )
    columns = ("space", "width", "effective dimension", "neighbours kept", "nearest of same class", "untrained")
    return Table(columns, rows, "The same words in four vector spaces")


def _neighbours_table(neighbours: WordNeighbours) -> Table:
    rows = tuple(
        (word, " ".join(neighbours.similar[word]), " ".join(neighbours.next_words[word])) for word in neighbours.similar
    )
    return Table(("word", "most similar", "most likely next"), rows, "Similar words and next words")
