"""`meaning`: word vectors before and after training, contextual embeddings of one word, clusters of sentences."""

import re
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import islice
from typing import Any

import numpy as np

from peasy.commands.load import LoadedModel
from peasy.datasets import LabelledText, open_corpus
from peasy.experiments.models import ModelSource, open_model, training_seed, untrained
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, permutation_p_value
from peasy.metrics.kmeans import spherical_kmeans
from peasy.views.document import DocumentPart
from peasy.views.embedding import embedding_map, nearest_neighbours

WORD_GROUPS = {
    "praise": ("great", "awesome", "wonderful", "fantastic", "excellent"),
    "blame": ("terrible", "awful", "horrible", "dreadful"),
    "food": ("pizza", "soup", "cake", "bread"),
    "phone": ("phone", "laptop", "camera", "printer"),
    "journey": ("train", "bus", "flight", "taxi"),
}
WORD_PAIRS = (("awesome", "great"), ("pizza", "soup"), ("great", "terrible"), ("great", "pizza"), ("awesome", "phone"))
"""Two similar pairs, one of opposites, two unrelated pairs."""
_EXAMPLE_SENTENCES = ("The pizza is great.", "My phone broke, great.")
_EXAMPLE_WORD = "great"
_NUM_PERMUTATIONS = 199
_NUM_DRAWN = 48
"""Number of sentences on the map."""


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

    `nearest_same`: how often the nearest other use has the same meaning; `hits`: for each use.
    """

    example_cosine: float
    same_meaning: float
    other_meaning: float
    nearest_same: float
    hits: tuple[bool, ...] = ()


@dataclass(frozen=True)
class ClusterQuality:
    """Purity of clusters by label, and Spearman correlation of cosines with the number of shared labels."""

    purity: float
    spearman: float
    hits: tuple[bool, ...] = ()
    """For each text, whether its label is the most common one of its cluster."""


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, words: ModelSource = "words",
    sentences: ModelSource = "sentences", texts: int = 240,
) -> ExperimentResult:  # fmt: skip
    """Compare words, one word in context, sentences and documents with the same models untrained."""
    on_status("word vectors before and after training ...")
    word_cosines = _compare_words(open_model(words))
    loaded = open_model(sentences)
    models = {"trained": loaded, "untrained": untrained(loaded, seed)}
    opinions = {"sentences": _validation_opinions(texts, 1), "documents": _validation_opinions(texts, 4)}
    contexts: dict[str, ContextCosines] = {}
    clusters: dict[str, dict[str, ClusterQuality]] = {what: {} for what in opinions}
    contexts["word overlap"] = _overlap_baseline(texts)
    for name, model in models.items():
        on_status(f"{name}: one word in many sentences, then {2 * texts} texts ...")
        contexts[name] = _compare_contexts(model, texts)
        for what, samples in opinions.items():
            clusters[what][name] = _cluster_quality(model, samples, seed)
    return conclude(word_cosines, contexts, clusters, _neighbour_figures(loaded, opinions["sentences"]), seed)


def _validation_opinions(count: int, sentences: int) -> list[LabelledText]:
    """Validation opinions of one sentence, or of two to `sentences` sentences."""
    samples = open_corpus("opinions", max_sentences=sentences, num_valid=20 * count).documents("valid")
    opinions = (one for one in samples if isinstance(one, LabelledText) and (sentences == 1 or one.text.count(".") > 1))
    distinct = {opinion.text: opinion for opinion in opinions}  # a text that occurs twice is nearest to its copy
    return list(islice(distinct.values(), count))


def _compare_words(loaded: LoadedModel) -> WordCosines:
    """Compute cosines of static word vectors after training, and at the initialization that training began with."""
    names = tuple(name for group in WORD_GROUPS.values() for name in group)
    tokenizer = loaded.require_tokenizer()
    rows = [list(tokenizer.encode(name, add_special_tokens=False).ids) for name in names]
    vectors, cosines = {}, {}
    for when, one in (("before", untrained(loaded, training_seed(loaded))), ("after", loaded)):
        model: Any = one.model
        embeddings = model.embedding.weight.detach().float().numpy()
        vectors[when] = np.stack([embeddings[row].mean(axis=0) for row in rows])
        cosines[when] = {pair: _cosine(*(vectors[when][names.index(word)] for word in pair)) for pair in WORD_PAIRS}
    return WordCosines(cosines["before"], cosines["after"], names, vectors)


def group_closeness(vectors: np.ndarray, groups: Sequence[str]) -> float:
    """Return how much nearer words are to their own group than to the others: difference of mean cosines."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines, same = unit @ unit.T, np.equal.outer(groups, groups)
    return float(cosines[same & ~np.eye(len(groups), dtype=bool)].mean() - cosines[~same].mean())


def _compare_groups(words: WordCosines, groups: Sequence[str]) -> Comparison:
    """Compare the groups of words with random groups of the same sizes: words of a group are no independent samples."""
    rng = np.random.default_rng(0)
    observed, vectors = group_closeness(words.vectors["after"], groups), words.vectors["after"]
    permuted = [group_closeness(vectors, rng.permutation(groups).tolist()) for _ in range(_NUM_PERMUTATIONS)]
    p_value, average = permutation_p_value(observed, permuted), float(np.mean(permuted))
    name = "words come near their group"
    return Comparison(name, "cosine above other words", observed, "random groups", average, p_value=p_value)


def _cosine(left: np.ndarray, right: np.ndarray) -> float:
    """Cosine similarity of two vectors."""
    return float(left @ right / max(float(np.linalg.norm(left) * np.linalg.norm(right)), 1e-12))


def _compare_contexts(loaded: LoadedModel, texts: int) -> ContextCosines:
    """Compare the contextual embeddings of one word after good news and after bad news."""
    uses = _uses_of_example_word(texts)
    vectors = np.stack([_contextual_vector(loaded, use.text) for use in uses])
    example = _cosine(*(_contextual_vector(loaded, text) for text in _EXAMPLE_SENTENCES))
    return _context_cosines(vectors, uses, example)


def _context_cosines(vectors: np.ndarray, uses: Sequence[LabelledText], example: float) -> ContextCosines:
    positive = [use.label.endswith("good") for use in uses]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, same_meaning = unit @ unit.T, np.equal.outer(positive, positive)
    off_diagonal = ~np.eye(len(uses), dtype=bool)
    hits = tuple(positive[row] == positive[line[0][0]] for row, line in enumerate(nearest_neighbours(vectors, 1)))
    return ContextCosines(
        example,
        float(cosines[same_meaning & off_diagonal].mean()),
        float(cosines[~same_meaning].mean()) if (~same_meaning).any() else float("nan"),
        float(np.mean(hits)),
        hits,
    )


def _uses_of_example_word(texts: int) -> list[LabelledText]:
    """Return distinct sentences that end with the example word after good or bad news."""
    after_news = re.compile(rf"(,|:|how|just) {_EXAMPLE_WORD}\.$")
    return [sample for sample in _validation_opinions(20 * texts, 1) if after_news.search(sample.text)][:texts]


def _overlap_baseline(texts: int) -> ContextCosines:
    """Compare the same uses by their words alone (cosine of word counts): a baseline without any network."""
    uses = _uses_of_example_word(texts)
    rows = [re.findall(r"\w+", use.text.lower()) for use in uses]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys(word for row in rows for word in row))}
    counts = np.zeros((len(rows), len(vocabulary)))
    for row, words in enumerate(rows):
        for word in words:
            counts[row, vocabulary[word]] += 1
    return _context_cosines(counts, uses, float("nan"))


def _contextual_vector(loaded: LoadedModel, text: str) -> np.ndarray:
    """Return the word's hidden state of the last layer in this text."""
    from peasy.commands.model_input import make_input
    from peasy.inspection.forward import forward_hidden

    inputs = make_input(loaded, text)
    positions = list(inputs.tokens.find(_EXAMPLE_WORD))
    return forward_hidden(loaded.model, inputs.model_input)[0, positions].float().mean(dim=0).numpy()


def _cluster_quality(loaded: LoadedModel, texts: Sequence[LabelledText], seed: int) -> ClusterQuality:
    """Cluster texts into as many clusters as labels; return purity and the Spearman correlation with shared labels."""
    from peasy.metrics.scores import spearman

    vectors, labels = loaded.embed_texts([sample.text for sample in texts]), [sample.label for sample in texts]
    cluster_ids = spherical_kmeans(vectors, len(set(labels)), seed)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    upper = np.triu_indices(len(texts), 1)
    parts = [np.array([label.split(": ")[part] for label in labels]) for part in (0, 1)]  # topic, opinion
    shared = sum((part[:, None] == part).astype(int) for part in parts)
    correlation = spearman((unit @ unit.T)[upper], np.asarray(shared)[upper])
    hits = majority_hits(cluster_ids, labels)
    return ClusterQuality(float(np.mean(hits)), correlation, hits)


def majority_hits(clusters: Sequence[int], labels: Sequence[str]) -> tuple[bool, ...]:
    """Return for each text whether it has the most common label of its cluster; their mean is the purity.

    >>> majority_hits([0, 0, 1, 1], ["a", "a", "a", "b"])
    (True, True, True, False)
    """
    members = list(zip(clusters, labels, strict=True))
    common = {}
    for number in set(clusters):
        group = [label for cluster, label in members if cluster == number]
        common[number] = max(sorted(set(group)), key=group.count)
    return tuple(label == common[cluster] for cluster, label in members)


def _neighbour_figures(loaded: LoadedModel, samples: Sequence[LabelledText]) -> tuple[DocumentPart, ...]:
    """Draw a 2-D map of some sentences by label, and a table of nearest neighbours."""
    sentences, labels = zip(*((sample.text, sample.label) for sample in samples[:_NUM_DRAWN]), strict=True)
    vectors = loaded.embed_texts(list(sentences))
    plane, _ = embedding_map("Validation sentences", sentences, vectors, labels, 3)
    nearest = [line[0] for line in nearest_neighbours(vectors, 1)[:5]]
    columns = [("sentence", ""), ("nearest neighbour", ""), ("cosine", ".2f")]
    rows = ((sentences[i], sentences[other], similarity) for i, (other, similarity) in enumerate(nearest))
    return plane, table("Nearest neighbours", columns, rows)


def conclude(
    words: WordCosines, contexts: dict[str, ContextCosines], clusters: dict[str, dict[str, ClusterQuality]],
    pictures: Sequence[DocumentPart], seed: int,
) -> ExperimentResult:  # fmt: skip
    """Words: their groups against random groups. Contexts: against the same encoder untrained, and against word
    overlap. Clusters: against those of the untrained encoder, text by text."""
    pair = WORD_PAIRS[0]
    unrelated_cosine = float(np.mean([words.after[one] for one in WORD_PAIRS[-2:]]))
    trained, fresh, overlap = (contexts[name] for name in ("trained", "untrained", "word overlap"))
    groups = [group for group, names in WORD_GROUPS.items() for _ in names]
    same = "nearest use, same meaning"
    comparisons = [
        _compare_groups(words, groups),
        Comparison.of_pairs("context tells meanings apart", same, trained.hits, "untrained", fresh.hits),
        Comparison.of_pairs("more than shared words", same, trained.hits, "word overlap", overlap.hits),
        *(
            Comparison.of_pairs(
                f"{what} cluster by meaning", "purity", by["trained"].hits, "untrained", by["untrained"].hits
            )
            for what, by in clusters.items()
        ),
    ]  # fmt: skip
    sentences, documents = clusters["sentences"], clusters["documents"]
    verdict = (
        f'The cosine of "awesome" and "great" was {words.before[pair]:.2f} before training and is '
        f'{words.after[pair]:.2f} after it (unrelated words: {unrelated_cosine:.2f}; but "great" and "terrible": '
        f'{words.after["great", "terrible"]:.2f}). The static vector of "great" is the same in both sentences; its '
        f"contextual vectors have a cosine of {trained.example_cosine:.2f}, and its nearest other use has the same "
        f"meaning in {trained.nearest_same:.0%} of cases (untrained: {fresh.nearest_same:.0%}; "
        f"by counting words: {overlap.nearest_same:.0%}). Clusters of sentences "
        f"have a purity of {sentences['trained'].purity:.0%} (untrained: {sentences['untrained'].purity:.0%}), "
        f"clusters of documents {documents['trained'].purity:.0%} ({documents['untrained'].purity:.0%}); cosines "
        f"correlate with the number of shared labels (Spearman {sentences['trained'].spearman:.2f})."
    )
    planes = (
        embedding_map(f"Words {when} training", words.names, vectors, groups)[0]
        for when, vectors in words.vectors.items()
    )
    pairs = ((" / ".join(pair), words.before[pair], words.after[pair]) for pair in WORD_PAIRS)
    use_columns = [
        ('vector of "great"', ""), ("pizza / broken phone", ".2f"), ("same meaning", ".2f"), ("other meaning", ".2f"),
        ("nearest has same meaning", ".0%"),
    ]  # fmt: skip
    uses = ((name, *astuple(by)[:4]) for name, by in contexts.items())
    quality = ((what, name, by.purity, by.spearman) for what, models in clusters.items() for name, by in models.items())
    parts = (
        *planes,
        table("Word pairs", [("words", ""), ("cosine before", ".2f"), ("after", ".2f")], pairs),
        table("One word in two contexts (cosines)", use_columns, uses),
        *pictures,
        table("Clusters", [("texts", ""), ("encoder", ""), ("purity", ".0%"), ("Spearman", ".2f")], quality),
    )
    cosines = {"before": words.before, "after": words.after}
    numbers = {
        "words": {when: {" ".join(pair): value for pair, value in by.items()} for when, by in cosines.items()},
        "contexts": {name: asdict(context) for name, context in contexts.items()},
        "clusters": {what: {name: asdict(c) for name, c in models.items()} for what, models in clusters.items()},
    }
    return make_result("meaning", parts, verdict, comparisons, numbers, seed)
