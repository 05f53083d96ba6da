"""Applies interventions during a forward pass: resolves specs to layers, heads and positions; wraps whole models."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.inspection.forward import ModelInput, attentions_of, default_stack, dims_of, forward_hidden
from peasy.inspection.interventions import AblateHead, Cut, InterventionSpec, Patch, UniformAttention
from peasy.inspection.results import Tokens
from peasy.inspection.words import find_word
from peasy.models.protocol import DecodeState, Model
from peasy.models.transformer import EncoderDecoder
from peasy.nn.intervention import Intervention, InterventionLike
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import Activation, Tap

_TokenizeFn = Callable[[str], ModelInput]
"""From a text to the model's input; a patch needs it for its source text."""

_AxesFn = Callable[[ModulePath], tuple[Tokens, Tokens]]
"""From an attention to the tokens of its queries and keys, to find words by name."""


def make_intervention(
    specs: Sequence[InterventionSpec], model: Model, axes: _AxesFn | None = None, tokenize: _TokenizeFn | None = None
) -> Intervention | None:
    """Return one intervention for all specs, or None without any."""
    if not specs:
        return None
    for spec in specs:
        _check_spec(spec, model)
    return _CombinedIntervention(specs, model, axes, tokenize)


class _CombinedIntervention(Intervention):
    """Combined intervention; an ablated head's output is zeroed before the output projection."""

    def __init__(
        self, specs: Sequence[InterventionSpec], model: Model, axes: _AxesFn | None, tokenize: _TokenizeFn | None
    ) -> None:
        self.stack, self.heads = default_stack(model), {info.path: info.num_heads for info in attentions_of(model)}
        self.ablations = [spec for spec in specs if isinstance(spec, AblateHead)]
        self.uniform = [spec for spec in specs if isinstance(spec, UniformAttention)]
        self.cut_edges = [edge for spec in specs if isinstance(spec, Cut) for edge in self._resolve_edges(spec, axes)]
        self.patches = [
            _ActivationPatch(spec, model, self.stack, axes, tokenize) for spec in specs if isinstance(spec, Patch)
        ]

    def mask_edges(
        self, path: ModulePath, num_heads: int, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        edges = [(edge_heads, query, key) for edge_path, edge_heads, query, key in self.cut_edges if edge_path == path]
        if not edges:
            return None
        hidden = torch.zeros(
            num_heads, len(query_positions), len(key_positions), dtype=torch.bool, device=key_positions.device
        )
        for edge_heads, query, key in edges:
            hidden[list(edge_heads)] |= torch.isin(query_positions, query.to(query_positions))[:, None] & torch.isin(
                key_positions, key.to(key_positions)
            )
        return hidden

    def uniform_heads(self, path: ModulePath) -> tuple[int, ...]:
        specs = [spec for spec in self.uniform if self._matches(spec, path) and spec.part == path.part]
        heads = {head for spec in specs for head in (range(self.heads[path]) if spec.head is None else (spec.head,))}
        return tuple(sorted(heads))

    def patch_context(self, path: ModulePath, context: Tensor, query_positions: Tensor) -> Tensor:
        matching = [e for e in self.ablations if self._matches(e, path) and e.part in (None, path.part)]
        if heads := [ablation.head for ablation in matching if ablation.head is not None]:
            context = context.clone()
            context[:, heads] = 0
        for patch in self.patches:
            context = patch.patch_context(path, context, query_positions)
        return context

    def patch_residual(self, path: ModulePath, step: str, array: Tensor, query_positions: Tensor) -> Tensor:
        ablated = any(e.head is None and self._matches(e, path) and e.part in (None, path.part) for e in self.ablations)
        if ablated and step == "output":
            array = torch.zeros_like(array)
        for patch in self.patches:
            array = patch.patch_residual(path, step, array, query_positions)
        return array

    def _matches(self, spec: AblateHead | UniformAttention, path: ModulePath) -> bool:
        # a head number means self-attention unless cross-attention is named
        part_matches = path.part != "cross_attention" or spec.part == "cross_attention" or spec.head is None
        return (spec.stack or self.stack, spec.layer) == (path.stack, path.layer) and part_matches

    def _resolve_edges(
        self, spec: Cut, axes: _AxesFn | None
    ) -> list[tuple[ModulePath, tuple[int, ...], Tensor, Tensor]]:
        edges = []
        for path, heads in self.heads.items():
            if (spec.stack or self.stack, spec.part) != (path.stack, path.part) or spec.layer not in (None, path.layer):
                continue
            query, key = _positions(spec.query, axes, path, 0), _positions(spec.key, axes, path, 1)
            edges.append((path, tuple(range(heads)) if spec.head is None else (spec.head,), query, key))
        return edges


class _ActivationPatch:
    """Activation patching: replaces activations by those captured from another text."""

    def __init__(
        self, spec: Patch, model: Model, stack: str, axes: _AxesFn | None, tokenize: _TokenizeFn | None
    ) -> None:
        part = "stream" if spec.step == "residual" else spec.part
        self.spec, self.path = spec, ModulePath(spec.stack or stack, spec.layer, part)
        if tokenize is None:
            raise InvalidInput("A patch needs a tokenizer for its source text.")
        activations: list[Activation] = []
        tap = Tap(activations.append, steps=[spec.step], layers=[spec.layer], parts=[part], stacks=[self.path.stack])
        forward_hidden(model, tokenize(spec.text), tap)
        if not activations:
            raise InvalidInput(f"Layer {spec.layer} has no {spec.step} of {part} to patch from.")
        self.source_activation = activations[0].array.clone()
        self.positions = None
        if spec.rows is not None:
            self.positions = torch.cat([_positions(word, axes, self.path, 0) for word in spec.rows])

    def patch_context(self, path: ModulePath, context: Tensor, query_positions: Tensor) -> Tensor:
        if path != self.path or self.spec.step != "context":
            return context
        heads = [self.spec.head] if self.spec.head is not None else list(range(context.shape[1]))
        rows, source_rows = self._matching_rows(query_positions, self.source_activation.shape[2])
        patched = context.clone()
        for head in heads:
            patched[:, head, rows] = self.source_activation[:, head, source_rows].to(context.dtype)
        return patched

    def patch_residual(self, path: ModulePath, step: str, array: Tensor, query_positions: Tensor) -> Tensor:
        if path != self.path or step != self.spec.step:
            return array
        rows, source_rows = self._matching_rows(query_positions, self.source_activation.shape[1])
        patched = array.clone()
        patched[:, rows] = self.source_activation[:, source_rows].to(array.dtype)
        return patched

    def _matching_rows(self, query_positions: Tensor, source_length: int) -> tuple[Tensor, Tensor]:
        """Return the patched rows of this pass and the matching rows of the source text."""
        patched = query_positions
        if self.positions is not None:
            patched = patched[torch.isin(patched, self.positions.to(patched))]
        if len(patched) and int(patched.max()) >= source_length:
            raise InvalidInput(
                f"The source text has only {source_length} tokens: nothing to patch at position {int(patched.max())}.",
                hint="Give a text with as many tokens, or name the rows.",
            )
        return torch.nonzero(torch.isin(query_positions, patched))[:, 0], patched


def _positions(word: str | int, axes: _AxesFn | None, path: ModulePath, side: int) -> Tensor:
    if axes is None:
        if isinstance(word, str):
            raise InvalidInput(f'"{word}": words cannot be used here, only positions.', hint="Give a number.")
        return torch.tensor([word])
    return torch.tensor(find_word(axes(path)[side], word))


def _check_spec(spec: InterventionSpec, model: Model) -> None:
    stack, attentions = spec.stack or default_stack(model), attentions_of(model)
    layers = dims_of(model).num_layers
    if stack not in layers and not any(info.path.stack == stack for info in attentions):
        raise InvalidInput(f'There is no stack "{stack}".', hint=f"Choose {' or '.join(layers)}.")
    count = max(layers.get(stack, 0), *(info.path.layer + 1 for info in attentions if info.path.stack == stack), 1)
    if spec.layer is not None and not 0 <= spec.layer < count:
        raise InvalidInput(f"There is no layer {spec.layer}.", hint=f"Choose from 0 to {count - 1}.")
    if not attentions and not isinstance(spec, AblateHead):
        raise InvalidInput("This model has no attention to intervene on.")
    known = ("attention", "cross_attention", "feedforward")
    if spec.part is not None and spec.part not in known:
        raise InvalidInput(f'There is no part "{spec.part}".', hint=f"Choose {', '.join(known)}.")
    if isinstance(spec, Patch) and spec.step not in ("context", "output", "residual"):
        raise InvalidInput(f'"{spec.step}" cannot be patched.', hint="Choose context, output or residual.")
    heads = max((info.num_heads for info in attentions if info.path.stack == stack), default=0)
    if spec.head is not None and not 0 <= spec.head < heads:
        hint = f"Choose from 0 to {heads - 1}." if heads else "This model has no attention."
        raise InvalidInput(f"There is no head {spec.head}.", hint=hint)


class IntervenedModel:
    """Model wrapper that applies an intervention in every pass, so that loss, BLEU and generation can measure it."""

    def __init__(self, model: Model, intervention: InterventionLike) -> None:
        self._model, self._intervention = model, intervention

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, ids: Tensor, **more: Any) -> Tensor:
        """Return the logits of each position, under the intervention."""
        logits: Tensor = self._model(ids, **{**more, "intervention": self._intervention})
        return logits

    def hidden(self, ids: Tensor, **more: Any) -> Tensor:
        """Return the final hidden states, under the intervention."""
        return self._model.hidden(ids, **{**more, "intervention": self._intervention})

    def new_state(self, batch: int = 1, **more: Any) -> DecodeState:
        """Return a new decode state; the source is encoded under the intervention too."""
        state: DecodeState = self._model.new_state(batch, **more)
        if isinstance(self._model, EncoderDecoder) and more.get("source") is not None:
            mask = more.get("source_padding_mask")
            source = self._model.encode(more["source"], padding_mask=mask, intervention=self._intervention)
            state.encoder_output = source  # type: ignore[attr-defined]
        return state

    def forward_varlen(
        self, sequences: Sequence[Sequence[int]], states: Sequence[DecodeState], **more: Any
    ) -> list[Tensor]:
        """Run new tokens of several sequences, under the intervention."""
        return self._model.forward_varlen(sequences, states, **{**more, "intervention": self._intervention})
