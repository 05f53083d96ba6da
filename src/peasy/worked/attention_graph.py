"""Graph of attention for an example: inputs, projections, heads, scores, scale, mask, weights, context, output."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from peasy.formula.activations import FUNCTIONS
from peasy.formula.attention import attention_captions
from peasy.formula.heads import CONCAT, OUTPUT, SOURCE, W_K, W_O, W_Q, W_V, X, projection_captions
from peasy.formula.masks import combine_masks
from peasy.formula.positions import alibi
from peasy.formula.scoring import NORMALISATIONS, SCORINGS, Additive, Normalisation, Scoring
from peasy.formula.step import D_KEY, D_OUTPUT, D_VALUE, HEAD, FormulaStep
from peasy.parameters import Record
from peasy.worked import operations as op
from peasy.worked.example import AdditiveScoringConfig, Example
from peasy.worked.graph import Graph, GraphNode, Route, Step
from peasy.worked.steps import Mask, Normalise, PositionAngles, Rotate, Scale, Score, SelectHead, SinkSoftmax

_BIAS_ROW = "bias"
"""Name of the row axis of a bias, which has one row."""

_BIASES = {
    "b_q": FormulaStep("b_q", "b_Q", "The bias of the queries, added to each.", (_BIAS_ROW, D_KEY)),
    "b_k": FormulaStep("b_k", "b_K", "The bias of the keys, added to each.", (_BIAS_ROW, D_KEY)),
    "b_v": FormulaStep("b_v", "b_V", "The bias of the values, added to each.", (_BIAS_ROW, D_VALUE)),
    "b_o": FormulaStep("b_o", "b_O", "The bias of the output, added to each row.", (_BIAS_ROW, D_OUTPUT)),
}
_SINKS = FormulaStep("sinks", "s", "The score of each head's sink, which has no key.", (_BIAS_ROW, HEAD))
_INPUTS = {step.name: step for step in (X, SOURCE, W_Q, W_K, W_V, *_BIASES.values()) if step.name != "b_o"}
_NORM_INPUTS = {
    f"{side}_{part}": FormulaStep(f"{side}_{part}", tex, f"The learned {what} of the {side} norm.", (_BIAS_ROW, D_KEY))
    for side in ("query", "key")
    for part, tex, what in (("gain", r"\gamma", "factor"), ("bias", r"\beta", "bias"))
}
_FREQUENCY = FormulaStep("frequency", r"\omega", "How fast each pair of columns is turned.", (_BIAS_ROW, "pair"))
EXTRA_MATRICES = ("sinks", "frequency", *_NORM_INPUTS)
"""Given matrices of attention in a network besides projections and their biases."""
_PROJECTED = {"query": "q", "key": "k", "value": "v"}

_EXAMPLE_FIELDS = {
    "x": "rows", "source": "source_x", "w_q": "w_q", "b_q": "b_q", "w_k": "w_k", "b_k": "b_k", "w_v": "w_v",
    "b_v": "b_v", "w_o": "w_o", "b_o": "b_o", "sinks": "sinks",
    "query": "q", "key": "k", "value": "v", "weights": "weights",
}  # fmt: skip
"""GraphNode name -> field of `Example` that gives it."""


class QkNorm(Record):
    """Norm of queries and keys before positions and scores: of each head by itself, or of all heads together."""

    norm: Literal["layer", "rms"] = "rms"
    eps: float = 1e-6
    over: Literal["head", "projection"] = "head"


class FormulaSettings(Record):
    """Settings of an example as arguments of the formula; `attention_mask` combines mask, bias, causal and window."""

    scoring: Scoring
    normalise: Normalisation
    scale: float | None
    attention_mask: np.ndarray | None
    bias: np.ndarray | None
    softcap: float | None = None
    qk_norm: QkNorm | None = None
    rotary_base: float = 10000.0
    rotary_factor: float = 1.0

    @classmethod
    def from_example(cls, example: Example) -> "FormulaSettings":
        """Read the settings from an example."""
        scoring: Scoring
        if isinstance(example.scoring, AdditiveScoringConfig):
            w, u, v = (np.asarray(array, float) for array in (example.scoring.w, example.scoring.u, example.scoring.v))
            scoring = Additive(w, u, v)
        else:
            scoring = SCORINGS[example.scoring]
        query, key = np.empty((len(example.tokens), 1)), np.empty((len(example.keys), 1))
        mask = None if example.mask is None else np.asarray(example.mask, dtype=bool)
        bias = None if example.bias is None else np.asarray(example.bias, dtype=float)
        allowed = combine_masks(np, query, key, mask, bias, example.causal, example.window)
        attention_mask = None if allowed is None else np.broadcast_to(allowed, (len(query), len(key)))
        return cls(scoring, NORMALISATIONS[example.normalise], example.scale, attention_mask, bias, example.softcap)

    @property
    def masks_something(self) -> bool:
        """True if a bias is added or a key is masked."""
        return self.bias is not None or (self.attention_mask is not None and not bool(self.attention_mask.all()))


def given_matrices(example: Example) -> dict[str, np.ndarray]:
    """Return the matrices that an example gives, by node; a bias is a matrix of one row."""
    fields = {node: getattr(example, field) for node, field in _EXAMPLE_FIELDS.items()}
    return {node: np.atleast_2d(np.asarray(matrix, float)) for node, matrix in fields.items() if matrix is not None}


def head_name(name: str, head: int) -> str:
    """Return the name of a node within a head: `head-1.scores`; head 0 gives no prefix."""
    return f"head-{head}.{name}" if head else name


def attention_graph(example: Example, settings: FormulaSettings, written: Iterable[str] = ()) -> Graph:
    """Return the graph of an example; `written` are the nodes that the author wrote besides the given ones."""
    return Graph(list(_GraphBuilder(example, settings, frozenset(written)).nodes()))


class _GraphBuilder:
    def __init__(self, example: Example, settings: FormulaSettings, written: frozenset[str]) -> None:
        self.example, self.settings, self.written = example, settings, written
        self.present = written | set(given_matrices(example))
        self.projected = bool(self.present & {"w_q", "w_k", "w_v"})
        captions = attention_captions(
            settings.scoring, settings.normalise, settings.scale, settings.softcap,
            settings.attention_mask is not None or settings.bias is not None or example.positions == "alibi",
            "sinks" in self.present,
        )  # fmt: skip
        projected = projection_captions(example.source_x is not None, self.projected)
        self.captions = {step.name: replace(step, tex=self._projection_tex(step, projected)) for step in captions}

    def _projection_tex(self, caption: FormulaStep, projected: dict[str, dict[str, str]]) -> str:
        """Return the TeX of a step; of queries, keys and values, their projection, unless they are given."""
        letter = _PROJECTED.get(caption.name)
        if letter is None or getattr(self.example, letter) is not None or self.example.weights is not None:
            return caption.tex
        bias = f" + {_BIASES[f'b_{letter}'].tex}" if f"b_{letter}" in self.present else ""
        return projected[caption.name]["tex"] + bias

    def nodes(self) -> Iterator[GraphNode]:
        for name, caption in (_INPUTS | {"sinks": _SINKS, "frequency": _FREQUENCY} | _NORM_INPUTS).items():
            yield GraphNode(name, caption)
        heads, norm = self.example.heads, self.settings.qk_norm
        for name in _PROJECTED:
            joint = norm is not None and norm.over == "projection" and name != "value"
            yield GraphNode(name, self.captions[name], self._projection(name), listed=heads == 1 or joint)
            if joint:
                yield from self._norm_nodes(name, 0)
        for head in range(heads):
            yield from self._head_nodes(head)
        contexts = tuple(head_name("context", head + 1) for head in range(heads))
        if heads > 1:
            yield GraphNode("concat", CONCAT, (Route(op.Concatenate(), contexts),))
        last = "concat" if heads > 1 else "context"
        yield GraphNode("w_o", W_O)
        yield GraphNode("b_o", _BIASES["b_o"])
        inputs = (last, "w_o", *({"b_o"} & self.present))
        tex = OUTPUT.tex % (CONCAT.tex if heads > 1 else self.captions["context"].tex)
        output = replace(OUTPUT, tex=tex + (" + b_O" if "b_o" in self.present else ""))
        yield GraphNode("output", output, (Route(op.Project(f"{last} · W_O", (last, "w_o")), inputs),))

    def _projection(self, name: str) -> tuple[Route, ...]:
        """Return the route of queries, keys or values: projected inputs, or the inputs themselves.

        In notes that show X beside Q, K and V but no matrices, the origin of Q, K and V is unknown.
        """
        letter = _PROJECTED[name]
        inputs = "source" if name != "query" and self.example.source_tokens else "x"
        if f"w_{letter}" in self.present:
            bias = (f"b_{letter}",) if f"b_{letter}" in self.present else ()
            names = ("source_x" if inputs == "source" else inputs, f"w_{letter}")
            return (Route(op.Project(name, names), (inputs, f"w_{letter}", *bias)),)
        separately = {node.rpartition(".")[2] for node in self.written} & {"query", "key", "value", "key_transposed"}
        if not self.projected and (self.example.x is not None or not separately):
            return (Route(op.Unchanged(), (inputs,)),)
        return ()

    def _head_nodes(self, head: int) -> Iterator[GraphNode]:
        heads, number = self.example.heads, head + 1 if self.example.heads > 1 else 0

        def node(name: str, *routes: tuple[Step, Sequence[str]], listed: bool = True) -> GraphNode:
            made = tuple(
                Route(step, tuple(name if name in EXTRA_MATRICES else head_name(name, number) for name in inputs))
                for step, inputs in routes
            )
            caption = self.captions.get(name, _AUXILIARY.get(name, X))
            return GraphNode(head_name(name, number), caption, made, number, listed)

        if heads > 1:
            select = SelectHead(head, heads)
            norm = self.settings.qk_norm
            joint = norm is not None and norm.over == "projection"
            for name, others in (("query", ()), ("key", ("query",)), ("value", ("query", "key"))):
                source = f"normed_{name}" if joint and name != "value" else name
                route = Route(select, (source, *others))
                yield GraphNode(head_name(name, number), self.captions[name], (route,), number)
        yield from self._formula_nodes(node, head)

    def _norm_nodes(self, side: str, number: int) -> Iterator[GraphNode]:
        """Yield the norm of queries or keys: mean, variance or mean square, then `normed_query` or `normed_key`."""
        norm, source, axes = self.settings.qk_norm, head_name(side, number), (side, D_KEY)
        assert norm is not None
        steps: list[tuple[str, Step, tuple[str, ...]]] = [("mean_square", op.Mean(squared=True), ())]
        if norm.norm == "layer":
            steps = [("mean", op.Mean(), ()), ("variance", op.Variance(), (f"{side}_mean",))]
        statistics = tuple(f"{side}_{name}" for name, *_ in steps)
        learned = [f"{side}_{part}" for part in ("gain", "bias") if f"{side}_{part}" in self.present]
        steps.append(("normalised", op.Standardise(norm.eps), statistics))
        for name, step, others in steps:
            own = f"normed_{side}" if name == "normalised" and not learned else f"{side}_{name}"
            full, inputs = head_name(own, number), (source, *(head_name(other, number) for other in others))
            symbols = self.captions[side].tex, *(r"\mu", r"\sigma^2")[-len(others) :]
            tex = step.formula(*symbols[: len(inputs)])
            yield GraphNode(full, FormulaStep(name, tex, step.sentence, axes), (Route(step, inputs),), number)
        last = full
        for index, given in enumerate(learned):
            name = f"normed_{side}" if index + 1 == len(learned) else f"{side}_times_gain"
            step = op.Multiply() if given.endswith("gain") else op.Add()
            tex = step.formula(r"\hat{x}" if index == 0 else r"\gamma \odot \hat{x}", _NORM_INPUTS[given].tex)
            caption = FormulaStep(name, tex, step.sentence, axes)
            yield GraphNode(head_name(name, number), caption, (Route(step, (last, given)),), number)
            last = head_name(name, number)

    def _formula_nodes(self, node: Callable[..., GraphNode], head: int) -> Iterator[GraphNode]:
        settings = self.settings
        scale = Scale(settings.scoring, settings.scale, settings.softcap)
        yield node("key_transposed", (op.TransposeMatrix("K"), ["key"]), listed=False)
        sides, heads = ["query", "key"], self.example.heads
        if settings.qk_norm is not None and (settings.qk_norm.over == "head" or heads == 1):
            if settings.qk_norm.over == "head":
                for side in sides:
                    yield from self._norm_nodes(side, head + 1 if heads > 1 else 0)
            sides = [f"normed_{side}" for side in sides]
        if self.example.positions == "rotary":
            angles, frequency = PositionAngles(settings.rotary_base), [*({"frequency"} & self.present)]
            for side, normed in zip(("query", "key"), sides, strict=True):
                yield node(f"{side}_angles", (angles, [normed, *frequency]))
                yield node(f"rotated_{side}", (Rotate(factor=settings.rotary_factor), [normed, f"{side}_angles"]))
            sides = ["rotated_query", "rotated_key"]
        transposed = [(Score(settings.scoring, transposed=True), ["query", "key_transposed"])]
        yield node("scores", (Score(settings.scoring), sides), *(transposed if sides == ["query", "key"] else []))
        by_width = [(scale, ["scores", side]) for side in ("key", "query")]  # both have the same width
        any_width = [(scale, ["scores"])] if settings.scoring.scale(4) == 1 or settings.scale is not None else []
        yield node("scaled", *by_width, *any_width)
        bias = settings.bias
        if self.example.positions == "alibi":
            sloped = alibi(heads, len(self.example.tokens), len(self.example.keys)).bias[head]
            bias = sloped if bias is None else sloped + bias
        mask = Mask(settings.attention_mask, bias)
        by_position = head_name("position_bias", head + 1 if heads > 1 else 0) in self.present
        yield node("position_bias", listed=by_position)
        inputs = ["scaled", *(["position_bias"] if by_position else [])]
        yield node("masked", (mask, inputs), listed=settings.masks_something or mask.bias is not None or by_position)
        if "sinks" in self.present:
            yield node("weights", (SinkSoftmax(head), ["masked", "sinks"]))
        elif settings.normalise.name == "softmax":
            yield node("powers", (op.Apply(FUNCTIONS["exp"]), ["masked"]), listed=False)
            yield node("sums", (op.Sum(), ["powers"]), listed=False)
            yield node("weights", (Normalise(settings.normalise), ["masked"]), (op.Divide(), ["powers", "sums"]))
        else:
            yield node("weights", (Normalise(settings.normalise), ["masked"]))
        yield node("context", (op.Project("weights · values", ("weights", "value")), ["weights", "value"]))


_AUXILIARY = {
    "key_transposed": FormulaStep("key_transposed", r"K^{\top}", "The keys, one column each.", ("d_key", "key")),
    "powers": FormulaStep("powers", "e^{x}", "e to the power of each masked score.", ("query", "key")),
    "query_angles": FormulaStep("query_angles", r"p \omega_i", "Position times frequency.", ("query", "pair")),
    "key_angles": FormulaStep("key_angles", r"p \omega_i", "Position times frequency.", ("key", "pair")),
    "rotated_query": FormulaStep("rotated_query", r"R_p Q", "Each pair turned by its angle.", ("query", D_KEY)),
    "rotated_key": FormulaStep("rotated_key", r"R_p K", "Each pair turned by its angle.", ("key", D_KEY)),
    "position_bias": FormulaStep("position_bias", "B", "The bias of each distance, by position.", ("query", "key")),
    "sums": FormulaStep("sums", r"\sum_j e^{x_j}", "The sum of the powers in each row.", ("query", "sum")),
}
"""Captions of nodes that are not steps of the formula itself."""
