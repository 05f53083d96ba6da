"""Blocks on paper, as compositions of steps: norms, feed-forward, attention, Transformer layers, GPT, loss, RNN, LSTM.

A block adds its nodes within the scope of its name and returns the node of its result. A gate of a recurrent step has
the matrices `w_*` (for the input), `u_*` (for the state) and the biases `b_*`, `c_*`, as far as given.
"""

import dataclasses
from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt

from peasy.errors import InvalidInput
from peasy.formula.activations import FUNCTIONS
from peasy.formula.scoring import NORMALISATIONS
from peasy.parameters import BoundedSettings, FrozenSettings
from peasy.worked import operations as op
from peasy.worked.attention_graph import EXTRA_MATRICES, FormulaSettings, QkNorm, attention_graph, head_name
from peasy.worked.builder import GraphBuilder
from peasy.worked.example import Example, NormalisationName, ScoringName, check_size
from peasy.worked.steps import Normalise, PositionAngles, SineCosine
from peasy.worked.training import CrossEntropy, LabelSmoothing, TargetMean

SOFTMAX = Normalise(NORMALISATIONS["softmax"])
_SIGMOID, _TANH = op.Apply(FUNCTIONS["sigmoid"]), op.Apply(FUNCTIONS["tanh"])
ActivationName = Literal["relu", "relu_squared", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]


class GraphBlock(FrozenSettings, ABC):
    """Composition of steps. A new block has its settings as fields, and `build`."""

    @abstractmethod
    def build(self, g: GraphBuilder, *inputs: Any, **named: Any) -> str:
        """Add the nodes of the block, and return that of its result."""


class LayerNormBlock(GraphBlock):
    """Layer norm: mean, variance, normalised rows, then gain and bias if they are given."""

    eps: float = 1e-5

    def build(self, g: GraphBuilder, x: str) -> str:
        """Add mean, variance, normalised and output."""
        mean = g.add("mean", op.Mean(), x)
        variance = g.add("variance", op.Variance(), x, mean)
        return _gain_and_bias(g, x, g.add("normalised", op.Standardise(self.eps), x, mean, variance))


class RmsNormBlock(GraphBlock):
    """RMS norm: mean square, normalised rows, then the gain if it is given."""

    eps: float = 1e-6

    def build(self, g: GraphBuilder, x: str) -> str:
        """Add mean_square, normalised and output."""
        square = g.add("mean_square", op.Mean(squared=True), x)
        why = "Each number is divided by the root of the mean square of its row."
        return _gain_and_bias(g, x, g.add("normalised", op.Standardise(self.eps), x, square, description=why))


def _gain_and_bias(g: GraphBuilder, x: str, normalised: str) -> str:
    columns = g.nodes[x].caption.axes[-1]
    for gain in g.optional("gain", axes=("gain", columns), description="The learned factor of each column."):
        normalised = g.add("scaled", op.Multiply(), normalised, gain, symbol=r"\gamma \odot \hat{x}")
    for bias in g.optional("bias", axes=("bias", columns), description="The learned number added to each column."):
        normalised = g.add("output", op.Add(), normalised, bias, symbol="y")
    return normalised


class FeedForwardBlock(GraphBlock):
    """Feed-forward network: x W_1 + b_1, activation, W_2 and b_2; gated if W_3 is given: f(x W_1) ⊙ x W_3."""

    activation: ActivationName = "relu"

    def build(self, g: GraphBuilder, x: str) -> str:
        """Add hidden, activated, with W_3 up and gated, and output."""
        width = g.nodes[x].caption.axes[-1]
        w_1 = g.given("w_1", (width, "d_hidden"), "The first matrix of the feed-forward network.")
        hidden = g.add("hidden", op.Project("x · W_1"), x, w_1, *g.optional("b_1", axes=("bias", "d_hidden")))
        activated = g.add("activated", op.Apply(FUNCTIONS[self.activation]), hidden)
        if g.has("w_3"):
            w_3, b_3 = g.given("w_3", (width, "d_hidden")), g.optional("b_3", axes=("bias", "d_hidden"))
            up = g.add("up", op.Project("x · W_3"), x, w_3, *b_3, symbol="u")
            activated = g.add("gated", op.Multiply(), activated, up)
        w_2 = g.given("w_2", ("d_hidden", width), "The second matrix of the feed-forward network.")
        return g.add("output", op.Project("a · W_2"), activated, w_2, *g.optional("b_2", axes=("bias", width)))


class EmbeddingBlock(GraphBlock):
    """Embedding of the example's tokens: one-hot rows times the table E, given as `table` or as input."""

    words: Literal["tokens", "source_tokens"] = "tokens"

    def build(self, g: GraphBuilder, table: str = "") -> str:
        """Add one_hot and output."""
        words, rows = (g.example.tokens, "token") if self.words == "tokens" else (g.example.source_tokens, "source")
        one_hot = g.add_one_hot("one_hot", words, "A 1 in the column of each token.", rows)
        about = "The vector of each word of the vocabulary, one row each."
        table = table or g.given("table", ("vocabulary", "d_model"), about)
        picked = "Each one-hot row picks the vector of its word from the table."
        return g.add("output", op.Project("one-hot · E"), one_hot, table, symbol="X", description=picked)


class PositionsBlock(GraphBlock):
    """Positions added to embeddings: rows of a learned table, or the sinusoidal encoding."""

    encoding: Literal["learned", "sinusoidal"] = "learned"
    base: float = 10000.0

    def build(self, g: GraphBuilder, x: str) -> str:
        """Add the encoding of each position, and output."""
        rows, width = g.nodes[x].caption.axes[-2:]
        if self.encoding == "sinusoidal":
            angles = g.add("angles", PositionAngles(self.base), x, symbol=r"\theta")
            encoding = g.add("encoding", SineCosine(), angles, x, symbol="P")
        else:
            table = g.given("table", ("position", width), "The learned vector of each position.")
            ones = np.eye(len(g.values[x]), len(g.values[table]))
            one_hot = g.add("one_hot", op.Constant(ones, "A 1 in the column of each position.", (rows, "position")))
            picked = "Each one-hot row picks the vector of its position."
            encoding = g.add("encoding", op.Project("one-hot · table"), one_hot, table, symbol="P", description=picked)
        return g.add("output", op.Add(), x, encoding, symbol="X_P", description="The position is added to each vector.")


class AttentionBlock(GraphBlock):
    """Multi-head attention with the projections that are given; a second input is the source (cross-attention)."""

    heads: int = 1
    causal: bool = False
    window: int | tuple[int, int] | None = None
    scale: float | None = None
    scoring: ScoringName = "scaled-dot"
    normalise: NormalisationName = "softmax"
    softcap: float | None = None
    positions: Literal["none", "rotary", "alibi"] = "none"
    mask: tuple[tuple[bool, ...], ...] | None = None
    qk_norm: QkNorm | None = None
    rotary_base: float = 10000.0
    rotary_factor: float = 1.0

    def build(self, g: GraphBuilder, x: str, source: str = "") -> str:
        """Add the nodes of the attention graph; sinks, norms and position biases take part if they are given."""
        inputs = {"x": x} | ({"source": source} if source else {})
        tokens, *source_tokens = (tuple(g.row_labels(name)) for name in inputs.values())
        own = {name: getattr(self, name) for name in ("qk_norm", "rotary_base", "rotary_factor")}
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(AttentionBlock) if f.name not in own}
        example = Example("attention", tokens, source_tokens=source_tokens[0] if source else (), **settings)
        check_size(example)
        numbers = range(1, self.heads + 1) if self.heads > 1 else (0,)
        names_of = [*(f"{kind}_{letter}" for kind in "wb" for letter in "qkvo"), *EXTRA_MATRICES]
        names_of += [head_name("position_bias", number) for number in numbers]
        matrices = {name for name in names_of if g.has(name)}
        formula = dataclasses.replace(FormulaSettings.from_example(example), **own)
        graph = attention_graph(example, formula, matrices)
        names = g.insert_graph(graph, inputs)
        return names.get("output") or names.get("concat") or names["context"]


class SoftmaxBlock(BoundedSettings, GraphBlock):
    """Softmax of every row, after division by a temperature."""

    temperature: Annotated[float, Gt(0)] = 1.0

    def build(self, g: GraphBuilder, x: str) -> str:
        """Add tempered, if the temperature is not 1, and probabilities."""
        if self.temperature != 1:
            x = g.add("tempered", op.WeightedSum((1 / self.temperature,), (r"\frac{1}{T}",)), x)
        return g.add("probabilities", SOFTMAX, x)


class CrossEntropyBlock(GraphBlock):
    """Cross-entropy of logits and the example's targets: probabilities, loss of each token, mean, perplexity."""

    smoothing: float = 0.0

    def build(self, g: GraphBuilder, logits: str, targets: str = "") -> str:
        """Add targets, probabilities, token_loss, loss and perplexity."""
        if not targets and len(g.example.targets) != len(g.values[logits]):
            message = f"There are {len(g.example.targets)} targets for {len(g.values[logits])} rows of {logits}."
            raise InvalidInput(message, hint='Give one for each row: targets = ["love", ""]; "" is not counted.')
        targets = targets or g.add_one_hot("targets", g.example.targets, "The word that should come next.")
        if self.smoothing:
            targets = g.add("smoothed_targets", LabelSmoothing(self.smoothing), targets)
        probabilities = g.add("probabilities", SOFTMAX, logits)
        token_loss = g.add("token_loss", CrossEntropy(), logits, probabilities, targets)
        loss = g.add("loss", TargetMean(), token_loss, targets)
        about = "e to the power of the loss: between how many words, in the mean, the model hesitates."
        g.add("perplexity", op.Apply(FUNCTIONS["exp"]), loss, description=about)
        return loss


class TransformerBlock(GraphBlock):
    """Transformer block: self-attention, cross-attention if there is a second input (the memory), feed-forward.

    Each is added to what came in (residual add); the norm comes before it ("pre") or after the sum ("post").
    """

    norm: Literal["pre", "post"] = "pre"
    norm_kind: Literal["layer", "rms"] = "layer"
    eps: float = 1e-5
    heads: int = 1
    causal: bool = False
    activation: ActivationName = "relu"
    positions: Literal["none", "rotary", "alibi"] = "none"
    scale: float | None = None

    def build(self, g: GraphBuilder, x: str, memory: str = "") -> str:
        """Add norm1, attention, residual1 and so on; return the last of them."""
        attention = AttentionBlock(self.heads, self.causal, scale=self.scale, positions=self.positions)
        parts: list[tuple[str, GraphBlock, list[str]]] = [("attention", attention, [])]
        if memory:
            parts.append(("cross_attention", AttentionBlock(self.heads, scale=self.scale), [memory]))
        parts.append(("feed_forward", FeedForwardBlock(self.activation), []))
        for number, (name, block, others) in enumerate(parts, start=1):
            norm = g.scope(f"norm{number}")
            normed = self.add_norm(norm, x) if self.norm == "pre" else x
            result = block.build(g.scope(name), normed, *others)
            about = "Residual add: what came in plus what the layer adds."
            x = g.add(f"residual{number}", op.Add(), x, result, description=about)
            x = self.add_norm(norm, x) if self.norm == "post" else x
        return x

    def add_norm(self, g: GraphBuilder, x: str) -> str:
        """Add a norm of the chosen kind."""
        block = LayerNormBlock(self.eps) if self.norm_kind == "layer" else RmsNormBlock(self.eps)
        return block.build(g, x)


class DecoderBlock(TransformerBlock):
    """Decoder block: as the encoder's, with a causal mask."""

    causal: bool = True


class GptBlock(DecoderBlock):
    """GPT: embedding and positions, decoder blocks layer1, layer2 ..., final norm, logits by E (tied) or `w_out`."""

    layers: int = 1
    encoding: Literal["learned", "sinusoidal", "none"] = "learned"
    final_norm: bool = True

    def build(self, g: GraphBuilder) -> str:  # type: ignore[override]
        """Add all nodes from the one-hot tokens to the logits."""
        x = EmbeddingBlock().build(g.scope("embedding"))
        table = g.scope("embedding").given("table")
        if self.encoding != "none":
            x = PositionsBlock(self.encoding).build(g.scope("positions"), x)
        for layer in range(1, self.layers + 1):
            x = super().build(g.scope(f"layer{layer}"), x)
        x = self.add_norm(g.scope("final_norm"), x) if self.final_norm else x
        about = "The dot product of each vector with that of each word."
        if not g.has("w_out"):
            return g.add("logits", op.Project("x · E", transposed="right"), x, table, description=about)
        w_out = g.given("w_out", ("d_model", "vocabulary"), "The output matrix.")
        return g.add("logits", op.Project("x · W"), x, w_out, *g.optional("b_out", axes=("bias", "vocabulary")))


def _product(g: GraphBuilder, x: str, kind: Literal["input", "state"], gate: str) -> str:
    """Add the part of a gate that comes from the input or from the state."""
    matrix, bias = ("w", "b") if kind == "input" else ("u", "c")
    weights = g.given(f"{matrix}_{gate}", ("d_input" if kind == "input" else "d_state", "d_hidden"))
    inputs = (x, weights, *g.optional(f"{bias}_{gate}", axes=("bias", "d_hidden")))
    return g.add(f"{gate}_{kind}", op.Project(f"{kind} · {matrix}_{gate}"), *inputs)


def _gate(g: GraphBuilder, x: str, state: str, gate: str, name: str, step: op.Apply, about: str) -> str:
    """Add a gate: activation of (x W + h U + b)."""
    total = g.add(f"{gate}_sum", op.Add(), _product(g, x, "input", gate), _product(g, state, "state", gate))
    return g.add(name, step, total, description=about, symbol=gate)


class RnnStep(GraphBlock):
    """One step of a plain recurrent network: h' = tanh(x W_h + h U_h + b_h); inputs are x and h."""

    def build(self, g: GraphBuilder, x: str, h: str) -> str:
        """Add the sums and state."""
        return _gate(g, x, h, "h", "state", _TANH, "The new state, from the input and the state before.")


class GruStep(GraphBlock):
    """One step of a GRU: reset r, update z, candidate n, h' = (1 - z) n + z h; inputs are x and h.

    The reset gate multiplies the state after its product with U_n, or, as in the paper of 2014, before.
    """

    reset: Literal["after", "before"] = "after"

    def build(self, g: GraphBuilder, x: str, h: str) -> str:
        """Add gates, candidate and state."""
        r = _gate(g, x, h, "r", "reset_gate", _SIGMOID, "How much of the old state the candidate sees.")
        z = _gate(g, x, h, "z", "update_gate", _SIGMOID, "How much of the old state is kept.")
        if self.reset == "after":
            seen = g.add("reset_state", op.Multiply(), r, _product(g, h, "state", "n"))
        else:
            seen = _product(g, g.add("reset_state", op.Multiply(), r, h), "state", "n")
        total = g.add("n_sum", op.Add(), _product(g, x, "input", "n"), seen)
        candidate = g.add("candidate", _TANH, total, symbol="n", description="The proposed new state.")
        fresh = g.add("complement", op.Apply(FUNCTIONS["complement"]), z, symbol="1 - z")
        new = g.add("new_part", op.Multiply(), fresh, candidate)
        return g.add("state", op.Add(), new, g.add("kept_part", op.Multiply(), z, h), symbol="h'")


class LstmStep(GraphBlock):
    """One step of an LSTM: input, forget and output gate, candidate, cell, state; inputs are x, h and the cell c."""

    def build(self, g: GraphBuilder, x: str, h: str, c: str) -> str:
        """Add gates, candidate, cell and state."""
        i = _gate(g, x, h, "i", "input_gate", _SIGMOID, "How much of the candidate is written to the cell.")
        f = _gate(g, x, h, "f", "forget_gate", _SIGMOID, "How much of the old cell is kept.")
        candidate = _gate(g, x, h, "g", "candidate", _TANH, "The proposed content of the cell.")
        o = _gate(g, x, h, "o", "output_gate", _SIGMOID, "How much of the cell is shown.")
        kept, written = g.add("kept", op.Multiply(), f, c), g.add("written", op.Multiply(), i, candidate)
        cell = g.add("cell", op.Add(), kept, written, symbol="c'", description="The new cell: kept plus written.")
        shown = g.add("cell_tanh", _TANH, cell)
        return g.add("state", op.Multiply(), o, shown, symbol="h'", description="The new state.")


class AdditiveAttentionBlock(GraphBlock):
    """Additive attention (2015): scores v · tanh(q W + k U) of one query; inputs are query and keys (also values)."""

    def build(self, g: GraphBuilder, query: str, keys: str) -> str:
        """Add the projections, their tanh, scores, weights and context."""
        query_axes, key_axes = (g.nodes[name].caption.axes for name in (query, keys))
        asked = g.add("projected_query", op.Project("q · W"), query, g.given("w", (query_axes[-1], "d_hidden")))
        offered = g.add("projected_keys", op.Project("k · U"), keys, g.given("u", (key_axes[-1], "d_hidden")))
        total = g.add("added", op.Add(), offered, asked, description="The projected query is added to each key.")
        activated = g.add("activated", _TANH, total)
        v = g.given("v", ("bias", "d_hidden"), "The vector that makes one score of each row.")
        column = g.add("energies", op.Project("tanh · v", transposed="right"), activated, v, symbol="e")
        scores = g.add("scores", op.TransposeMatrix("the energies"), column)
        weights = g.add("weights", SOFTMAX, scores, description="Softmax: the share of each key.")
        about = "The weighted sum of the keys."
        return g.add("context", op.Project("weights · keys"), weights, keys, description=about)
