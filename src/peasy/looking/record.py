"""What looking finds, as plain data: NumPy arrays with the tokens that name their rows and columns. No torch here.

Pages, pictures and tables are made of these alone. An array never travels without its labels, and never
without what a reader must know to read it: edits, scaling, how exactly it is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peasy.formula.step import Step
from peasy.looking.label import CAVEAT, MERGED, Candidate, Grid, Part, Tokens
from peasy.nn.place import Place

__all__ = [
    "CAVEAT", "MERGED", "Alignment", "AlignmentScore", "Candidate", "Capture", "Effect", "Frame", "GenerationTrace",
    "Grid", "HeadReport", "HeadScore", "LensTable", "LongLook", "Look", "Looked", "Overview", "Part", "Similarity",
    "Tokens", "TraceStep", "TrainingFilm",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Capture:
    """One step of one place of a model, for one text.

    `array` is `[head, row, key]` for scores, scaled, masked and weights; `[head, row, width]` for query and context;
    `[head, key, width]` for key and value; `[row, width]` for the stream and the feed-forward (then `heads` is empty).
    `heads` are the numbers of the heads along the first axis, `rows` the places of the queries along the second (None:
    the step has keys there, all of them). `sizes` `[head, key]`, with weights only: how long each key's value is;
    `scaled()` uses it. `caption` is the formula's own, where it has one.
    """

    place: Place
    step: str
    array: np.ndarray
    heads: tuple[int, ...] = ()
    rows: tuple[int, ...] | None = None
    sizes: np.ndarray | None = None
    caption: Step | None = None

    def scaled(self) -> np.ndarray:
        """Contributions: each weight times the length of the value that it carries; they do not add up to 1."""
        assert self.sizes is not None, "only weights carry values"
        return self.array.astype(np.float32) * self.sizes[:, None, :]


@dataclass(frozen=True, eq=False)
class Look:
    """What was asked for of one text through one model.

    `tokens` is the text, and for a translator the source; `target` is what a translator answered. `captures` hold what
    was asked for. `parts` tell about every attention of the model, also those not captured. `edits` say in words what
    was changed before looking (empty = nothing was). `storage` is the dtype the arrays are kept in. `next` is what
    the model would say after the last token, best first (empty for an encoder without a head).
    """

    model: str
    kind: str
    tokens: Tokens
    target: Tokens | None
    captures: tuple[Capture, ...]
    parts: tuple[Part, ...]
    edits: tuple[str, ...] = ()
    storage: str = "float32"
    next: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()
    caveat: str = CAVEAT

    def axes(self, place: Place) -> tuple[Tokens, Tokens]:
        """Whose the queries and whose the keys of a place are: (queries, keys)."""
        own = self.target if self.target is not None and place.stack == "decoder" else self.tokens
        return own, self.tokens if place.part == "cross_attention" else own

    def of(self, step: str) -> dict[Place, Capture]:
        """The captures of a step, by place."""
        return {capture.place: capture for capture in self.captures if capture.step == step}

    def part(self, place: Place) -> Part | None:
        """The facts about an attention."""
        return next((part for part in self.parts if part.place == place), None)


@dataclass(frozen=True, eq=False)
class Overview:
    """A matrix too large to hold, in square tiles of `tile` queries by `tile` keys: `tiles` `[head, row, column]`.

    `how` is "mean" or "max", over all cells of a tile; hidden cells are 0, and the last tiles may be smaller.
    """

    place: Place
    heads: tuple[int, ...]
    tile: int
    how: str
    tiles: np.ndarray
    queries: int
    keys: int
    scaled: bool = False
    caveat: str = CAVEAT


@dataclass(frozen=True, eq=False)
class LongLook:
    """A long text: an overview of each asked attention, and exact rows of it where they were asked for."""

    model: str
    tokens: Tokens
    overviews: tuple[Overview, ...]
    rows: tuple[Capture, ...]
    parts: tuple[Part, ...]
    edits: tuple[str, ...] = ()
    storage: str = "float32"
    caveat: str = CAVEAT


@dataclass(frozen=True, eq=False)
class HeadScore:
    """What one head does, as shares of its attention, averaged over the queries of all sentences.

    `entropy` in bits, and `sharpness` 1 - entropy / most possible. `previous`, `next`, `first`, `own`: weight on the
    token before, after, at the start, on itself. `same`: weight on earlier or later places of the same token, the
    query's own left out. `induction`: on a random sequence that is repeated, weight on the token that came after the
    same token before. `position`: how alike the head's pattern is on unlike texts (1 = only places decide, 0 = only
    words do). `distance`: mean number of places between query and key. `profile[d]`: weight at d places back (or, in
    an encoder, either way; the last holds all that lies further).
    """

    place: Place
    head: int
    entropy: float
    sharpness: float
    previous: float
    next: float
    first: float
    own: float
    same: float
    induction: float | None
    position: float
    distance: float
    profile: np.ndarray

    def says(self) -> str:
        """What stands out most, in a few words."""
        named = {
            "looks at the previous token": self.previous,
            "looks at the next token": self.next,
            "looks at the first token": self.first,
            "looks at itself": self.own,
            "looks at the same token elsewhere": self.same,
            "continues what was there before (induction)": self.induction or 0.0,
        }
        best = max(named, key=lambda name: named[name])
        return best if named[best] >= 0.4 else "spread widely" if self.sharpness < 0.2 else "mixed"


@dataclass(frozen=True, eq=False)
class HeadReport:
    """What every head of a model does across some sentences."""

    model: str
    heads: tuple[HeadScore, ...]
    sentences: int
    tokens: int
    notes: tuple[str, ...] = ()
    caveat: str = CAVEAT

    def ranked(self, by: str) -> tuple[HeadScore, ...]:
        """The heads with most of one score first; heads without that score are left out."""
        scored = [head for head in self.heads if getattr(head, by) is not None]
        return tuple(sorted(scored, key=lambda head: -getattr(head, by)))


@dataclass(frozen=True, eq=False)
class LensTable:
    """What each layer would say next, read by the model's own head: layer 0 is the embedding, the last is the model.

    `pieces[layer][row]` are the best tokens at a place of the text, best first; `chances` `[layer, row, best]` their
    probabilities; `rows` the places.
    """

    model: str
    tokens: Tokens
    layers: tuple[int, ...]
    rows: tuple[int, ...]
    pieces: tuple[tuple[tuple[str, ...], ...], ...]
    chances: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def final(self) -> tuple[str, ...]:
        """The model's own first choice at each row."""
        return tuple(best[0] for best in self.pieces[-1])


@dataclass(frozen=True, eq=False)
class Similarity:
    """The cosine of two sentences as a sum over pairs of words: `pairs` `[word of first, word of second]`.

    The cells add up to `cosine`; `token_pairs` are the same by token.
    """

    model: str
    first: Tokens
    second: Tokens
    pairs: np.ndarray
    token_pairs: np.ndarray
    cosine: float


@dataclass(frozen=True, eq=False)
class Looked:
    """Where the heads of one attention looked when one token was chosen: `keys` and `weights` `[head, best]`.

    The largest weights first; the rest of a row adds up to what is missing from 1.
    """

    place: Place
    keys: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class TraceStep:
    """One produced token: what else could have come, where each head looked, and what had to be computed for it.

    `computed` tokens went through the model in this step, and `reused` came from the cache. `score` is the log
    probability of the whole text so far.
    """

    id: int
    piece: str
    chance: float
    score: float
    candidates: tuple[Candidate, ...]
    looked: tuple[Looked, ...]
    computed: int
    reused: int


@dataclass(frozen=True, eq=False)
class GenerationTrace:
    """How a text came about, token by token, through the cache. Keys count `prompt` first, then what was produced.

    For a translator `source` is what cross-attention looked at. Of several beams, this is one; `beams` are all of
    them, best first, the first being this one (empty where there was only one).
    """

    model: str
    prompt: Tokens
    source: Tokens | None
    steps: tuple[TraceStep, ...]
    text: str
    parts: tuple[Part, ...] = ()
    beams: tuple["GenerationTrace", ...] = ()
    edits: tuple[str, ...] = ()
    caveat: str = CAVEAT

    @property
    def keys(self) -> tuple[str, ...]:
        """The pieces that self-attention could look at, prompt first."""
        return (*self.prompt.pieces, *(step.piece for step in self.steps))


@dataclass(frozen=True)
class AlignmentScore:
    """How well one head aligns. `right`: share of known pairs it finds (None: nothing is known about the pair).

    `monotony`: how far its best source place moves with what is written (1 = in step, 0 = it stands still or goes
    back). `sharpness`: mean of the largest weight. `score` is what heads are ranked by: `right` where it is known,
    else monotony x sharpness.
    """

    place: Place
    head: int
    right: float | None
    monotony: float
    sharpness: float
    score: float


@dataclass(frozen=True, eq=False)
class Alignment:
    """Which source words the words of an answer were written from: `weights` `[target word, source word]`.

    `place` and `head` are what is shown; `scores` rank all heads, best first. `known` are (source word, target word)
    pairs that are known to belong together.
    """

    model: str
    source: Tokens
    target: Tokens
    weights: np.ndarray
    place: Place
    head: int
    scores: tuple[AlignmentScore, ...]
    known: tuple[tuple[int, int], ...] = ()
    caveat: str = CAVEAT

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.weights, dtype=dtype)

    @property
    def layer(self) -> int:
        """The layer that is shown."""
        return self.place.layer

    def best(self) -> list[tuple[str, str]]:
        """Each word of the answer with the source word that it was written from most."""
        most = self.weights.argmax(axis=1)
        return [(word, self.source.words[at]) for word, at in zip(self.target.words, most.tolist(), strict=True)]

    def links(self, least: float = 0.1) -> tuple[tuple[int, int, float], ...]:
        """(source word, target word, weight) of all links that strong."""
        target, source = np.nonzero(self.weights >= least)
        return tuple((int(s), int(t), float(self.weights[t, s])) for t, s in zip(target, source, strict=True))


@dataclass(frozen=True, eq=False)
class Frame:
    """One checkpoint of a film: weights `[head, query, key]` by place, after `step` steps."""

    step: int
    weights: Mapping[Place, np.ndarray]


@dataclass(frozen=True, eq=False)
class TrainingFilm:
    """The attention of one sentence at every checkpoint of a run, first checkpoint first."""

    run: str
    tokens: Tokens
    target: Tokens | None
    frames: tuple[Frame, ...]
    storage: str = "float16"
    caveat: str = CAVEAT


@dataclass(frozen=True, eq=False)
class Effect:
    """What an edit changed: the same text looked at twice.

    `before` and `after` are the likeliest next tokens; `words` follows single words through both: (piece, before,
    after). `divergence` is how far the distributions of the next token lie apart (Kullback-Leibler, bits), `scores`
    the largest change of a score at the last place. `measures`: (name, before, after) of what was measured on data:
    loss, perplexity, BLEU.
    """

    model: str
    text: str
    edits: tuple[str, ...]
    before: tuple[Candidate, ...]
    after: tuple[Candidate, ...]
    words: tuple[tuple[str, float, float], ...] = ()
    divergence: float | None = None
    scores: float | None = None
    measures: tuple[tuple[str, float, float], ...] = field(default=())
