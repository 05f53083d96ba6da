"""Lines of an example's `[steps]`, such as `norm = "layer_norm(x, eps=0)"`, as a computation graph.

A line calls a step or a block by its name in `_OPERATIONS`, with nodes as inputs and settings by name; `share=other`
uses the matrices of another block, as in the steps of a recurrent network.
"""

import ast
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import partial

from peasy import config
from peasy.config import JsonDict
from peasy.errors import InvalidInput, did_you_mean
from peasy.formula.activations import FUNCTIONS
from peasy.worked import blocks
from peasy.worked import operations as op
from peasy.worked.builder import GraphBuilder
from peasy.worked.decoding import BeamSearchBlock, KvCacheBlock, SamplingBlock
from peasy.worked.example import Example
from peasy.worked.graph import Step
from peasy.worked.training import SquaredError, add_updates

_STEPS: dict[str, Callable[[], Step]] = {
    "project": op.Project, "add": op.Add, "multiply": op.Multiply, "divide": op.Divide,
    "transpose": op.TransposeMatrix, "sum": op.Sum, "mean": op.Mean, "concat": op.Concatenate,
    "project_transposed": partial(op.Project, transposed="right"), "squared_error": SquaredError,
    "token_shift": op.TokenShift, **{name: partial(op.Apply, function) for name, function in FUNCTIONS.items()},
}  # fmt: skip
_BLOCKS: dict[str, type[blocks.GraphBlock]] = {
    "embedding": blocks.EmbeddingBlock, "positions": blocks.PositionsBlock, "layer_norm": blocks.LayerNormBlock,
    "rms_norm": blocks.RmsNormBlock, "feed_forward": blocks.FeedForwardBlock, "attention": blocks.AttentionBlock,
    "encoder_block": blocks.TransformerBlock, "decoder_block": blocks.DecoderBlock, "gpt": blocks.GptBlock,
    "softmax": blocks.SoftmaxBlock, "cross_entropy": blocks.CrossEntropyBlock,
    "rnn_step": blocks.RnnStep, "gru_step": blocks.GruStep, "lstm_step": blocks.LstmStep,
    "additive_attention": blocks.AdditiveAttentionBlock,
    "sampling": SamplingBlock, "beam_search": BeamSearchBlock, "kv_cache": KvCacheBlock,
}  # fmt: skip
_OPERATIONS = (*_STEPS, *_BLOCKS)
"""Names that a line of `[steps]` can call."""


def _parse_call(name: str, text: str) -> tuple[str, list[str], JsonDict]:
    """Parse `layer_norm(x, eps=0)`: the operation, its inputs and its settings."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        message = f"steps.{name}: {text!r} is not of the form operation(input, setting=value)."
        raise InvalidInput(message, hint='For example: hidden = "project(x, w_1, b_1)".')
    if call.func.id not in _OPERATIONS:
        near = did_you_mean(call.func.id, _OPERATIONS)
        message = f"steps.{name}: there is no operation {call.func.id}."
        raise InvalidInput(message, hint=near or f"Operations: {', '.join(_OPERATIONS)}.")
    settings: JsonDict = {}
    for keyword in call.keywords:
        value = ast.unparse(keyword.value)
        try:
            settings[str(keyword.arg)] = config.parse_json(value.replace("'", '"'))
        except ValueError:
            settings[str(keyword.arg)] = value
    return call.func.id, [ast.unparse(argument).replace(" ", "") for argument in call.args], settings


def _build_steps(g: GraphBuilder, steps: Mapping[str, str]) -> None:
    """Add every line of an example's `[steps]`; a line may use the results of those before it by name."""
    for name, text in steps.items():
        operation, arguments, settings = _parse_call(name, text)
        share = str(settings.pop("share", "")) if operation in _BLOCKS else ""
        made: Step | blocks.GraphBlock
        if operation in _BLOCKS:
            made = config.read(_BLOCKS[operation], settings, where=f"steps.{name}")
        else:
            made = _STEPS[operation]()
            if settings:
                raise InvalidInput(f"steps.{name}: {operation} has no settings.", hint="Leave them out.")
        called = made.forward if isinstance(made, Step) else made.build
        _check_inputs(f"steps.{name}: {operation}", called, len(arguments))
        inputs = [g.outputs.get(argument) or g.given_or_node(argument) for argument in arguments]
        if isinstance(made, Step):
            g.outputs[name] = g.add(name, made, *inputs)
        else:
            g.outputs[name] = made.build(g.scope(name, share), *inputs)


def _check_inputs(what: str, function: Callable[..., object], count: int) -> None:
    """Raise unless a line has as many inputs as `forward` or `build` has parameters after the first."""
    _, *parameters = inspect.signature(function).parameters.values()
    is_open = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    low = sum(parameter.default is parameter.empty for parameter in parameters) - is_open
    if not low <= count <= (count if is_open else len(parameters)):
        wanted = f"{low}" if low == len(parameters) else f"{low} to {len(parameters)}"
        wanted = f"{low} inputs or more" if is_open else f"{wanted} {'input' if wanted == '1' else 'inputs'}"
        raise InvalidInput(f"{what} takes {wanted}, not {count}.")


def build_example(example: Example) -> GraphBuilder:
    """Build the graph of an example with `[steps]`: forward, then gradients and one update if it has `[train]`."""
    g = GraphBuilder.from_example(example)
    _build_steps(g, example.steps)
    if example.train is None:
        return g
    loss = g.outputs.get(example.train.loss) or g.given_or_node(example.train.loss)
    if g.values[loss].size != 1:
        raise InvalidInput(f"{loss} is not a single number.", hint='Name the loss: [train] loss = "...".')
    for name in example.train.parameters:
        if name not in g.nodes:
            raise InvalidInput(f"train.parameters: no step uses {name}.", hint=did_you_mean(name, g.parameters))
    gradients = g.backward(loss, example.train.parameters or None)
    if example.train.optimizer != "none":
        after = g.second_pass("after", add_updates(g, example.train, gradients))
        _build_steps(after, example.steps)
        loss = after.outputs.get(example.train.loss, loss)
        g.nodes[loss] = dataclasses.replace(g.nodes[loss], listed=True)
    return g
