"""`meaning`: word vectors before and after training, contextual embeddings of one word, clusters of sentences."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.datasets import LabelledText, open_corpus
from peasy.experiments.model_variants import ModelSource, open_model, untrained
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status
from peasy.extras import require_extra
from peasy.metrics.kmeans import spherical_kmeans
from peasy.views.document import DocumentPart, Table
from peasy.views.embedding import embedding_map, nearest_neighbours

if TYPE_CHECKING:
    from peasy.commands.load import LoadedModel

QUESTION = (
    "Do similar words and sentences get similar vectors, and does one word get different vectors in two contexts?"
)
WORD_GROUPS = {
    "praise": ("great", "awesome", "wonderful", "fantastic", "excellent"),
    "blame": ("terrible", "awful", "horrible", "dreadful"),
    "food": ("pizza", "soup", "cake", "bread"),
    "phone": ("phone", "laptop", "camera", "printer"),
    "journey": ("train", "bus", "flight", "taxi"),
}
WORD_PAIRS = (("awesome", "great"), ("pizza", "soup"), ("great", "terrible"), ("great", "pizza"), ("awesome", "phone"))
"""Two similar pairs, one of opposites, two unrelated pairs."""
EXAMPLE_SENTENCES = ("The pizza is great.", "My phone broke, great.")
EXAMPLE_WORD = "great"


@dataclass(frozen=True)
class WordCosines:
    """Cosines of word pairs before and after training, and the vectors to draw."""

    before: dict[tuple[str, str], float]
    after: dict[tuple[str, str], float]
    names: tuple[str, ...]
    vectors: dict[str, np.ndarray]


@dataclass(frozen=True)
class ContextCosines:
    """Contextual embeddings of one word: cosine in the two example sentences, within and across its two meanings.

    `nearest_same`: how often the nearest other use has the same meaning (by chance about half the time).
    """

    example_cosine: float
    same_meaning: float
    other_meaning: float
    nearest_same: float


@dataclass(frozen=True)
class ClusterQuality:
    """Purity of clusters by label, and Spearman correlation of cosines with the number of shared labels."""

    purity: float
    spearman: float


def run(
    seed: int = 0,
    on_status: OnStatus = ignore_status,
    words: ModelSource = "words",
    sentences: ModelSource = "sentences",
    texts: int = 240,
) -> ExperimentResult:
    """Compare words, one word in context, sentences and documents with the same models untrained."""
    require_extra("torch")
    on_status("word vectors before and after training ...")
    word_cosines = compare_words(open_model(words), seed)
    loaded = open_model(sentences)
    models = {"trained": loaded, "untrained": untrained(loaded, seed)}
    single, several = validation_opinions(texts, 1), validation_opinions(texts, 4)
    contexts, clustered, documents = {}, {}, {}
    for name, model in models.items():
        on_status(f"{name}: one word in many sentences, then {2 * texts} texts ...")
        contexts[name] = compare_contexts(model, texts)
        clustered[name] = cluster_quality(model, single, seed)
        documents[name] = cluster_quality(model, several, seed)
    clusters = {"sentences": clustered, "documents": documents}
    return conclude(word_cosines, contexts, clusters, neighbour_figures(loaded, single), seed)


def validation_opinions(count: int, sentences: int) -> list[LabelledText]:
    """Validation opinions of one sentence, or of two to `sentences` sentences."""
    samples = open_corpus("opinions", max_sentences=sentences, num_valid=20 * count).documents("valid")
    opinions = (one for one in samples if isinstance(one, LabelledText) and (sentences == 1 or one.text.count(".") > 1))
    return list(islice(opinions, count))


def compare_words(loaded: "LoadedModel", seed: int) -> WordCosines:
    """Compute cosines of word vectors at initialization and after training."""
    names = [name for group in WORD_GROUPS.values() for name in group]
    vectors = {
        "before": word_vectors(untrained(loaded, seed), names),
        "after": word_vectors(loaded, names),
    }
    cosines = {
        when: {pair: cosine(*(table[names.index(word)] for word in pair)) for pair in WORD_PAIRS}
        for when, table in vectors.items()
    }
    return WordCosines(cosines["before"], cosines["after"], tuple(names), vectors)


def word_vectors(loaded: "LoadedModel", names: Sequence[str]) -> np.ndarray:
    """Return the static vector of each word."""
    model: Any = loaded.model
    tokenizer = loaded.require_tokenizer()
    rows = [list(tokenizer.encode(name, add_special_tokens=False).ids) for name in names]
    table = model.embedding.weight.detach().float().numpy()
    return np.stack([table[row].mean(axis=0) for row in rows])


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    """Cosine similarity of two vectors."""
    return float(left @ right / max(float(np.linalg.norm(left) * np.linalg.norm(right)), 1e-12))


def compare_contexts(loaded: "LoadedModel", texts: int) -> ContextCosines:
    """Compare the contextual embeddings of one word after good news and after bad news."""
    after_news = re.compile(rf"(,|:|how|just) {EXAMPLE_WORD}\.$")
    uses = [sample for sample in validation_opinions(20 * texts, 1) if after_news.search(sample.text)][:texts]
    vectors = np.stack([contextual_vector(loaded, use.text) for use in uses])
    positive = [use.label.endswith("good") for use in uses]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, same_meaning = unit @ unit.T, np.equal.outer(positive, positive)
    off_diagonal = ~np.eye(len(uses), dtype=bool)
    nearest = [line[0][0] for line in nearest_neighbours(vectors, 1)]
    return ContextCosines(
        cosine(*(contextual_vector(loaded, text) for text in EXAMPLE_SENTENCES)),
        float(cosines[same_meaning & off_diagonal].mean()),
        float(cosines[~same_meaning].mean()) if (~same_meaning).any() else float("nan"),
        float(np.mean([positive[index] == positive[other] for index, other in enumerate(nearest)])),
    )


def contextual_vector(loaded: "LoadedModel", text: str) -> np.ndarray:
    """Return the word's hidden state of the last layer in this text."""
    from peasy.commands.model_input import make_input
    from peasy.inspection.forward import forward_hidden
    from peasy.inspection.words import find_word

    inputs = make_input(loaded, text)
    positions = list(find_word(inputs.tokens, EXAMPLE_WORD))
    return forward_hidden(loaded.model, inputs.model_input)[0, positions].float().mean(dim=0).numpy()


def cluster_quality(loaded: "LoadedModel", texts: Sequence[LabelledText], seed: int) -> ClusterQuality:
    """Cluster texts into as many clusters as labels; return purity and the Spearman correlation with shared labels."""
    from peasy.metrics.scores import spearman

    vectors, labels = loaded.embed([sample.text for sample in texts]), [sample.label for sample in texts]
    cluster_ids = spherical_kmeans(vectors, len(set(labels)), seed)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    upper = np.triu_indices(len(texts), 1)
    parts = [np.array([label.split(": ")[part] for label in labels]) for part in (0, 1)]  # topic, opinion
    shared = sum((part[:, None] == part).astype(int) for part in parts)
    return ClusterQuality(purity(cluster_ids, labels), spearman((unit @ unit.T)[upper], np.asarray(shared)[upper]))


def purity(clusters: Sequence[int], labels: Sequence[str]) -> float:
    """Return the fraction of texts that have the most common label of their cluster.

    >>> purity([0, 0, 1, 1], ["a", "a", "a", "b"])
    0.75
    """
    members = list(zip(clusters, labels, strict=True))
    groups = [[label for cluster, label in members if cluster == number] for number in set(clusters)]
    return sum(max(group.count(label) for label in set(group)) for group in groups) / len(labels)


def neighbour_figures(
    loaded: "LoadedModel", texts: Sequence[LabelledText], limit: int = 48
) -> tuple[DocumentPart, Table]:
    """Draw a 2-D map of some sentences by label, and a table of nearest neighbours."""
    samples = list(texts[:limit])
    sentences = [sample.text for sample in samples]
    vectors = loaded.embed(sentences)
    plane, _ = embedding_map("Validation sentences", sentences, vectors, [sample.label for sample in samples], 3)
    nearest = [line[0] for line in nearest_neighbours(vectors, 1)[:5]]
    rows = tuple((sentences[i], sentences[other], f"{similarity:.2f}") for i, (other, similarity) in enumerate(nearest))
    return plane, Table(("sentence", "nearest neighbour", "cosine"), rows, "Nearest neighbours")


def conclude(
    words: WordCosines,
    contexts: dict[str, ContextCosines],
    clusters: dict[str, dict[str, ClusterQuality]],
    pictures: Sequence[DocumentPart],
    seed: int,
) -> ExperimentResult:
    """Holds if all three claims, each with its own control, are confirmed."""
    pair, unrelated = WORD_PAIRS[0], WORD_PAIRS[-2:]
    unrelated_cosine = float(np.mean([words.after[words_pair] for words_pair in unrelated]))
    together = words.after[pair] > words.before[pair] + 0.2 and words.after[pair] > unrelated_cosine + 0.2
    trained, fresh = contexts["trained"], contexts["untrained"]
    contextual = trained.same_meaning - trained.other_meaning > 0.1 and trained.nearest_same > 0.75
    grouped = all(models["trained"].purity > models["untrained"].purity + 0.1 for models in clusters.values())
    opposites = words.after["great", "terrible"]
    sentences, documents = (clusters[name] for name in ("sentences", "documents"))
    verdict = (
        f'The cosine of "awesome" and "great" was {words.before[pair]:.2f} before training and is '
        f'{words.after[pair]:.2f} after it (unrelated words: {unrelated_cosine:.2f}; but "great" and "terrible": '
        f'{opposites:.2f}). The static vector of "great" is the same in both sentences; its contextual vectors have a '
        f"cosine of {trained.example_cosine:.2f}, and its nearest other use has the same meaning in "
        f"{trained.nearest_same:.0%} of cases (untrained: {fresh.nearest_same:.0%}). Clusters of sentences have a "
        f"purity of {sentences['trained'].purity:.0%} (untrained: {sentences['untrained'].purity:.0%}), clusters of "
        f"documents {documents['trained'].purity:.0%} ({documents['untrained'].purity:.0%}); cosines correlate with "
        f"the number of shared labels (Spearman {sentences['trained'].spearman:.2f})."
    )
    planes = [_words_map(words, when) for when in ("before", "after")]
    parts = (*planes, _words_table(words), _contexts_table(contexts), *pictures, _clusters_table(clusters))
    caveat = (
        "The texts are synthetic, with the same few hundred words in training and validation: real language is harder, "
        "and a MiniLM is far better at it. Words become similar when they occur in the same contexts, and so do "
        "opposites. The number of clusters is given."
    )
    numbers = {
        "words": {
            when: {" ".join(pair): value for pair, value in getattr(words, when).items()}
            for when in ("before", "after")
        },
        "contexts": {name: vars(context) for name, context in contexts.items()},
        "clusters": {what: {name: vars(c) for name, c in models.items()} for what, models in clusters.items()},
    }
    return ExperimentResult(
        "meaning", QUESTION, parts, verdict, together and contextual and grouped, caveat, numbers, seed
    )


def _words_map(words: WordCosines, when: str) -> DocumentPart:
    groups = [group for group, names in WORD_GROUPS.items() for _ in names]
    return embedding_map(f"Words {when} training", words.names, words.vectors[when], groups)[0]


def _words_table(words: WordCosines) -> Table:
    rows = tuple((" / ".join(pair), f"{words.before[pair]:.2f}", f"{words.after[pair]:.2f}") for pair in WORD_PAIRS)
    return Table(("words", "cosine before", "after"), rows, "Word pairs")


def _contexts_table(contexts: dict[str, ContextCosines]) -> Table:
    rows = [("static", "1.00", "1.00", "1.00", "50%")]
    rows += [
        (
            f"contextual, {name}",
            f"{c.example_cosine:.2f}",
            f"{c.same_meaning:.2f}",
            f"{c.other_meaning:.2f}",
            f"{c.nearest_same:.0%}",
        )
        for name, c in contexts.items()
    ]
    columns = ('vector of "great"', "pizza / broken phone", "same meaning", "other meaning", "nearest has same meaning")
    return Table(columns, tuple(rows), "One word in two contexts (cosines)")


def _clusters_table(clusters: dict[str, dict[str, ClusterQuality]]) -> Table:
    rows = tuple(
        (what, name, f"{result.purity:.0%}", f"{result.spearman:.2f}")
        for what, models in clusters.items()
        for name, result in models.items()
    )
    return Table(("texts", "encoder", "purity", "Spearman"), rows, "Clusters")
