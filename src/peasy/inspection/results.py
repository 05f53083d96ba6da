"""Inspection results as plain data: NumPy arrays with token labels for rows and columns. No torch here.

Views are made from these alone. An array always comes with its labels and with what is needed to read it:
interventions, scaling, storage dtype.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from peasy.display import DisplayMixin
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.formula.step import FormulaStep
from peasy.metrics.scores import AlignmentErrors
from peasy.nn.module_path import LayerTopK, ModulePath, part_name
from peasy.parameters import Record

_Index = int | slice | str
"""Index of a labelled matrix: a position, a slice, or a word."""

Array = NDArray[Any]
"""Captured numbers: float32, or float16 if they would not fit into memory otherwise."""

CAVEAT = "weights show where a head attends, not why the model answered."
"""Shown with every attention picture."""

LOOK_CAVEAT = f"{CAVEAT[:-1]}; switch it off to test."
"""Shown where a head can be switched off."""

ROLLOUT_CAVEAT = (
    "Rollout multiplies weights as if heads only copied: it ignores values, norms and feed-forward layers. "
    "It shows where information could have flowed, not where it did."
)

WORD_MERGE_NOTE = "Words: weights summed over the tokens of a key word, averaged over those of a query word."
"""How sub-words are merged; shown wherever words are shown."""


class Tokens(Record):
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

    def find(self, word: str | int) -> tuple[int, ...]:
        """Return the token positions of a word (its last occurrence), of a token piece, or of a position."""
        if isinstance(word, int):
            if not -len(self) <= word < len(self):
                raise InvalidInput(f"There is no position {word}.", hint=f"Choose from 0 to {len(self) - 1}.")
            return (word % len(self),)
        pieces = [(piece, (position,)) for position, piece in enumerate(self.pieces)]
        stripped = [(piece.strip("·"), group) for piece, group in pieces]
        found = _find_label(word, list(zip(self.words, self.word_positions, strict=True)), pieces, stripped)
        if found is None:
            hint = did_you_mean(word, self.words) or f"The words are: {' '.join(self.words[:40])}"
            raise InvalidInput(f'The word "{word}" is not in the text.', hint=hint)
        return found


def _find_label(wanted: str, *labelled: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...] | None:
    """Return the positions of the last label that is equal, as written or else without regard to case."""
    for normalise in (str, str.lower):
        for labels in labelled:
            groups = [group for label, group in labels if normalise(label) == normalise(wanted)]
            if groups:
                return groups[-1]
    return None


def attention_axes(path: ModulePath, tokens: Tokens, target: Tokens | None) -> tuple[Tokens, Tokens]:
    """Return the tokens of the queries and of the keys of an attention; `target` is the decoder input."""
    queries = target if target is not None and path.stack == "decoder" else tokens
    return queries, tokens if path.part == "cross_attention" else queries


class LabelledMatrix(DisplayMixin, Record, eq=False):
    """Matrix with a label for each row and column; `np.asarray` and `torch.from_dlpack` give the bare array.

    Rows are queries and columns are keys by default. `matrix["it", "pizza"]` is the cell of two words, `matrix["it"]`
    a row: the mean over the tokens of a row's word and, of weights, the sum over those of a column's word.
    `row_tokens` and `column_tokens` say which tokens form a word; `row_positions`: tokens of the rows (None: all).
    """

    values: Array
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str = "query"
    column_axis: str = "key"
    name: str = ""
    row_tokens: Tokens | None = field(default=None, repr=False)
    column_tokens: Tokens | None = field(default=None, repr=False)
    row_positions: tuple[int, ...] | None = field(default=None, repr=False)
    sums_columns: bool = field(default=False, repr=False)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.values, dtype=dtype, copy=copy)

    def numpy(self) -> Array:
        """Return the bare array."""
        return self.values

    def __dlpack__(self, **options: Any) -> object:  # so that torch.from_dlpack(matrix) works without torch here
        return np.array(self.values).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.asarray(self.values).__dlpack_device__()

    def __getitem__(self, index: _Index | tuple[_Index, ...]) -> Any:
        parts: list[Any] = list(index) if isinstance(index, tuple) else [index]
        first, rest = parts[0], parts[1:]
        if not any(isinstance(part, str) for part in (first, *rest)):
            return self.values[(first, *rest)]
        values = self.values
        if rest and isinstance(rest[0], str):
            columns = values[:, self._find(rest[0], self.columns, self.column_tokens)].astype(np.float64)
            values = columns.sum(1) if self.sums_columns else columns.mean(1)
        elif rest:
            values = values[:, rest[0]]
        if not isinstance(first, str):
            return values[first]
        rows = self._find(first, self.rows, self.row_tokens)
        if self.row_tokens is not None and self.row_positions is not None:
            rows = [self.row_positions.index(row) for row in rows if row in self.row_positions]
        if not rows:
            raise NotFound(f'"{first}" is not among the captured rows.', hint="Call look without queries=.")
        row = values[rows].mean(0)
        return float(row) if np.ndim(row) == 0 else row

    @staticmethod
    def _find(word: str, labels: tuple[str, ...], tokens: Tokens | None) -> list[int]:
        if tokens is not None:
            return list(tokens.find(word))
        numbered = [(label, (position,)) for position, label in enumerate(labels)]
        found = _find_label(word, numbered, [(label.strip("·"), group) for label, group in numbered])
        if found is None:
            raise InvalidInput(f'There is no "{word}".', hint=did_you_mean(word, labels))
        return list(found)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows and columns."""
        return self.values.shape

    def __repr__(self) -> str:
        size = f"{len(self.rows)} x {len(self.columns)}"
        words = " ".join(self.rows[:6]) + (" ..." if len(self.rows) > 6 else "")
        return f"{type(self).__name__}({self.name}: {size}, {self.row_axis} x {self.column_axis}; {words})"


class AttentionInfo(Record):
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


class TokenProbability(Record):
    """Candidate next token and its probability."""

    piece: str
    id: int
    probability: float


MAX_MEMORY = "512MB"
"""Default memory limit of captured arrays."""

AttentionMeasure = Literal["weight", "value", "norm"]
"""Attention as the weight, as weight · |v| (value-weighted), or as |weight · v · W_O| (norm-based)."""

NO_OUTPUT_PROJECTION = "This attention has no output projection: there is no norm-based attention."


class Capture(Record, eq=False):
    """Captured activation: one step at one module path, for one sequence.

    `array` is `[head, row, key]` for scores, scaled, masked and weights; `[head, row, width]` for query and context;
    `[head, key, width]` for key and value; `[row, width]` for residual stream and feed-forward (then `heads` is empty).
    `heads`: head numbers along the first axis; `rows`: query positions along the second (None: all keys).
    `value_norms` `[head, key]`, with weights only: norms of the value vectors; `output_norms`: of what they add to the
    residual stream, through the output projection of their head. `caption`: the formula's step, if any.
    """

    path: ModulePath
    step: str
    array: Array
    heads: tuple[int, ...] = ()
    rows: tuple[int, ...] | None = None
    value_norms: Array | None = None
    output_norms: Array | None = None
    caption: FormulaStep | None = None

    def measured(self, measure: AttentionMeasure) -> Array:
        """Return the weights themselves, or times the norm of their values, or times that of what these add.

        Value-weighted attention is weight · |v|, norm-based attention |weight · v · W_O|; rows do not sum to 1.
        """
        if measure == "weight":
            return self.array
        norms = self.value_norms if measure == "value" else self.output_norms
        if norms is None:
            reason = NO_OUTPUT_PROJECTION if self.step == "weights" else f"Only weights are measured, not {self.step}."
            raise InvalidInput(reason)
        return self.array.astype(np.float32) * norms[:, None, :]


class AttentionOverview(Record, eq=False):
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
    measure: AttentionMeasure = "weight"
    caveat: str = LOOK_CAVEAT


class AttentionRecord(Record, eq=False):
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
    caveat: str = LOOK_CAVEAT
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


class HeadTopWords(Record):
    """One head and the words, or links between words, with the largest attention weights, largest first."""

    path: ModulePath
    head: int
    top_words: tuple[tuple[str, float], ...]


class HeadScore(Record, eq=False):
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
            "previous token": self.previous, "next token": self.next, "first token": self.first, "itself": self.own,
            "same token elsewhere": self.same, "induction head": self.induction or 0.0,
        }  # fmt: skip
        best = max(behaviours, key=lambda name: behaviours[name])
        return best if behaviours[best] >= 0.4 else "broad" if self.sharpness < 0.2 else "mixed"


class HeadReport(Record, eq=False):
    """Scores of every head of a model over some sentences."""

    model: str
    heads: tuple[HeadScore, ...]
    sentences: int
    tokens: int
    notes: tuple[str, ...] = ()
    caveat: str = LOOK_CAVEAT

    def ranked(self, by: str) -> tuple[HeadScore, ...]:
        """Return the heads sorted by one score, largest first; heads without that score are left out."""
        scored = [head for head in self.heads if getattr(head, by) is not None]
        return tuple(sorted(scored, key=lambda head: -getattr(head, by)))


class LensTable(Record, eq=False):
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


class LogitComponent(Record, eq=False):
    """One addend of a logit: the embedding, a head, an MLP, a bias or an edit.

    `sources`: the part of each key token, for heads. `layer` and `head` are None where there is none.
    """

    part: str
    layer: int | None
    head: int | None
    value: float
    sources: Array | None = None

    @property
    def name(self) -> str:
        """Name as in "2.3" (layer.head), "2 feed-forward" or "embedding"."""
        part = part_name(self.part)
        if self.head is not None:
            return f"{self.layer}.{self.head}" + ("" if part == "attention" else " cross")
        return part if self.layer is None else f"{self.layer} {part}"


class LogitAttribution(Record, eq=False):
    """Direct logit attribution: one logit, or the difference of two, as a sum over heads, MLPs, embedding and biases.

    `logit` is the model's own; `components` and `rounding` sum to it. `position` is the token after which `token` is
    predicted; `against`: the token whose logit is subtracted. `attended`: tokens of the keys by part of the block.
    """

    model: str
    tokens: Tokens
    position: int
    token: str
    against: str | None
    logit: float
    components: tuple[LogitComponent, ...]
    attended: Mapping[str, Tokens] = field(repr=False)
    notes: tuple[str, ...] = ()
    interventions: tuple[str, ...] = ()

    @property
    def rounding(self) -> float:
        """What the sum of the components misses of the logit, by rounding alone."""
        return self.logit - sum(component.value for component in self.components)

    def heads(self, part: str = "attention") -> LabelledMatrix:
        """Return the addends of all heads, `[layer, head]`."""
        found = {(c.layer, c.head): c.value for c in self._of_heads(part)}
        layers, heads = (tuple(dict.fromkeys(key[axis] for key in found)) for axis in (0, 1))
        values = np.array([[found.get((layer, head), np.nan) for head in heads] for layer in layers])
        rows, columns = tuple(map(str, layers)), tuple(map(str, heads))
        return LabelledMatrix(values, rows, columns, "layer", "head", f"{part} heads")

    def sources(self, part: str = "attention") -> LabelledMatrix:
        """Return the addends of each head by the token it attended to, `[layer.head, key]`."""
        heads = self._of_heads(part)
        values = np.array([component.sources for component in heads])
        keys, names = self.attended[part], tuple(component.name for component in heads)
        return LabelledMatrix(values, names, keys.pieces, "head", "key", f"{part} heads", None, keys, sums_columns=True)

    def by_layer(self) -> dict[str, float]:
        """Return the sums over the heads of each attention, and all other components, by name."""
        sums: dict[str, float] = {}
        for component in self.components:
            part = part_name(component.part)
            name = part if component.layer is None else f"{component.layer} {part}"
            sums[name] = sums.get(name, 0.0) + component.value
        return sums

    def _of_heads(self, part: str) -> list[LogitComponent]:
        heads = [c for c in self.components if c.part == part and c.head is not None]
        if not heads:
            raise NotFound(f"There are no heads of {part}.", hint=f"Choose from {', '.join(self.attended)}.")
        return heads


class Similarity(Record, eq=False):
    """Cosine similarity of two sentences as a sum over word pairs: `pairs` `[word of first, word of second]`.

    The cells sum to `cosine`; `token_pairs` are the same by token.
    """

    model: str
    first: Tokens
    second: Tokens
    pairs: Array
    token_pairs: Array
    cosine: float
    note: str | None = None


class TraceStep(Record, eq=False):
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


class GenerationTrace(Record, eq=False):
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


class AlignmentScore(Record):
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


class Alignment(Record, eq=False):
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

    def errors(self) -> AlignmentErrors:
        """Compare the strongest link of each target word with the gold links; special tokens are not counted."""
        words = [index for index, number in enumerate(self.target.word_numbers) if number is not None]
        best = self.weights.argmax(axis=1)
        counted = words or range(len(self.target.words))
        return AlignmentErrors.of({(int(best[word]), word) for word in counted}, set(self.gold))

    def links(self, min_weight: float = 0.1) -> tuple[tuple[int, int, float], ...]:
        """Return (source word, target word, weight) of all links with at least this weight."""
        target, source = np.nonzero(self.weights >= min_weight)
        return tuple((int(s), int(t), float(self.weights[t, s])) for t, s in zip(target, source, strict=True))


class CheckpointAttention(Record, eq=False):
    """Attention of one checkpoint: weights `[head, query, key]` by module path, after `step` steps."""

    step: int
    weights: Mapping[ModulePath, Array]


class AttentionHistory(Record, eq=False):
    """Attention of one sentence at every checkpoint of a run, in order."""

    run: str
    tokens: Tokens
    target: Tokens | None
    checkpoints: tuple[CheckpointAttention, ...]
    storage: str = "float16"
    caveat: str = CAVEAT


class Effect(Record, eq=False):
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
