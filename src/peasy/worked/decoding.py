"""Decoding on paper: sampling tables (temperature, top-k, top-p), greedy and beam search, the key-value cache."""

import math
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from peasy.formula.activations import FUNCTIONS
from peasy.formula.masks import causal_mask
from peasy.formula.scoring import SCORINGS
from peasy.formula.step import Array, Namespace
from peasy.parameters import BoundedSettings
from peasy.worked.blocks import SOFTMAX, GraphBlock, SoftmaxBlock
from peasy.worked.builder import GraphBuilder
from peasy.worked.graph import Step
from peasy.worked.intervals import Interval
from peasy.worked.label import format_number, format_operand
from peasy.worked.operations import Add, Apply, Constant, Divide, Inputs, Project, Sum
from peasy.worked.steps import Mask, Scale, Score


class Selection(Step):
    """Step that depends on the order of numbers: its bounds are unknown where rounding leaves the order open."""

    needs_order: ClassVar[bool] = True
    """False if the result grows with every number, whatever their order."""

    count = 0
    """Number of the largest numbers of the whole table whose order counts; 0: that of all numbers in each row."""

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        return format_number(float(self.forward(np, *inputs)[row, column]), decimals)

    def bounds(self, *inputs: Interval) -> Interval:
        """Return the results of the lower and of the upper bounds, if they cannot change the order."""
        ends = [np.asarray(self.forward(np, *(getattr(array, end) for array in inputs))) for end in ("low", "high")]
        shape = (1, -1) if self.count else inputs[0].shape
        low, high = inputs[0].low.reshape(shape), inputs[0].high.reshape(shape)
        order = np.argsort(low, axis=-1)
        lows, highs = (np.take_along_axis(end, order, axis=-1) for end in (low, high))
        is_equal = np.isclose(lows[:, :-1], lows[:, 1:], rtol=0) & np.isclose(highs[:, :-1], highs[:, 1:], rtol=0)
        is_known = (np.maximum.accumulate(highs, axis=-1)[:, :-1] < lows[:, 1:]) | is_equal
        if not self.needs_order or np.all(is_known[:, -self.count :]):
            return Interval(np.minimum(*ends), np.maximum(*ends))
        return Interval(np.full_like(ends[0], -np.inf), np.full_like(ends[0], np.inf))


def _ahead(xp: Namespace, numbers: Array) -> Array:
    """Return True at `[row, j, k]` if number k is larger than number j, equal but before it, or the same."""
    larger = numbers[:, None, :] > numbers[:, :, None]
    index = xp.arange(numbers.shape[1])
    return larger | ((numbers[:, None, :] == numbers[:, :, None]) & (index[None, :] <= index[:, None])[None, :, :])


def _chosen(xp: Namespace, numbers: Array, count: int) -> Array:
    """Return 1 at `[r, j]` if number j of the whole table is the r-th largest, else 0."""
    rank = xp.sum(xp.astype(_ahead(xp, xp.reshape(numbers, (1, -1))), xp.float64), axis=-1)
    return xp.concat([xp.astype(rank == place, xp.float64) for place in range(1, count + 1)], axis=0)


class CumulativeProbability(Selection):
    """Sum of each probability and all larger ones of its row."""

    label = "sum"
    tex = r"\sum_{k: $0_k \ge $0_j} $0_k"
    sentence = "Each probability plus all larger ones: the words in order of probability, added up."

    def forward(self, xp: Namespace, probabilities: Array) -> Array:
        ahead = xp.astype(_ahead(xp, probabilities), xp.float64)
        return xp.sum(ahead * probabilities[:, None, :], axis=-1)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        numbers = np.sort(inputs[0][row][_ahead(np, inputs[0])[row, column]])[::-1]
        return " + ".join(format_operand(float(number), decimals) for number in numbers)


class KeepTop(Selection):
    """Probabilities of the k most probable words, and of the fewest that sum to p; inputs are those and cumulative."""

    top_k: int | None = None
    top_p: float | None = None
    label = "kept or 0"
    sentence = "The most probable words are kept; the others get 0."

    def forward(self, xp: Namespace, probabilities: Array, cumulative: Array) -> Array:
        rank = xp.sum(xp.astype(_ahead(xp, probabilities), xp.float64), axis=-1)
        kept = rank <= (probabilities.shape[1] if self.top_k is None else self.top_k)
        if self.top_p is not None:
            kept = kept & ((rank == 1) | (cumulative - probabilities < self.top_p))
        return xp.where(kept, probabilities, xp.zeros_like(probabilities))

    def formula(self, *symbols: str) -> str:
        names = [rf"k = {self.top_k}" if self.top_k else "", f"p = {self.top_p:g}" if self.top_p else ""]
        return rf"\operatorname{{top}}_{{{', '.join(filter(None, names))}}}({symbols[0]})"


class Argmax(Selection):
    """One-hot row of the largest number."""

    label = "largest or 0"
    tex = r"\operatorname{argmax}($0)"
    sentence = "A 1 in the column of the largest number: the greedy choice."

    def forward(self, xp: Namespace, numbers: Array) -> Array:
        """Return 1 at the first largest number of each row."""
        rank = xp.sum(xp.astype(_ahead(xp, numbers), xp.float64), axis=-1)
        return xp.astype(rank == 1, xp.float64)


class SamplingBlock(BoundedSettings, GraphBlock):
    """Sampling tables: softmax with temperature, cumulative probabilities, top-k and top-p, shares of what is kept."""

    temperature: Annotated[float, Gt(0)] = 1.0
    top_k: Annotated[int, Ge(1)] | None = None
    top_p: Annotated[float, Gt(0)] | None = None

    def build(self, g: GraphBuilder, logits: str) -> str:
        """Add probabilities, cumulative, kept, kept_sum, renormalised and greedy."""
        probabilities = SoftmaxBlock(self.temperature).build(g, logits)
        cumulative = g.add("cumulative", CumulativeProbability(), probabilities)
        kept = g.add("kept", KeepTop(self.top_k, self.top_p), probabilities, cumulative)
        g.add("greedy", Argmax(), probabilities)
        about = "What is kept, divided by its sum: the distribution that is sampled from."
        return g.add("renormalised", Divide(), kept, g.add("kept_sum", Sum(), kept), description=about)


class BestScores(Selection):
    """The largest numbers of a whole table, in descending order, one per row."""

    count: int = 1
    needs_order = False
    label = "largest"
    sentence = "The best of all continuations are kept; the others are dropped."
    tex = r"\operatorname{best}($0)"

    def forward(self, xp: Namespace, numbers: Array) -> Array:
        return xp.sum(_chosen(xp, numbers, self.count) * xp.reshape(numbers, (1, -1)), axis=-1, keepdims=True)


class BestWords(Selection):
    """One-hot rows of the words that the largest numbers of a whole table stand for, the best first."""

    count: int = 1
    label = "chosen or 0"
    sentence = "The last word of each beam: the column of each of the best numbers, whatever its row."
    tex = r"\operatorname{word}(\operatorname{best}($0))"

    def forward(self, xp: Namespace, numbers: Array) -> Array:
        rows, words = numbers.shape
        return xp.sum(xp.reshape(_chosen(xp, numbers, self.count), (self.count, rows, words)), axis=1)


class BeamSearchBlock(BoundedSettings, GraphBlock):
    """Beam search, or greedy decoding with one beam, over a given table of logits: a row for each last word.

    The choices are steps; only the names of the rows are those of the given numbers.
    """

    beams: Annotated[int, Ge(1)] = 2
    steps: Annotated[int, Ge(1)] = 2

    def build(self, g: GraphBuilder, logits: str) -> str:
        """Add log_probabilities, then for each step next, scores and totals."""
        table = g.add("log_probabilities", Apply(FUNCTIONS["log"]), g.add("probabilities", SOFTMAX, logits))
        vocabulary = g.example.vocabulary
        sequences, total, words = [g.example.tokens], "", ""
        for number in range(1, self.steps + 1):
            scope, rows, best_rows = g.scope(f"step{number}"), f"{g.path[:-1]}{number - 1}", f"{g.path[:-1]}{number}"
            g.labels[rows] = tuple(" ".join(sequence) for sequence in sequences)
            words = words or scope.add_one_hot("last_word", [sequences[0][-1]], "The last word.", rows)
            scores = scope.add("next", Project("one-hot · table"), words, table, axes=(rows, "vocabulary"))
            if total:
                about = "Log-probabilities add up along a sequence."
                scores = scope.add("scores", Add(), scores, total, description=about)
            best = np.argsort(-g.values[scores], axis=None, kind="stable")[: self.beams]
            places = [divmod(int(place), len(vocabulary)) for place in best]
            sequences = [(*sequences[beam], vocabulary[word]) for beam, word in places]
            g.labels[best_rows] = tuple(" ".join(sequence) for sequence in sequences)
            total = scope.add("totals", BestScores(len(places)), scores, axes=(best_rows, "total"))
            if number < self.steps:
                about = f"{BestWords.sentence} Rows are named by the words of the given numbers."
                words = scope.add(
                    "last_words", BestWords(len(places)), scores, description=about, axes=(best_rows, "vocabulary")
                )
        return total


class SelectRows(Step):
    """Rows `start` to `stop` of the input."""

    start: int
    stop: int
    label = "copied"
    sentence = "Some of the rows."
    tex = r"$0_{$start:$stop}"

    def forward(self, xp: Namespace, x: Array) -> Array:
        return x[self.start : self.stop, :]


class AppendRows(Step):
    """Rows of the cache, then the new row."""

    label = "from the cache, or the new row"
    tex = r"\left[$0;\; $1\right]"
    sentence = "The cached rows are reused; only the last row is new."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        return xp.concat(list(inputs), axis=0)


class KvCacheBlock(BoundedSettings, GraphBlock):
    """Decoding with and without the key-value cache: the same contexts; multiplications of both are counted.

    The input has a row for each token; `prompt` tokens come first, then one per step.
    """

    prompt: Annotated[int, Ge(1)] = 1

    def build(self, g: GraphBuilder, x: str) -> str:
        """Add for each step the nodes without and with the cache, and the table of multiplications."""
        width = g.nodes[x].caption.axes[-1]
        weights = [g.given(f"w_{letter}", (width, "d_value" if letter == "v" else "d_key")) for letter in "qkv"]
        names = ("query", "key", "value")
        projections = list(zip(names, weights, strict=True))
        counts: list[list[str]] = []
        cache: tuple[str, ...] = ()
        for number, length in enumerate(range(min(self.prompt, len(g.values[x])), len(g.values[x]) + 1), start=1):
            scope = g.scope(f"step{number}")
            seen = scope.add("x", SelectRows(0, length), x)
            without, with_cache = scope.scope("without"), scope.scope("cached")
            all_rows = [without.add(name, Project(), seen, w) for name, w in projections]
            _add_attention(without, *all_rows)
            if not cache:
                cache = tuple(all_rows[1:])
                counts.append([_count(g, scope.path, "without.")] * 2)
                continue
            new = scope.add("new_x", SelectRows(length - 1, length), x, description="Only the new token is projected.")
            query, *fresh = (with_cache.add(f"new_{name}", Project(), new, w) for name, w in projections)
            cache = tuple(
                with_cache.add(name, AppendRows(), old, new, axes=g.nodes[old].caption.axes)
                for name, old, new in zip(names[1:], cache, fresh, strict=True)
            )
            _add_attention(with_cache, query, *cache)
            counts.append([_count(g, scope.path, kind) for kind in ("without.", "cached.")])
        totals = [
            [sum(math.prod(map(int, term.split("·"))) for term in cell.split(" + ")) for cell in row] for row in counts
        ]
        g.labels["step"] = tuple(str(number) for number in range(1, len(counts) + 1))
        g.labels["cache"] = ("without", "with")
        about = "Multiplications of each step: rows times columns times the width of each product."
        return g.add("multiplications", Constant(np.asarray(totals), about, ("step", "cache"), counts))


def _add_attention(g: GraphBuilder, query: str, key: str, value: str) -> str:
    """Add scores, scaled, masked, weights and context of the last queries on all keys."""
    dot = SCORINGS["scaled-dot"]
    scores = g.add("scores", Score(dot), query, key, axes=("query", "key"))
    scaled = g.add("scaled", Scale(dot), scores, key)
    if (rows := len(g.values[query])) > 1:
        scaled = g.add("masked", Mask(causal_mask(np, rows, rows), None), scaled)
    weights = g.add("weights", SOFTMAX, scaled)
    return g.add("context", Project("weights · values"), weights, value)


def _count(g: GraphBuilder, path: str, kind: str) -> str:
    """Return the multiplications of all matrix products in a part of the graph: sums of rows · inner · columns."""
    terms = []
    for name, node in g.nodes.items():
        if name.startswith(f"{g.prefix}{path}{kind}") and isinstance(node.routes[0].step, Project | Score):
            inner = g.values[node.routes[0].inputs[0]].shape[1]
            rows, columns = g.values[name].shape
            terms.append(f"{rows}·{inner}·{columns}")
    return " + ".join(terms)
