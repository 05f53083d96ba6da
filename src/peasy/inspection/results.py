"""Inspection results as plain data: NumPy arrays with token labels for rows and columns. No torch here.

Views are made from these alone. An array always comes with its labels and with what is needed to read it:
interventions, scaling, storage dtype.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from peasy.formula.step import FormulaStep
from peasy.nn.module_path import LayerTopK, ModulePath

Array = NDArray[Any]
"""Captured numbers: float32, or float16 if they would not fit into memory otherwise."""

CAVEAT = "weights show where a head attends, not why the model answered; ablate it to test."
"""Shown with every attention picture."""

ROLLOUT_CAVEAT = (
    "Rollout multiplies weights as if heads only copied: it ignores values, norms and feed-forward layers. "
    "It shows where information could have flowed, not where it did."
)

WORD_MERGE_NOTE = "Words: weights summed over the tokens of a key word, averaged over those of a query word."
"""How sub-words are merged; shown wherever words are shown."""


@dataclass(frozen=True)
class Tokens:
    """Tokens of a sequence, as labels of one axis.

    `pieces` are printable (`·the`, `⏎`, `<eos>`). `words` are whole words, and `word_positions` the token positions of
    each: every token is in exactly one word, in order; `<eos>` and spaces are separate words. `word_numbers`: number of
    each word as counted by `split_words`, None for special tokens and spaces.
    """

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    words: tuple[str, ...]
    word_positions: tuple[tuple[int, ...], ...]
    word_numbers: tuple[int | None, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


def attention_axes(path: ModulePath, tokens: Tokens, target: Tokens | None) -> tuple[Tokens, Tokens]:
    """Return the tokens of the queries and of the keys of an attention; `target` is the decoder input."""
    queries = target if target is not None and path.stack == "decoder" else tokens
    return queries, tokens if path.part == "cross_attention" else queries


@dataclass(frozen=True, eq=False)
class LabelledMatrix:
    """Matrix with a label for each row and column; `np.asarray(matrix)` is the bare array.

    Rows are queries and columns are keys by default.
    """

    values: Array
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str = "query"
    column_axis: str = "key"
    name: str = ""

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows and columns."""
        return self.values.shape

    def __repr__(self) -> str:
        size = f"{len(self.rows)} x {len(self.columns)}"
        return f"{type(self).__name__}({self.name}: {size}, {self.row_axis} x {self.column_axis})"


@dataclass(frozen=True)
class AttentionInfo:
    """Configuration of one attention, shown with every picture of it.

    `kv_head[h]`: KV head of query head h (grouped-query attention; h itself without grouping). `window`: sliding window
    in positions (both directions in an encoder), None = all. `cross`: keys come from the encoder. `scale`: factor of
    the query-key products (None = other scoring). `softcap`: bound of the scores.
    """

    path: ModulePath
    num_heads: int
    kv_head: tuple[int, ...]
    window: int | None = None
    causal: bool = False
    cross: bool = False
    scale: float | None = None
    softcap: float | None = None

    @property
    def is_grouped(self) -> bool:
        """True if query heads share KV heads."""
        return len(set(self.kv_head)) < self.num_heads


@dataclass(frozen=True)
class TokenProbability:
    """Candidate next token and its probability."""

    piece: str
    id: int
    probability: float


@dataclass(frozen=True, eq=False)
class Capture:
    """Captured activation: one step at one module path, for one sequence.

    `array` is `[head, row, key]` for scores, scaled, masked and weights; `[head, row, width]` for query and context;
    `[head, key, width]` for key and value; `[row, width]` for residual stream and feed-forward (then `heads` is empty).
    `heads`: head numbers along the first axis; `rows`: query positions along the second (None: all keys).
    `value_norms` `[head, key]`, with weights only: norms of the value vectors. `caption`: the formula's step, if any.
    """

    path: ModulePath
    step: str
    array: Array
    heads: tuple[int, ...] = ()
    rows: tuple[int, ...] | None = None
    value_norms: Array | None = None
    caption: FormulaStep | None = None

    def value_weighted(self) -> Array:
        """Return value-weighted attention: each weight times the norm of its value; rows do not sum to 1."""
        assert self.value_norms is not None, "only weights have value norms"
        return self.array.astype(np.float32) * self.value_norms[:, None, :]


@dataclass(frozen=True, eq=False)
class AttentionOverview:
    """Attention matrix reduced to square tiles of `tile` queries by `tile` keys: `tiles` `[head, row, column]`.

    `reduction` is "mean" or "max" over the cells of a tile; masked cells are 0, and the last tiles may be smaller.
    """

    path: ModulePath
    heads: tuple[int, ...]
    tile: int
    reduction: str
    tiles: Array
    queries: int
    keys: int
    value_weighted: bool = False
    caveat: str = CAVEAT


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """Captured activations of one input through one model.

    `tokens`: the input, for an encoder-decoder the source; `target`: the decoder input. `attentions` describe every
    attention of the model, also those not captured. `interventions`: descriptions (empty = none). `storage`: dtype of
    the arrays. `next_tokens`: most likely next tokens, best first (empty without an LM head). `overviews`: attention of
    a long input in tiles; `captures` are then the exact rows.
    """

    model: str
    kind: str
    tokens: Tokens
    target: Tokens | None
    captures: tuple[Capture, ...]
    attentions: tuple[AttentionInfo, ...]
    interventions: tuple[str, ...] = ()
    storage: str = "float32"
    next_tokens: tuple[TokenProbability, ...] = ()
    notes: tuple[str, ...] = ()
    caveat: str = CAVEAT
    overviews: tuple[AttentionOverview, ...] = field(default=(), repr=False)

    @property
    def exact_rows(self) -> tuple[Capture, ...]:
        """Rows captured at full resolution beside an overview."""
        return self.captures

    def axes(self, path: ModulePath) -> tuple[Tokens, Tokens]:
        """Return the tokens of the queries and of the keys of an attention."""
        return attention_axes(path, self.tokens, self.target)

    def by_path(self, step: str) -> dict[ModulePath, Capture]:
        """Return the captures of a step by module path."""
        return {capture.path: capture for capture in self.captures if capture.step == step}

    def attention_info(self, path: ModulePath) -> AttentionInfo | None:
        """Return the description of an attention."""
        return next((info for info in self.attentions if info.path == path), None)


@dataclass(frozen=True)
class HeadTopWords:
    """One head and the words, or links between words, with the largest attention weights, largest first."""

    path: ModulePath
    head: int
    top_words: tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class HeadScore:
    """Scores of one head, averaged over the queries of all sentences.

    `entropy` in bits, and `sharpness` = 1 - entropy / maximum. `previous`, `next`, `first`, `own`: weight on the
    previous, next, first and current token. `same`: weight on other occurrences of the same token (duplicate-token
    head). `induction`: on a repeated random sequence, weight on the token after the earlier occurrence. `position`:
    similarity of the pattern on different texts (1 = positional only, 0 = content only). `distance`: mean distance of
    query and key. `profile[d]`: weight at distance d (in an encoder both directions; the last entry holds the rest).
    """

    path: ModulePath
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
    profile: Array

    def summary(self) -> str:
        """Describe the dominant behaviour in a few words."""
        behaviours = {
            "attends to the previous token": self.previous,
            "attends to the next token": self.next,
            "attends to the first token": self.first,
            "attends to itself": self.own,
            "attends to the same token elsewhere": self.same,
            "induction head": self.induction or 0.0,
        }
        best = max(behaviours, key=lambda name: behaviours[name])
        return best if behaviours[best] >= 0.4 else "attends broadly" if self.sharpness < 0.2 else "mixed"


@dataclass(frozen=True, eq=False)
class HeadReport:
    """Scores of every head of a model over some sentences."""

    model: str
    heads: tuple[HeadScore, ...]
    sentences: int
    tokens: int
    notes: tuple[str, ...] = ()
    caveat: str = CAVEAT

    def ranked(self, by: str) -> tuple[HeadScore, ...]:
        """Return the heads sorted by one score, largest first; heads without that score are left out."""
        scored = [head for head in self.heads if getattr(head, by) is not None]
        return tuple(sorted(scored, key=lambda head: -getattr(head, by)))


@dataclass(frozen=True, eq=False)
class LensTable:
    """Logit lens: top tokens of each layer by the model's own LM head; layer 0 is the embedding.

    `pieces[layer][row]`: top tokens at a position, best first; `probabilities` `[layer, row, rank]`; `rows`: positions.
    """

    model: str
    tokens: Tokens
    layers: tuple[int, ...]
    rows: tuple[int, ...]
    pieces: tuple[tuple[tuple[str, ...], ...], ...]
    probabilities: Array
    notes: tuple[str, ...] = ()

    @property
    def final(self) -> tuple[str, ...]:
        """The model's own top token at each row."""
        return tuple(best[0] for best in self.pieces[-1])


@dataclass(frozen=True, eq=False)
class Similarity:
    """Cosine similarity of two sentences as a sum over word pairs: `pairs` `[word of first, word of second]`.

    The cells sum to `cosine`; `token_pairs` are the same by token.
    """

    model: str
    first: Tokens
    second: Tokens
    pairs: Array
    token_pairs: Array
    cosine: float


@dataclass(frozen=True, eq=False)
class TraceStep:
    """One generated token: its alternatives, the top attention of each layer, and the work done.

    `num_computed` tokens went through the model in this step, `num_cached` came from the KV cache.
    `cumulative_logprob`: log-probability of the sequence so far.
    """

    id: int
    piece: str
    probability: float
    cumulative_logprob: float
    candidates: tuple[TokenProbability, ...]
    attention: tuple[LayerTopK, ...]
    num_computed: int
    num_cached: int


@dataclass(frozen=True, eq=False)
class GenerationTrace:
    """Trace of one generation, token by token. Key positions count the prompt first, then the generated tokens.

    `source`: keys of cross-attention in an encoder-decoder. `beams`: all beams, best first, the first being this one
    (empty without beam search).
    """

    model: str
    prompt: Tokens
    source: Tokens | None
    steps: tuple[TraceStep, ...]
    text: str
    attentions: tuple[AttentionInfo, ...] = ()
    beams: tuple["GenerationTrace", ...] = ()
    interventions: tuple[str, ...] = ()
    caveat: str = CAVEAT

    @property
    def keys(self) -> tuple[str, ...]:
        """Pieces of the self-attention keys: prompt, then generated tokens."""
        return (*self.prompt.pieces, *(step.piece for step in self.steps))


@dataclass(frozen=True)
class AlignmentScore:
    """Alignment score of one head. `accuracy`: share of gold pairs it finds (None without gold pairs).

    `monotonicity`: correlation of source and target position, at least 0. `sharpness`: mean of the largest weight.
    `score`: accuracy if known, else monotonicity x sharpness.
    """

    path: ModulePath
    head: int
    accuracy: float | None
    monotonicity: float
    sharpness: float
    score: float


@dataclass(frozen=True, eq=False)
class Alignment:
    """Word alignment from one cross-attention head: `weights` `[target word, source word]`.

    `path` and `head`: the head that is shown; `scores` rank all heads, best first. `gold`: known (source word, target
    word) pairs.
    """

    model: str
    source: Tokens
    target: Tokens
    weights: Array
    path: ModulePath
    head: int
    scores: tuple[AlignmentScore, ...]
    gold: tuple[tuple[int, int], ...] = ()
    caveat: str = CAVEAT

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self.weights, dtype=dtype)

    @property
    def layer(self) -> int:
        """Layer of the shown head."""
        return self.path.layer

    def best(self) -> list[tuple[str, str]]:
        """Return each target word with its most strongly aligned source word."""
        best = self.weights.argmax(axis=1).tolist()
        return [(word, self.source.words[index]) for word, index in zip(self.target.words, best, strict=True)]

    def links(self, min_weight: float = 0.1) -> tuple[tuple[int, int, float], ...]:
        """Return (source word, target word, weight) of all links with at least this weight."""
        target, source = np.nonzero(self.weights >= min_weight)
        return tuple((int(s), int(t), float(self.weights[t, s])) for t, s in zip(target, source, strict=True))


@dataclass(frozen=True, eq=False)
class CheckpointAttention:
    """Attention of one checkpoint: weights `[head, query, key]` by module path, after `step` steps."""

    step: int
    weights: Mapping[ModulePath, Array]


@dataclass(frozen=True, eq=False)
class AttentionHistory:
    """Attention of one sentence at every checkpoint of a run, in order."""

    run: str
    tokens: Tokens
    target: Tokens | None
    checkpoints: tuple[CheckpointAttention, ...]
    storage: str = "float16"
    caveat: str = CAVEAT


@dataclass(frozen=True, eq=False)
class Effect:
    """Effect of an intervention on the next-token distribution and on metrics.

    `before` and `after`: most likely next tokens; `tracked_words`: (piece, probability before, after).
    `kl_divergence` of the next-token distributions in bits; `max_logit_change` at the last position. `metrics`: (name,
    before, after) of loss, perplexity or BLEU on data.
    """

    model: str
    text: str
    interventions: tuple[str, ...]
    before: tuple[TokenProbability, ...]
    after: tuple[TokenProbability, ...]
    tracked_words: tuple[tuple[str, float, float], ...] = ()
    kl_divergence: float | None = None
    max_logit_change: float | None = None
    metrics: tuple[tuple[str, float, float], ...] = ()
