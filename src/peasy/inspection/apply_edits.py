"""Applies edits during a forward pass: resolves them to addresses, heads and positions; wraps whole models."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from peasy.errors import InvalidInput, did_you_mean
from peasy.inspection import edit as edits
from peasy.inspection.forward import ModelInput, attentions_of, default_stack, dims_of, forward_hidden
from peasy.inspection.results import AttentionInfo, Tokens
from peasy.models.protocol import DecodeState, Model
from peasy.models.rnn_translator import RecurrentTranslator
from peasy.models.transformer import EncoderDecoder
from peasy.nn.intervention import EDITABLE_STEPS, EditFunction, Intervention, InterventionLike
from peasy.nn.module_path import Address, ModulePath
from peasy.nn.stack import Stack
from peasy.nn.tap import HEAD_STEPS, Activation, Tap
from peasy.parameters import Record

_Change = Callable[[Tensor, Tensor], Tensor]
"""From an activation and the positions of its tokens to the changed activation."""

_PARTS = ("attention", "cross_attention", "feedforward")


class EditContext(Record, eq=False):
    """What edits are resolved with: the model, its tokens (to find words), and how texts become input.

    `axes`: tokens of the queries and keys of a module. `tokenize`: input of a text, for patches. `read_texts`: inputs
    of a data set, for mean and resample. Without them, only positions and edits without texts are possible.
    """

    model: Model
    axes: Callable[[ModulePath], tuple[Tokens, Tokens]] | None = None
    tokenize: Callable[[edits.TextOrIds], ModelInput] | None = None
    read_texts: Callable[[edits.Texts], Sequence[ModelInput]] | None = None

    def positions(self, word: edits.TokenRef, path: ModulePath, side: int) -> tuple[int, ...]:
        """Return the positions of a word among the queries (side 0) or keys (1) of a module."""
        if self.axes is not None:
            return self.axes(path)[side].find(word)
        if isinstance(word, str):
            raise InvalidInput(f'"{word}": words cannot be used here, only positions.', hint="Give a number.")
        return (word,)


def make_intervention(specs: Sequence[edits.EditLike], context: EditContext) -> Intervention | None:
    """Return one intervention for all edits, applied in their order, or None without any."""
    return _CombinedIntervention(specs, context) if specs else None


class _CombinedIntervention(Intervention):
    """Combined intervention: the changes of each address, in order; functions are called at every address."""

    def __init__(self, specs: Sequence[edits.EditLike], context: EditContext) -> None:
        self.changes: dict[Address, list[_Change]] = {}
        self.functions: list[EditFunction] = []
        self.uniform: dict[ModulePath, set[int]] = {}
        self.cut: dict[ModulePath, list[tuple[list[int], Tensor, Tensor]]] = {}
        for spec in specs:
            if not isinstance(spec, edits.Edit):
                self.functions.append(spec)
                continue
            for address, heads in _resolve_site(spec, context.model):
                self._add(spec, address, heads, context)

    def _add(self, spec: edits.Edit, address: Address, heads: list[int] | None, context: EditContext) -> None:
        path = address.path
        if isinstance(spec, edits.UniformAttention):
            self.uniform.setdefault(path, set()).update(heads or ())
        elif isinstance(spec, edits.CutEdge):
            ends = ((spec.query, 0), (spec.key, 1))
            query, key = (torch.tensor(context.positions(word, path, side)) for word, side in ends)
            self.cut.setdefault(path, []).append((heads or [], query, key))
        else:
            positions = None
            if spec.site.positions is not None:
                side = int(address.step in ("key", "value"))
                words = spec.site.positions
                positions = torch.tensor([at for word in words for at in context.positions(word, path, side)])
            change = partial(_change_at, _make_change(spec, address, positions, context), heads, positions)
            self.changes.setdefault(address, []).append(change)

    def mask_edges(
        self, path: ModulePath, num_heads: int, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        if path not in self.cut:
            return None
        size = num_heads, len(query_positions), len(key_positions)
        hidden = torch.zeros(size, dtype=torch.bool, device=key_positions.device)
        for heads, query, key in self.cut[path]:
            sides = ((query_positions, query), (key_positions, key))
            rows, columns = (torch.isin(at, wanted.to(at)) for at, wanted in sides)
            hidden[heads] |= rows[:, None] & columns
        return hidden

    def uniform_heads(self, path: ModulePath) -> tuple[int, ...]:
        return tuple(sorted(self.uniform.get(path, ())))

    def edits(self, address: Address) -> bool:
        return bool(self.functions) or address in self.changes

    def edit(self, address: Address, array: Tensor, positions: Tensor) -> Tensor:
        for change in self.changes.get(address, ()):
            array = change(array, positions)
        for function in self.functions:
            changed = function(address, array)
            array = array if changed is None else changed
        return array


def _resolve_site(spec: edits.Edit, model: Model) -> list[tuple[Address, list[int] | None]]:
    """Return the addresses that an edit changes, each with its heads; None = not a step of heads.

    Keys and values are numbered by KV head: heads that share one (GQA) are changed together.
    """
    site, stack = spec.site, spec.site.stack or default_stack(model)
    attentions = [info for info in attentions_of(model) if info.path.stack == stack]
    in_attention = isinstance(spec, edits.UniformAttention | edits.CutEdge)
    step: str = site.step or ("context" if in_attention or site.head is not None else spec.default_step)
    layers = _layers(site, stack, step, model, attentions)
    if step not in EDITABLE_STEPS:
        hint: str | None = did_you_mean(step, EDITABLE_STEPS) or f"Choose {', '.join(EDITABLE_STEPS)}."
        raise InvalidInput(f'"{step}" cannot be edited.', hint=hint)
    if site.part is not None and site.part not in _PARTS:
        raise InvalidInput(f'There is no part "{site.part}".', hint=f"Choose {', '.join(_PARTS)}.")
    if step in HEAD_STEPS and not attentions:
        raise InvalidInput("This model has no attention to intervene on.")
    recurrent = isinstance(model, RecurrentTranslator)
    if step != "context" and (recurrent or not any(isinstance(module, Stack) for module in model.modules())):
        hint = 'Only step="context", the output of its attention, can be edited.' if recurrent else None
        raise InvalidInput(f"A {type(model.config).kind} has no {step} to intervene on.", hint=hint)
    heads = max((info.num_heads for info in attentions), default=0)
    if site.head is not None and not -heads <= site.head < heads:
        hint = f"Choose from 0 to {heads - 1}." if heads else "This model has no attention."
        raise InvalidInput(f"There is no head {site.head}.", hint=hint)
    if site.head is not None and step not in HEAD_STEPS:
        hint = "Leave out head, or choose query, key, value, weights, context."
        raise InvalidInput(f"{step} has no heads.", hint=hint)
    if step not in HEAD_STEPS:
        parts = {"residual": ["stream"], "activation": ["feedforward"]}.get(step)
        if parts is None:
            crossing = ["cross_attention"] if any(info.cross for info in attentions) else []
            parts = [site.part] if site.part else ["attention", *crossing, "feedforward"]
        return [(Address(stack, layer, part, step), None) for layer in layers for part in parts]
    default = "attention" if any(not info.cross for info in attentions) else "cross_attention"
    part = site.part or default
    return [
        (Address(*info.path, step), _heads(site.head, step, info))
        for info in attentions
        if info.path.part == part and info.path.layer in layers
    ]


def _layers(site: edits.Site, stack: str, step: str, model: Model, attentions: Sequence[AttentionInfo]) -> list[int]:
    counts = dims_of(model).num_layers
    if stack not in counts and not attentions:
        raise InvalidInput(f'There is no stack "{stack}".', hint=f"Choose {' or '.join(counts)}.")
    count = max(counts.get(stack, 0), *(info.path.layer + 1 for info in attentions), 1) + (step == "residual")
    if site.layer is None:
        return list(range(count))
    if not -count <= site.layer < count:
        raise InvalidInput(f"There is no layer {site.layer}.", hint=f"Choose from 0 to {count - 1}.")
    return [site.layer % count]


def _heads(head: int | None, step: str, info: AttentionInfo) -> list[int]:
    heads = list(range(info.num_heads)) if head is None else [head % info.num_heads]
    return sorted({info.kv_head[head] for head in heads}) if step in ("key", "value") else heads


def _change_at(
    change: _Change, heads: list[int] | None, wanted: Tensor | None, array: Tensor, positions: Tensor
) -> Tensor:
    """Apply a change at some heads and positions; all else stays as it is, bit for bit."""
    mask = torch.ones(1, dtype=torch.bool, device=array.device)
    if wanted is not None:
        at = torch.isin(positions, wanted.to(positions))
        mask = at[:, :, None] if array.ndim == 3 else at[:, None, :, None]
    if heads is not None and len(heads) < array.shape[1]:
        is_changed = torch.zeros(array.shape[1], dtype=torch.bool, device=array.device)
        is_changed[heads] = True
        mask = mask & is_changed[:, None, None]
    return torch.where(mask, change(array, positions).to(array.dtype), array)


def _make_change(spec: edits.Edit, address: Address, wanted: Tensor | None, context: EditContext) -> _Change:
    match spec:
        case edits.ZeroAblation():
            return lambda array, positions: torch.zeros_like(array)
        case edits.Scaling(factor=factor):
            return lambda array, positions: array * factor
        case edits.Steering(vector=vector, factor=factor):
            try:
                numbers = torch.as_tensor(np.asarray(vector, dtype=np.float64))
            except (TypeError, ValueError):
                raise InvalidInput("The steering vector should be a list of numbers.") from None
            return partial(_add_vector, numbers * factor)
        case edits.ActivationPatch(source=source):
            if context.tokenize is None:
                raise InvalidInput("A patch needs a tokenizer for its source text.")
            activation = _capture_activation(context.model, context.tokenize(source), address)
            return partial(_take_positions, activation, wanted)
        case edits.MeanAblation():
            arrays = [_capture_activation(context.model, text, address) for text in _texts(spec.data, context)]
            if spec.by_position or address.step == "weights":
                if len({array.shape for array in arrays}) > 1:
                    hint = "Leave out by_position."
                    raise InvalidInput("A mean by position needs texts with equally many tokens.", hint=hint)
                return partial(_take_positions, torch.stack(arrays).mean(0), wanted)
            tokens = torch.cat(arrays, dim=-2).double().mean(dim=-2, keepdim=True)
            return lambda array, positions: tokens.to(array).expand_as(array)
        case edits.ResampleAblation():
            return _Resample(context.model, address, _texts(spec.data, context), wanted, spec.seed)
    raise AssertionError(f"unknown edit {type(spec).__name__}")


def _capture_activation(model: Model, model_input: ModelInput, address: Address) -> Tensor:
    """Return one activation of a text, in the shape in which it is edited."""
    found: list[Activation] = []
    stack, layer, part, step = address
    forward_hidden(model, model_input, Tap(found.append, steps=[step], layers=[layer], parts=[part], stacks=[stack]))
    if not found:
        raise InvalidInput(f"Layer {layer} has no {step} of {part} to take from another text.")
    array = found[0].array
    if step in ("key", "value"):  # captured for each query head, edited by KV head
        info = next(info for info in attentions_of(model) if info.path == address.path)
        array = array[:, [info.kv_head.index(head) for head in sorted(set(info.kv_head))]]
    return array.clone()


def _texts(data: edits.Texts, context: EditContext) -> Sequence[ModelInput]:
    if context.read_texts is None:
        raise InvalidInput("This edit needs a tokenizer for its data set.")
    inputs = context.read_texts(data)
    if not inputs:
        raise InvalidInput("The data set of an edit is empty.", hint="Give at least one text.")
    return inputs


class _Resample:
    """Change of a resample ablation: the source is drawn when the length of the text is known."""

    def __init__(
        self, model: Model, address: Address, inputs: Sequence[ModelInput], wanted: Tensor | None, seed: int
    ) -> None:
        self.model, self.address, self.inputs, self.wanted = model, address, inputs, wanted
        self.rng = np.random.default_rng(seed)
        self.source: Tensor | None = None

    def __call__(self, array: Tensor, positions: Tensor) -> Tensor:
        length = int(positions.max()) + 1
        if self.source is None or self.source.shape[-2] < length:
            stack, _, part, step = self.address
            of_source = stack == "encoder" or (part == "cross_attention" and step in ("key", "value"))
            lengths = {text: len(text.ids if of_source else text.output_ids) for text in self.inputs}
            exact = step == "weights"
            fitting = [text for text, size in lengths.items() if size == length or (size > length and not exact)]
            if not fitting:
                message = f"No text of the data set has {'exactly' if exact else 'at least'} {length} tokens."
                raise InvalidInput(message, hint="Give longer texts to resample from.")
            chosen = fitting[int(self.rng.integers(len(fitting)))]
            self.source = _capture_activation(self.model, chosen, self.address)
        return _take_positions(self.source, self.wanted, array, positions)


def _add_vector(vector: Tensor, array: Tensor, positions: Tensor) -> Tensor:
    if vector.ndim != 1 or vector.shape[-1] != array.shape[-1]:
        message = f"The steering vector has the shape {tuple(vector.shape)}; this activation has"
        raise InvalidInput(f"{message} {array.shape[-1]} numbers.", hint="Give a vector with as many numbers.")
    return array + vector.to(array)


def _take_positions(source: Tensor, wanted: Tensor | None, array: Tensor, positions: Tensor) -> Tensor:
    """Return the activation of another text at the same positions."""
    length = source.shape[-2]
    needed = positions if wanted is None else positions[torch.isin(positions, wanted.to(positions))]
    if needed.numel() and int(needed.max()) >= length:
        message = f"The source text has only {length} tokens: nothing to patch at position {int(needed.max())}."
        raise InvalidInput(message, hint="Give a text with as many tokens, or name the positions.")
    if source.shape[-1] != array.shape[-1]:
        raise InvalidInput("Weights can be taken only from a text with equally many tokens.")
    rows = [source[0].index_select(-2, row.clamp(0, length - 1)) for row in positions]
    return torch.stack(rows).to(array).expand_as(array)


class IntervenedModel:
    """Model wrapper that applies an intervention in every pass, so that loss, BLEU and generation can measure it."""

    def __init__(self, model: Model, intervention: InterventionLike) -> None:
        self._model, self._intervention = model, intervention

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def __call__(self, ids: Tensor, **more: object) -> Tensor:
        """Return the logits of each position, under the intervention."""
        logits: Tensor = self._model(ids, **{**more, "intervention": self._intervention})
        return logits

    def hidden(self, ids: Tensor, **more: Any) -> Tensor:
        """Return the final hidden states, under the intervention."""
        return self._model.hidden(ids, **{**more, "intervention": self._intervention})

    def new_state(self, **more: Any) -> DecodeState:
        """Return a new decode state; the source is encoded under the intervention too."""
        state: DecodeState = self._model.new_state(**more)
        if isinstance(self._model, EncoderDecoder) and more.get("source") is not None:
            mask = more.get("source_padding_mask")
            source = self._model.encode(more["source"], padding_mask=mask, intervention=self._intervention)
            state.encoder_output = source  # type: ignore[attr-defined]
        return state

    def forward_varlen(
        self, sequences: Sequence[Sequence[int]], states: Sequence[DecodeState], **more: Any
    ) -> list[Tensor]:
        """Run new tokens of several sequences, under the intervention."""
        interventions = [self._intervention] * len(sequences)
        return self._model.forward_varlen(sequences, states, **{**more, "intervention": interventions})
