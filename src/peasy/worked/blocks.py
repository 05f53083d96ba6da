"""Blocks of a Transformer on paper, as compositions of steps: norms, feed-forward, attention, loss.

A block adds its nodes within the scope of its name and returns the node of its result. In an example's `[steps]`, a
line such as `norm = "layer_norm(x, eps=0)"` calls a block or a step by its name in `OPERATIONS`.
"""

import ast
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from peasy import config
from peasy.errors import InvalidInput, did_you_mean
from peasy.formula.activations import FUNCTIONS
from peasy.formula.normalise import NORMALISATIONS
from peasy.worked.attention_graph import FormulaSettings, attention_graph
from peasy.worked.builder import GraphBuilder
from peasy.worked.example import Example
from peasy.worked.graph import Step
from peasy.worked.losses import CrossEntropy, LabelSmoothing, SquaredError, TargetMean
from peasy.worked.operations import (
    Add,
    Apply,
    Concatenate,
    Divide,
    Mean,
    Multiply,
    Project,
    Standardise,
    Sum,
    TransposeMatrix,
    Variance,
    WeightedSum,
)
from peasy.worked.steps import Normalise
from peasy.worked.updates import add_updates

SOFTMAX = Normalise(NORMALISATIONS["softmax"])
ActivationName = Literal["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]


class GraphBlock(ABC):
    """Composition of steps. A new block is a dataclass of its settings with `build`."""

    @abstractmethod
    def build(self, g: GraphBuilder, *inputs: str) -> str:
        """Add the nodes of the block, and return that of its result."""


@dataclass(frozen=True)
class LayerNormBlock(GraphBlock):
    """Layer norm: mean, variance, normalised rows, then gain and bias if they are given."""

    eps: float = 1e-5

    def build(self, g: GraphBuilder, *inputs: str) -> str:
        """Add mean, variance, normalised and output."""
        (x,) = inputs
        mean = g.add("mean", Mean(), x)
        variance = g.add("variance", Variance(), x, mean)
        return _gain_and_bias(g, x, g.add("normalised", Standardise(self.eps), x, mean, variance))


@dataclass(frozen=True)
class RmsNormBlock(GraphBlock):
    """RMS norm: mean square, normalised rows, then the gain if it is given."""

    eps: float = 1e-6

    def build(self, g: GraphBuilder, *inputs: str) -> str:
        """Add mean_square, normalised and output."""
        (x,) = inputs
        square = g.add("mean_square", Mean(squared=True), x)
        return _gain_and_bias(g, x, g.add("normalised", Standardise(self.eps), x, square))


def _gain_and_bias(g: GraphBuilder, x: str, normalised: str) -> str:
    axes = ("bias", g.nodes[x].caption.axes[-1])
    for gain in g.optional("gain", axes=axes, description="The learned factor of each column."):
        normalised = g.add("scaled", Multiply(), normalised, gain, symbol=r"\gamma \odot \hat{x}")
    for bias in g.optional("bias", axes=axes, description="The learned number added to each column."):
        normalised = g.add("output", Add(), normalised, bias, symbol="y")
    return normalised


@dataclass(frozen=True)
class FeedForwardBlock(GraphBlock):
    """Feed-forward network: x W_1 + b_1, activation, W_2 and b_2; gated if W_3 is given: f(x W_1) ⊙ x W_3."""

    activation: ActivationName = "relu"

    def build(self, g: GraphBuilder, *inputs: str) -> str:
        """Add hidden, activated, with W_3 up and gated, and output."""
        (x,) = inputs
        width = g.nodes[x].caption.axes[-1]
        w_1 = g.given("w_1", (width, "d_hidden"), "The first matrix of the feed-forward network.")
        hidden = g.add("hidden", Project("x · W_1"), x, w_1, *g.optional("b_1", axes=("bias", "d_hidden")))
        activated = g.add("activated", Apply(FUNCTIONS[self.activation]), hidden)
        if g.has("w_3"):
            up = g.add("up", Project("x · W_3"), x, g.given("w_3", (width, "d_hidden")), symbol="u")
            activated = g.add("gated", Multiply(), activated, up)
        w_2 = g.given("w_2", ("d_hidden", width), "The second matrix of the feed-forward network.")
        return g.add("output", Project("a · W_2"), activated, w_2, *g.optional("b_2", axes=("bias", width)))


@dataclass(frozen=True)
class EmbeddingBlock(GraphBlock):
    """Embedding of the example's tokens: one-hot rows times the table E."""

    def build(self, g: GraphBuilder, *inputs: str) -> str:
        """Add one_hot and output."""
        one_hot = g.add_one_hot("one_hot", g.example.tokens, "A 1 in the column of each token.")
        table = g.given("table", ("vocabulary", "d_model"), "The vector of each word of the vocabulary, one row each.")
        return g.add("output", Project("one-hot · E"), one_hot, table, symbol="X")


@dataclass(frozen=True)
class AttentionBlock(GraphBlock):
    """Multi-head attention with the projections that are given; a second input is the source (cross-attention)."""

    heads: int = 1
    causal: bool = False
    window: int | tuple[int, int] | None = None
    scale: float | None = None

    def build(self, g: GraphBuilder, *inputs: str) -> str:
        """Add the nodes of the attention graph."""
        tokens, *source = (tuple(g.row_labels(name)) for name in inputs)
        settings = dataclasses.asdict(self)
        example = Example("attention", tokens, source_tokens=source[0] if source else (), **settings)
        matrices = {name for name in (f"{kind}_{letter}" for kind in "wb" for letter in "qkvo") if g.has(name)}
        formula = FormulaSettings.from_example(example)
        graph = attention_graph(example, formula, matrices)
        names = g.insert_graph(graph, dict(zip(("x", "source"), inputs, strict=False)))
        return names.get("output") or names.get("concat") or names["context"]


@dataclass(frozen=True)
class SoftmaxBlock(GraphBlock):
    """Softmax of every row, after division by a temperature."""

    temperature: float = 1.0

    def build(self, g: GraphBuilder, *inputs: str) -> str:
        """Add tempered, if the temperature is not 1, and probabilities."""
        (x,) = inputs
        if self.temperature != 1:
            x = g.add("tempered", WeightedSum((1 / self.temperature,), (r"\frac{1}{T}",)), x)
        return g.add("probabilities", SOFTMAX, x)


@dataclass(frozen=True)
class CrossEntropyBlock(GraphBlock):
    """Cross-entropy of logits and the example's targets: probabilities, loss of each token, mean, perplexity."""

    smoothing: float = 0.0

    def build(self, g: GraphBuilder, *inputs: str) -> str:
        """Add targets, probabilities, token_loss, loss and perplexity."""
        logits, *given = inputs
        targets = given[0] if given else g.add_one_hot("targets", g.example.targets, "The word that should come next.")
        if self.smoothing:
            targets = g.add("smoothed_targets", LabelSmoothing(self.smoothing), targets)
        probabilities = g.add("probabilities", SOFTMAX, logits)
        token_loss = g.add("token_loss", CrossEntropy(), logits, probabilities, targets)
        loss = g.add("loss", TargetMean(), token_loss, targets)
        g.add("perplexity", Apply(FUNCTIONS["exp"]), loss)
        return loss


_STEPS: dict[str, Callable[[], Step]] = {
    "project": Project, "add": Add, "multiply": Multiply, "divide": Divide, "transpose": TransposeMatrix, "sum": Sum,
    "mean": Mean, "concat": Concatenate, "squared_error": SquaredError,
    **{name: partial(Apply, function) for name, function in FUNCTIONS.items()},
}  # fmt: skip
_BLOCKS: dict[str, type[GraphBlock]] = {
    "layer_norm": LayerNormBlock, "rms_norm": RmsNormBlock, "feed_forward": FeedForwardBlock,
    "embedding": EmbeddingBlock, "attention": AttentionBlock, "softmax": SoftmaxBlock,
    "cross_entropy": CrossEntropyBlock,
}  # fmt: skip
OPERATIONS = (*_STEPS, *_BLOCKS)
"""Names that a line of `[steps]` can call."""


def _parse_call(name: str, text: str) -> tuple[str, list[str], dict[str, Any]]:
    """Parse `layer_norm(x, eps=0)`: the operation, its inputs and its settings."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise InvalidInput(
            f"steps.{name}: {text!r} is not of the form operation(input, setting=value).",
            hint='For example: hidden = "project(x, w_1, b_1)".',
        )
    if call.func.id not in OPERATIONS:
        near = did_you_mean(call.func.id, OPERATIONS)
        raise InvalidInput(
            f"steps.{name}: there is no operation {call.func.id}.", hint=near or f"Operations: {', '.join(OPERATIONS)}."
        )
    settings: dict[str, Any] = {}
    for keyword in call.keywords:
        value = ast.unparse(keyword.value)
        try:
            settings[str(keyword.arg)] = config.parse_json(value.replace("'", '"'))
        except ValueError:
            settings[str(keyword.arg)] = value
    return call.func.id, [ast.unparse(argument).replace(" ", "") for argument in call.args], settings


def build_steps(g: GraphBuilder, steps: dict[str, str]) -> None:
    """Add every line of an example's `[steps]`; a line may use the results of those before it by name."""
    for name, text in steps.items():
        operation, arguments, settings = _parse_call(name, text)
        inputs = [g.outputs.get(argument) or g.given_or_node(argument) for argument in arguments]
        if operation in _BLOCKS:
            block = config.read(_BLOCKS[operation], settings, where=f"steps.{name}")
            g.outputs[name] = block.build(g.scope(name), *inputs)
        else:
            g.outputs[name] = g.add(name, _STEPS[operation](), *inputs)


def build_example(example: Example) -> GraphBuilder:
    """Build the graph of an example with `[steps]`: forward, then gradients and one update if it has `[train]`."""
    g = GraphBuilder.from_example(example)
    build_steps(g, dict(example.steps))
    if example.train is None:
        return g
    loss = g.outputs.get(example.train.loss) or g.given_or_node(example.train.loss)
    gradients = g.backward(loss, example.train.parameters or None)
    if example.train.optimizer != "none":
        after = g.second_pass("after", add_updates(g, example.train, gradients))
        build_steps(after, dict(example.steps))
        loss = after.outputs.get(example.train.loss, loss)
        g.nodes[loss] = dataclasses.replace(g.nodes[loss], listed=True)
    return g
