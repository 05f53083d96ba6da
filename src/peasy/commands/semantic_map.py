"""Semantic maps: texts and word vectors in two dimensions, with clusters and neighbours; similarity by word pairs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Le

from peasy.commands.load import LoadedModel
from peasy.commands.result import JsonDict, RecordResult, Result
from peasy.commands.runs import recipe_of
from peasy.errors import InvalidInput
from peasy.inspection.results import Array, Similarity
from peasy.inspection.words import label_text
from peasy.metrics.kmeans import spherical_kmeans, unit_vectors
from peasy.parameters import Record
from peasy.views.document import Document, DocumentPart, Heading, Paragraph, Plane, Table
from peasy.views.embedding import PCA_AXES, nearest_neighbours, pca_2d, similarity_document

if TYPE_CHECKING:
    from peasy.models.protocol import Model

MAX_POINTS = 500
"""Maximum number of texts or words; more points on one map cannot be read."""


class MapPoint(Record):
    """Point of a semantic map: a text or a word. `neighbours` are (index, cosine), nearest first.

    `kind` is sentence, document or word; `document_index` the index of the document that contains a sentence.
    """

    name: str
    x: float
    y: float
    group: str
    kind: str = "sentence"
    document_index: int = 0
    neighbours: tuple[tuple[int, float], ...] = ()


def _map_figure(title: str, points: tuple[MapPoint, ...]) -> Plane:
    coordinates = tuple((point.name, point.x, point.y) for point in points)
    near = tuple(tuple(other for other, _ in point.neighbours) for point in points)
    return Plane(title, coordinates, *PCA_AXES, groups=tuple(point.group for point in points), neighbours=near)


def _format_neighbours(points: tuple[MapPoint, ...], point: MapPoint) -> str:
    return ", ".join(f"{points[other].name} {cosine:.2f}" for other, cosine in point.neighbours)


class TextMapResult(Result, eq=False):
    """Map of text embeddings: `points` in the order of the texts; with several documents, their means come last."""

    model: str
    points: tuple[MapPoint, ...]
    explained_variance: float
    cosines: Array
    note: str | None = None
    json_decimals = 6

    def document(self) -> Document:
        """Return the map with its clusters, and the nearest neighbours of each text."""
        shown = f"{self.model}: {len(self.cosines)} points. The map shows {self.explained_variance:.0%} of the variance"
        note = Paragraph(f"{shown}; neighbours are by cosine similarity in full dimension.", "note")
        rows = tuple((point.name, point.group, _format_neighbours(self.points, point)) for point in self.points)
        neighbours = Table(("", "cluster", "nearest"), rows, "Neighbours")
        return Document("Texts by meaning", (_map_figure("Texts", self.points), note, neighbours)).with_note(self.note)


class WordMapResult(Result, eq=False):
    """Two maps of word vectors: at initialization (`is_exact_init`: the run's own weights) and after training."""

    model: str
    before: tuple[MapPoint, ...]
    after: tuple[MapPoint, ...]
    explained_variance: tuple[float, float]
    unknown: tuple[str, ...]
    seed: int
    is_exact_init: bool
    json_decimals = 6

    def document(self) -> Document:
        """Return both maps, and the nearest neighbours of each word before and after."""
        rows = tuple(
            (old.name, _format_neighbours(self.before, old), _format_neighbours(self.after, new))
            for old, new in zip(self.before, self.after, strict=True)
        )
        before, after = self.explained_variance
        parts: list[DocumentPart] = []
        for title, points in (("Before training", self.before), ("After training", self.after)):
            parts += [Heading(title), _map_figure(title, points)]
        parts += [
            Paragraph(f"{self.summary} The maps show {before:.0%} and {after:.0%} of the variance.", "note"),
            Table(("word", "nearest before", "nearest after"), rows, "Neighbours"),
        ]
        if self.unknown:
            parts.append(Paragraph(f"Not in the vocabulary: {', '.join(self.unknown)}.", "note"))
        return Document(f"Words of {self.model}", tuple(parts))

    @property
    def summary(self) -> str:
        """Where the initial vectors come from."""
        if self.is_exact_init:
            return f"Before: the initial weights of this run (seed {self.seed})."
        return f"Before: newly drawn initial weights (seed {self.seed}); the initial weights of this run were not kept."

    def data(self) -> JsonDict:
        data = super().data()
        return data | {"exact_init": data.pop("is_exact_init"), "description": self.summary}


def map_texts(
    model: LoadedModel,
    documents: Sequence[Sequence[str]],
    *,
    clusters: Annotated[int, Ge(1), Le(12)] = 3,
    seed: int = 0,
) -> TextMapResult:
    """Map each sentence of some documents to a point; a document is the mean of its sentence vectors.

    Args:
        model: Encoder.
        documents: Documents, each a list of sentences; of a single document only its sentences are shown.
        clusters: Number of clusters of sentences.
        seed: Seed of the clustering.
    """
    sentences = [(text, index) for index, document in enumerate(documents) for text in document if text.strip()]
    if len(sentences) < 2 or len(sentences) > MAX_POINTS:
        message = f"A map needs 2 to {MAX_POINTS} texts, and there are {len(sentences)}."
        raise InvalidInput(message, hint="Give one text per line.")
    names, document_of = [text for text, _ in sentences], [number for _, number in sentences]
    vectors, note = model.embed_texts(names), model.truncation_note(model.num_truncated(names), len(names))
    document_numbers = sorted(set(document_of))
    if len(document_numbers) > 1:
        means = np.stack([vectors[np.array(document_of) == number].mean(axis=0) for number in document_numbers])
        vectors = np.concatenate([vectors, unit_vectors(means)])
        names += [f"document {number + 1}" for number in document_numbers]
    count = min(clusters, len(sentences))
    cluster_ids = spherical_kmeans(vectors[: len(sentences)], count, seed)
    nearest = (vectors[len(sentences) :] @ vectors[: len(sentences)].T).argmax(axis=1)
    cluster_ids += [cluster_ids[index] for index in nearest.tolist()]
    kinds = ["sentence"] * len(sentences) + ["document"] * (len(names) - len(sentences))
    documents_of = [*document_of, *(document_numbers if len(document_numbers) > 1 else ())]
    points, explained_variance = _project_points(names, vectors, cluster_ids, kinds, documents_of)
    unit = unit_vectors(vectors)
    return TextMapResult(model.name, points, explained_variance, unit @ unit.T, note)


def map_words(
    model: LoadedModel,
    words: Sequence[str] = (),
    *,
    clusters: Annotated[int, Ge(1), Le(12)] = 4,
    seed: int | None = None,
) -> WordMapResult:
    """Map word vectors at initialization and after training.

    A word of several tokens is the mean of their vectors. Clusters are computed after training and shown on both maps.

    Args:
        model: Model with token embeddings.
        words: Words to map; default: the first words of the vocabulary.
        clusters: Number of clusters of words.
        seed: Seed of the initial weights; default: that of the run.
    """
    from peasy.models.build import build

    tokenizer = model.require_tokenizer()
    known, unknown = list[tuple[str, tuple[int, ...]]](), list[str]()  # a word is encoded as after a space
    for word in dict.fromkeys(words) or _first_words(model):
        encoded = tokenizer.encode(f" {word.strip()}", add_special_tokens=False).ids if word.strip() else ()
        ids = tuple(id for id in encoded if tokenizer.piece(id).strip("· "))  # without the space before the word
        if ids and tokenizer.special_tokens.unk not in ids:
            known.append((word, ids))
        else:
            unknown.append(word)
    if len(known) < 2 or len(known) > MAX_POINTS:
        message = f"A map needs 2 to {MAX_POINTS} words, and {len(known)} of these are in the vocabulary."
        raise InvalidInput(message, hint="Give more words that the model knows.")
    recipe = recipe_of(model.folder)
    run_seed = recipe["seed"] if recipe.get("init_from") is None and isinstance(recipe.get("seed"), int) else None
    init_seed = seed if seed is not None else run_seed if run_seed is not None else 0
    after, before = _word_vectors(model.model, known), _word_vectors(build(model.model.config, seed=init_seed), known)
    cluster_ids = spherical_kmeans(after, min(clusters, len(known)))
    kinds, names = ["word"] * len(known), [word for word, _ in known]
    maps = (_project_points(names, vectors, cluster_ids, kinds) for vectors in (before, after))
    (old_points, new_points), shares = zip(*maps, strict=True)
    exact = run_seed is not None and init_seed == run_seed
    return WordMapResult(model.name, old_points, new_points, shares, tuple(unknown), init_seed, exact)


def _project_points(
    names: Sequence[str], vectors: Array, clusters: Sequence[int], kinds: Sequence[str], document_of: Sequence[int] = ()
) -> tuple[tuple[MapPoint, ...], float]:
    """Project vectors onto two principal components; return points with neighbours, and the explained variance."""
    coordinates, explained_variance = pca_2d(np.asarray(vectors, dtype=float))
    neighbours = nearest_neighbours(np.asarray(vectors, dtype=float))
    rows = zip(names, coordinates, clusters, kinds, document_of or [0] * len(names), neighbours, strict=True)
    return tuple(
        MapPoint(name, float(x), float(y), f"cluster {cluster + 1}", kind, document, tuple(nearest))
        for name, (x, y), cluster, kind, document, nearest in rows
    ), explained_variance


def _first_words(loaded: LoadedModel, limit: int = 40) -> list[str]:
    tokenizer = loaded.require_tokenizer()
    pieces = (tokenizer.piece(id) for id in range(min(len(tokenizer), 2000)))
    words = dict.fromkeys(piece.strip("·") for piece in pieces if piece.strip("·").isalpha() and len(piece) > 3)
    return list(words)[:limit]


def _word_vectors(model: "Model", known: Sequence[tuple[str, tuple[int, ...]]]) -> Array:
    embedding = getattr(model, "embedding", None)
    if embedding is None:
        raise InvalidInput("This model has no token embeddings.", hint="An n-gram model stores counts instead.")
    weight: Array = getattr(embedding, "token", embedding).weight.detach().float().cpu().numpy()
    return np.stack([weight[list(ids)].mean(axis=0) for _, ids in known])


class SimilarityResult(RecordResult, Similarity):
    """Similarity explained: the cosine of two sentence embeddings as a sum over word pairs."""

    document = similarity_document


def similarity_by_words(model: LoadedModel, first: str, second: str) -> SimilarityResult:
    """Explain the cosine similarity of two sentences by word pairs, for an encoder with mean pooling.

    Args:
        model: Encoder with mean pooling.
        first: First sentence.
        second: Second sentence.
    """
    from peasy.inspection.analysis import explain_similarity

    texts, tokenizer = (first, second), model.require_tokenizer()
    ids = (model.truncate_ids(model.encode_prompt(text)) for text in texts)  # as `embed` reads them
    one, other = (label_text(tokenizer, text, row) for text, row in zip(texts, ids, strict=True))
    similarity = explain_similarity(model.model, one, other, model.name)
    note = model.truncation_note(model.num_truncated(texts), 2)
    return SimilarityResult.of(replace(similarity, note=note))
