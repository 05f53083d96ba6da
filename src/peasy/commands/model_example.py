"""Worked example of a model for a text: a whole layer with its own weights, or one head of its attention."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from torch import Tensor, nn

from peasy.commands.load import ModelSource, load
from peasy.commands.model_input import make_input
from peasy.errors import InvalidInput, NotFound
from peasy.inspection.forward import ModelInput, default_stack, forward_hidden
from peasy.inspection.results import Tokens
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.block import Block
from peasy.nn.capture import AttentionInputs
from peasy.nn.config import RotaryConfig
from peasy.nn.feedforward import FeedForward
from peasy.nn.functional import RMSNorm
from peasy.nn.intervention import Intervention
from peasy.nn.module_path import ModulePath
from peasy.nn.position import rope_attention_factor, rope_frequency, rope_of_layer
from peasy.nn.stack import Stack
from peasy.nn.tap import Activation, Tap
from peasy.worked.example import Example, read_example

_StackName = Literal["encoder", "decoder"]

_MAX_TOKENS = 64
"""Maximum number of tokens: every number is listed."""

_HEAD_NOTE = (
    "The numbers of the model itself: queries and keys after projection and position, as they enter the formula. "
    "Scores, weights and context are calculated from them in double precision."
)
_LAYER_NOTE = (
    "The numbers of the model itself: what enters the layer, and its weights. All steps are calculated from them in "
    "double precision. head-1 is the head that `--head 0` shows alone."
)


def model_example(
    model: ModelSource, text: str, layer: int, head: int | None = None, stack: _StackName | None = None
) -> Example:
    """Return a layer of a Transformer for a text as an example, or the self-attention of one of its heads."""
    loaded = load(model)
    blocks = find_stack(loaded.model, stack)
    if not 0 <= layer < len(blocks.blocks):
        raise NotFound(f"{loaded.name} has no layer {layer}.", hint=f"Layers: 0 to {len(blocks.blocks) - 1}.")
    num_heads = blocks.settings.attention.num_heads
    if head is not None and not 0 <= head < num_heads:
        raise NotFound(f"Layer {layer} has no head {head}.", hint=f"Heads: 0 to {num_heads - 1}.")
    labelled = make_input(loaded, text)
    longest = max(labelled.model_input.lengths(loaded.model).values())
    if longest > _MAX_TOKENS:
        raise InvalidInput(f"The text has {longest} tokens.", hint=f"At most {_MAX_TOKENS} can be explained.")
    is_source = loaded.model.is_encoder_decoder and blocks.name == "encoder"
    ids = labelled.model_input.ids if is_source else labelled.model_input.output_ids
    rows = _labels(labelled.tokens if is_source or labelled.target is None else labelled.target, ids)
    captured = LayerCapture(loaded.model, labelled.model_input, blocks.name, layer)
    title = f"{loaded.name}, {'encoder ' if is_source else ''}layer {layer}"
    if head is not None:
        return head_example(captured.attention, head, rows, title=f"{title}, head {head}: {text}", note=_HEAD_NOTE)
    source = _labels(labelled.tokens, labelled.model_input.ids) if captured.memory is not None else ()
    return replace(layer_example(blocks, layer, captured, rows, source), title=f"{title}: {text}")


def layer_example(
    stack: Stack, layer: int, captured: "LayerCapture", tokens: tuple[str, ...], source_tokens: tuple[str, ...] = ()
) -> Example:
    """Return a layer as an example: lines of steps; given are the weights of the model and what enters the layer."""
    lines, title = _LayerLines(stack, layer, captured), f"Layer {layer}"
    return Example(title, tokens, note=_LAYER_NOTE, source_tokens=source_tokens, given=lines.given, steps=lines.steps)


def find_stack(model: Model, name: _StackName | None = None) -> Stack:
    """Return a stack of Transformer blocks by name, the default one without; raise if the model has none of it."""
    stacks = {module.name: module for module in model.modules() if isinstance(module, Stack)}
    wanted = name or default_stack(model)
    if wanted not in stacks:
        hint = f"It has: {', '.join(stacks)}." if stacks else "Choose a Transformer."
        raise NotFound(f"The model has no {wanted} of Transformer blocks.", hint=hint)
    return stacks[wanted]


def _labels(tokens: Tokens, ids: tuple[int, ...]) -> tuple[str, ...]:
    return tokens.pieces if len(tokens.pieces) == len(ids) else tuple(map(str, ids))


def capture_inputs(
    model: Model, model_input: ModelInput, path: ModulePath, intervention: Intervention | None = None
) -> AttentionInputs:
    """Return what enters the formula of one attention in a forward pass."""
    found: list[AttentionInputs] = []
    tap = Tap(
        lambda _: None, layers=[path.layer], parts=[path.part], stacks=[path.stack],
        on_attention=lambda _, inputs: found.append(inputs),
    )  # fmt: skip
    forward_hidden(model, model_input, tap, intervention)
    if not found:
        raise NotFound(f"There is no {path.part.replace('_', '-')} in layer {path.layer} of the {path.stack}.")
    return found[-1]


class LayerCapture:
    """What enters a layer in a forward pass: residual stream, inputs of its attention, output of the encoder."""

    residual: np.ndarray
    memory: np.ndarray | None = None

    def __init__(self, model: Model, model_input: ModelInput, stack: str, layer: int) -> None:
        self.stack, self.layer = stack, layer
        forward_hidden(model, model_input, Tap(self._keep_stream, steps=["residual", "final"], parts=["stream"]))
        self.attention = capture_inputs(model, model_input, ModulePath(stack, layer, "attention"))

    def _keep_stream(self, activation: Activation) -> None:
        stack, layer, _ = activation.path
        if (stack, layer, activation.step) == (self.stack, self.layer, "residual"):
            self.residual = _numbers(activation.array[0])
        elif (stack, self.stack, activation.step) == ("encoder", "decoder", "final"):
            self.memory = _numbers(activation.array[0])


class _LayerLines:
    """Lines of an example that compute a Transformer block, and the given matrices that they use."""

    def __init__(self, stack: Stack, layer: int, captured: LayerCapture) -> None:
        self.stack, self.scope, self.captured = stack, f"layer{layer}", captured
        self.given: dict[str, np.ndarray] = {"x": captured.residual}
        if captured.memory is not None:
            self.given["source"] = captured.memory
        self.steps: dict[str, str] = {}
        block = stack.blocks[layer]
        assert isinstance(block, Block)
        self._add_block(block)

    def _line(self, name: str, operation: str, *inputs: str, **settings: object) -> str:
        """Add a line and return its name."""
        written = [*inputs, *(f"{key}={_written(value)}" for key, value in settings.items() if value is not None)]
        self.steps[f"{self.scope}.{name}"] = f"{operation}({', '.join(written)})"
        return f"{self.scope}.{name}"

    def _add_block(self, block: Block) -> None:
        x, added = "x", []
        for number, name in enumerate(block.sublayers, start=1):
            result = self._add_sublayer(block, name, number, x)
            if block.parallel:
                added.append(result)
                continue
            x = self._line(f"residual{number}", "add", x, result)
            if block.placement == "post":
                x = self._add_norm(f"norm{number}", getattr(block, f"{name}_norm"), x)
        if added:
            self._line("residual", "add", x, *added)

    def _add_sublayer(self, block: Block, name: str, number: int, x: str) -> str:
        """Add what a sublayer adds to x, with the norms before it and on its output."""
        norm = getattr(block, f"{name}_norm")
        if block.placement in ("pre", "around"):
            if block.shared_norm and number > 1:
                x = f"{self.scope}.norm1"
            elif norm is not None:
                x = self._add_norm(f"norm{number}", norm, x)
        if block.token_shift and name != "cross_attention":
            x = self._line(f"shift{number}", "token_shift", x)
        sublayer = getattr(block, name)
        x = self._add_feed_forward(sublayer, x) if name == "feedforward" else self._add_attention(sublayer, name, x)
        if isinstance(output_norm := block.output_norm(name), nn.LayerNorm | RMSNorm):
            x = self._add_norm(f"output_norm{number}", output_norm, x)
        if block.residual_scale != 1:
            self.given["residual_scale"] = np.array([[block.residual_scale]])
            x = self._line(f"scaled{number}", "multiply", x, "residual_scale")
        return x

    def _add_norm(self, name: str, norm: nn.LayerNorm | RMSNorm, x: str) -> str:
        self._give(name, dict(_norm_matrices(norm)))
        kind = "rms_norm" if isinstance(norm, RMSNorm) else "layer_norm"
        return self._line(name, kind, x, eps=norm.eps)

    def _add_feed_forward(self, module: FeedForward, x: str) -> str:
        linears = {"1": module.up, "2": module.down}
        if module.gate is not None:
            linears = {"1": module.gate, "2": module.down, "3": module.up}
        self._give("feed_forward", {name: matrix for key in linears for name, matrix in _linear(key, linears[key])})
        return self._line("feed_forward", "feed_forward", x, activation=module.settings.activation.replace("-", "_"))

    def _add_attention(self, module: Attention, name: str, x: str) -> str:
        linears = {"q": module.query, "k": module.key, "v": module.value, "o": module.output}
        given = {name: matrix for key in linears for name, matrix in _linear(key, linears[key])}
        settings: dict[str, object] = {"heads": module.num_heads, "softcap": module.softcap}
        if module.scale != module.d_head**-0.5:
            settings["scale"] = module.scale
        if module.query_norm is not None:
            for side, norm in (("query", module.query_norm), ("key", module.key_norm)):
                assert norm is not None
                given |= {f"{side}_{part}": matrix for part, matrix in _norm_matrices(norm)}
            kind, over = "rms" if isinstance(module.query_norm, RMSNorm) else "layer", module.norm_projections
            settings["qk_norm"] = {
                "norm": kind, "eps": module.query_norm.eps, "over": "projection" if over else "head"
            }  # fmt: skip
        if module.sinks is not None:
            given["sinks"] = _numbers(module.sinks)[None]
        inputs = [x, "source"] if module.is_cross else [x]
        if not module.is_cross:
            settings |= {"causal": self.stack.causal or None, "window": module.window, **self._positions(module, given)}
        self._give(name, given)
        return self._line(name, "attention", *inputs, **settings)

    def _positions(self, module: Attention, given: dict[str, np.ndarray]) -> dict[str, object]:
        """Return the settings of positions inside attention, and give the matrices that they need."""
        if self.stack.alibi is not None:
            return {"positions": "alibi"}
        if self.stack.relative is not None and (bias := self.captured.attention.attention_mask.bias) is not None:
            for head, matrix in enumerate(_numbers(bias[0]), start=1):
                given[f"head-{head}.position_bias" if module.num_heads > 1 else "position_bias"] = matrix
        if not isinstance(self.stack.position, RotaryConfig):
            return {}
        rope = rope_of_layer(self.stack.position, module.path.layer, module.window)
        if rope is None:
            return {}
        factor = rope_attention_factor(rope.scaling)
        settings = {"positions": "rotary", "rotary_base": rope.base, "rotary_factor": None if factor == 1 else factor}
        if rope.scaling is not None or rope.share != 1:
            given["frequency"] = _numbers(rope_frequency(module.d_head, rope))[None]
            settings["rotary_base"] = None
        return settings

    def _give(self, name: str, matrices: dict[str, np.ndarray]) -> None:
        self.given |= {f"{self.scope}.{name}.{key}": matrix for key, matrix in matrices.items()}


def _written(value: object) -> str:
    """Write a setting of a line; texts stand without quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)


def _numbers(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().double().cpu().numpy()
    return array


def _linear(key: str, linear: nn.Linear) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the matrix of a projection, one column for each output, and its bias."""
    yield f"w_{key}", _numbers(linear.weight).T
    if linear.bias is not None:
        yield f"b_{key}", _numbers(linear.bias)[None]


def _norm_matrices(norm: nn.LayerNorm | RMSNorm) -> Iterator[tuple[str, np.ndarray]]:
    """Yield gain and bias of a norm; a gain stored as the difference from 1 is completed."""
    yield "gain", _numbers(norm.weight)[None] + getattr(norm, "unit_offset", False)
    if isinstance(norm, nn.LayerNorm) and norm.bias is not None:
        yield "bias", _numbers(norm.bias)[None]


def head_example(
    inputs: AttentionInputs, head: int, queries: Sequence[str], keys: Sequence[str] = (), rows: Sequence[int] = (),
    columns: slice = slice(None), **texts: str,
) -> Example:  # fmt: skip
    """Return the example of one head, with all its queries or some `rows`, and the `columns` of its keys."""
    rows = tuple(rows or range(len(queries)))
    own = inputs.select((head,), rows)
    data: dict[str, object] = {
        "tokens": [queries[row] for row in rows], "source_tokens": list(keys[columns]), **texts,
        "q": _numbers(own.query[0, 0]), "k": _numbers(own.key[0, 0, columns]), "v": _numbers(own.value[0, 0, columns]),
        "scale": None if own.scale == own.query.shape[-1] ** -0.5 else float(own.scale),
        "causal": bool(own.attention_mask.causal), "softcap": own.softcap,
    }  # fmt: skip
    if own.sinks is not None:
        data["sinks"] = [float(own.sinks.flatten()[0])]
    for name, array in (("mask", own.attention_mask.mask), ("bias", own.attention_mask.bias)):
        if array is not None:
            last_axes = (array.double() if name == "bias" else array).reshape(-1, *array.shape[-2:])[0].cpu().numpy()
            shown = np.broadcast_to(last_axes, (len(rows), own.key.shape[2]))[:, columns].copy()
            data |= {} if name == "mask" and shown.all() else {name: shown}
    return read_example(data)
