"""`meaning`: sentences and documents on a map, in clusters, with their neighbours; words before and after training."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.views.document import Document
from peasy.views.meaning import Point, map_document, words_document
from peasy.workbench.cluster import cluster
from peasy.workbench.finding import plain
from peasy.workbench.load import LoadedModel
from peasy.workbench.result import Result

MOST = 500
"""So many texts or words at most: more on one map is a cloud."""


@dataclass(frozen=True, repr=False, eq=False)
class MapResult(Result):
    """Texts on a map: `points` in the order of the texts; documents, where there are several, come last."""

    model: str
    points: tuple[Point, ...]
    kept: float
    cosines: np.ndarray

    def document(self) -> Document:
        """The map with its clusters, and the neighbours of each text."""
        return map_document(self.model, self.points, self.kept, self.cosines.shape[0])

    def data(self) -> dict[str, Any]:
        """Points with clusters and neighbours, and all cosines."""
        points = [plain(each) for each in self.points]
        return {"model": self.model, "kept": self.kept, "points": points, "cosines": plain(self.cosines)}

    def __repr__(self) -> str:
        return f"MapResult({self.model}: {len(self.points)} points)"


@dataclass(frozen=True, repr=False, eq=False)
class WordsResult(Result):
    """Words on two maps: with the numbers training began with, and with those it ended with. `exact`: the very ones."""

    model: str
    before: tuple[Point, ...]
    after: tuple[Point, ...]
    kept: tuple[float, float]
    unknown: tuple[str, ...]
    seed: int
    exact: bool

    def document(self) -> Document:
        """Both maps, and the neighbours of each word before and after."""
        return words_document(self.model, self.before, self.after, self.kept, self.unknown, self.says)

    @property
    def says(self) -> str:
        """Where the numbers before training come from."""
        if self.exact:
            return f"Before: the very numbers that the run began with (seed {self.seed})."
        return (
            f"Before: numbers drawn as at the start of training (seed {self.seed}); its own first ones were not kept."
        )

    def data(self) -> dict[str, Any]:
        """Points of both maps as plain data."""
        sides = {"before": [plain(each) for each in self.before], "after": [plain(each) for each in self.after]}
        told = {"kept": plain(self.kept), "unknown": list(self.unknown), "seed": self.seed, "exact": self.exact}
        return {"model": self.model, **sides, **told, "says": self.says}

    def __repr__(self) -> str:
        return f"WordsResult({self.model}: {len(self.after)} words)"


def map_texts(
    loaded: LoadedModel, documents: Sequence[Sequence[str]], *, clusters: int = 3, seed: int = 0
) -> MapResult:
    """Every sentence of some documents as a point near those that mean the same; each document as the mean of its own.

    With one document only its sentences are shown.
    """
    texts = [(text, place) for place, document in enumerate(documents) for text in document if text.strip()]
    if len(texts) < 2 or len(texts) > MOST:
        raise InvalidInput(f"{len(texts)} texts make no map.", hint=f"Give 2 to {MOST}, one to a line.")
    vectors = loaded.embed([text for text, _ in texts])
    names, owners = [text for text, _ in texts], [owner for _, owner in texts]
    there = sorted(set(owners))
    if len(there) > 1:
        means = np.stack([vectors[np.array(owners) == owner].mean(axis=0) for owner in there])
        vectors = np.concatenate([vectors, means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)])
        names += [f"document {owner + 1}" for owner in there]
    count = min(clusters, len(texts))
    groups = cluster(vectors[: len(texts)], count, seed)
    groups += [_nearest_group(vector, vectors[: len(texts)], groups) for vector in vectors[len(texts) :]]
    kinds = ["sentence"] * len(texts) + ["document"] * (len(names) - len(texts))
    points, kept = place_points(names, vectors, groups, kinds, [*owners, *(there if len(there) > 1 else ())])
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return MapResult(loaded.name, points, kept, unit @ unit.T)


def map_words(
    loaded: LoadedModel, words: Sequence[str] = (), *, clusters: int = 4, seed: int | None = None
) -> WordsResult:
    """The vectors of words as training began and as it ended; without `words` the first that the vocabulary has.

    A word of several tokens is the mean of their vectors. Clusters are found after training and shown on both maps.
    """
    from peasy.models.build import build

    known, unknown = _known(loaded, list(dict.fromkeys(words)) or _first_words(loaded))
    if len(known) < 2 or len(known) > MOST:
        raise InvalidInput(f"{len(known)} known words make no map.", hint=f"Give 2 to {MOST} that the model knows.")
    begun = _seed(loaded)
    drawn = seed if seed is not None else begun if begun is not None else 0
    after, before = _vectors(loaded.model, known), _vectors(build(loaded.model.config, seed=drawn), known)
    groups = cluster(after, min(clusters, len(known)))
    kinds, names = ["word"] * len(known), [word for word, _ in known]
    (first, share), (last, share_after) = (place_points(names, each, groups, kinds) for each in (before, after))
    exact = begun is not None and drawn == begun
    return WordsResult(loaded.name, first, last, (share, share_after), tuple(unknown), drawn, exact)


def place_points(
    names: Sequence[str], vectors: np.ndarray, groups: Sequence[int], kinds: Sequence[str], owners: Sequence[int] = ()
) -> tuple[tuple[Point, ...], float]:
    """Vectors as points of their two directions of most difference, each with its nearest others."""
    from peasy.views.embedding import nearest_points, principal_plane

    places, kept = principal_plane(np.asarray(vectors, dtype=float))
    near = nearest_points(np.asarray(vectors, dtype=float))
    return tuple(
        Point(name, float(x), float(y), f"cluster {group + 1}", kind, owner, tuple(others))
        for name, (x, y), group, kind, owner, others in zip(
            names, places, groups, kinds, owners or [0] * len(names), near, strict=True
        )
    ), kept


def _nearest_group(vector: np.ndarray, vectors: np.ndarray, groups: list[int]) -> int:
    return groups[int((vectors @ vector).argmax())]


def _known(loaded: LoadedModel, words: Sequence[str]) -> tuple[list[tuple[str, tuple[int, ...]]], list[str]]:
    """Words with their tokens, as they stand in a text; those with a token that means "unknown" apart."""
    tokenizer = loaded.need_tokenizer()
    known: list[tuple[str, tuple[int, ...]]] = []
    unknown: list[tuple[str, tuple[int, ...]]] = []
    for word in words:
        ids = _inside(tokenizer.encode(f" {word.strip()}", special=False).ids, tokenizer, word)
        (known if ids and tokenizer.special.unk not in ids else unknown).append((word, ids))
    return known, [word for word, _ in unknown]


def _inside(ids: tuple[int, ...], tokenizer: Any, word: str) -> tuple[int, ...]:
    """Without a token that is only the space before the word."""
    return tuple(id for id in ids if tokenizer.piece(id).strip("· ")) if word.strip() else ()


def _first_words(loaded: LoadedModel, most: int = 40) -> list[str]:
    tokenizer = loaded.need_tokenizer()
    pieces = (tokenizer.piece(id) for id in range(min(len(tokenizer), 2000)))
    words = dict.fromkeys(piece.strip("·") for piece in pieces if piece.strip("·").isalpha() and len(piece) > 3)
    return list(words)[:most]


def _vectors(model: Any, known: Sequence[tuple[str, tuple[int, ...]]]) -> np.ndarray:
    table = getattr(model, "embedding", None)
    if table is None:
        raise InvalidInput("This model has no vectors of words.", hint="An n-gram model counts.")
    weight = getattr(table, "token", table).weight.detach().float().cpu().numpy()
    return np.stack([weight[list(ids)].mean(axis=0) for _, ids in known])


def _seed(loaded: LoadedModel) -> int | None:
    """The seed that the weights were drawn from, where the run is still beside them."""
    folder = loaded.folder
    for place in (folder, *folder.parents[:2]) if folder is not None else ():
        recipe = Path(place) / "recipe.json"
        if recipe.is_file():
            told = json.loads(recipe.read_text(encoding="utf-8"))
            return told["seed"] if told.get("origin") is None and isinstance(told.get("seed"), int) else None
    return None
