"""Interventions: interface for ablation and activation patching during a forward pass."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from peasy.nn.capture import AttentionInputs
from peasy.nn.mask import AttentionMask, MaskSpec
from peasy.nn.module_path import ModulePath


class Intervention:
    """Base class of interventions; a subclass overrides what it changes, the rest is left as it is.

    A tap captures the changed values: weights after an edge was cut, the residual stream after it was patched.
    """

    def mask_edges(
        self, path: ModulePath, num_heads: int, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        """Return True where attention is cut, `[head, query, key]`; the positions are those of the whole sequence."""
        return None

    def uniform_heads(self, path: ModulePath) -> tuple[int, ...]:
        """Return the heads that attend uniformly to all unmasked keys."""
        return ()

    def patch_context(self, path: ModulePath, context: Tensor, query_positions: Tensor) -> Tensor:
        """Return the changed outputs of the heads, `[batch, head, query, d_value]`, before the output projection."""
        return context

    def patch_residual(self, path: ModulePath, step: str, array: Tensor, query_positions: Tensor) -> Tensor:
        """Return the changed residual stream ("residual") or sublayer output ("output"), `[batch, time, width]`."""
        return array


InterventionLike = Intervention | Callable[[ModulePath, Tensor], Tensor]
"""An intervention, or simply a function of a module path and the context of its heads."""


def intervene_attention(
    intervention: InterventionLike | None, path: ModulePath, inputs: AttentionInputs, mask_spec: MaskSpec
) -> AttentionInputs:
    """Apply an intervention to the inputs of attention: cut edges, make heads uniform."""
    if not isinstance(intervention, Intervention):
        return inputs
    heads, n_key = inputs.query.shape[1], inputs.key.shape[2]
    keys = torch.arange(n_key, device=inputs.key.device) + max(mask_spec.key_positions.shape[1] - n_key, 0)
    cut = intervention.mask_edges(path, heads, mask_spec.query_positions[0], keys)
    uniform = intervention.uniform_heads(path)
    if cut is not None:
        inputs = replace(inputs, attention_mask=_cut_edges(inputs, cut))
    return _make_uniform(inputs, uniform) if uniform else inputs


def intervene_single_query(
    intervention: InterventionLike | None,
    path: ModulePath,
    position: int,
    padding_mask: Tensor | None,
    encoder_output: Tensor,
) -> tuple[Tensor | None, bool]:
    """Apply an intervention to one query of a recurrent decoder: return key mask `[batch, key]` and uniform flag."""
    if not isinstance(intervention, Intervention):
        return padding_mask, False
    keys = torch.arange(encoder_output.shape[1], device=encoder_output.device)
    cut = intervention.mask_edges(path, 1, torch.tensor([position], device=encoder_output.device), keys)
    if cut is not None:
        if padding_mask is None:
            padding_mask = encoder_output.new_ones(encoder_output.shape[:2], dtype=torch.bool)
        padding_mask = padding_mask & ~cut[:, 0]
    return padding_mask, 0 in intervention.uniform_heads(path)


def intervene_context(
    intervention: InterventionLike | None, path: ModulePath, context: Tensor, query_positions: Tensor
) -> Tensor:
    """Apply an intervention to the outputs of the heads; `query_positions` is `[batch or 1, query]`."""
    if intervention is None:
        return context
    return (
        intervention.patch_context(path, context, query_positions[0])
        if isinstance(intervention, Intervention)
        else intervention(path, context)
    )


def intervene_residual(
    intervention: InterventionLike | None, path: ModulePath, step: str, array: Tensor, query_positions: Tensor
) -> Tensor:
    """Apply an intervention to the residual stream or a sublayer output."""
    return (
        intervention.patch_residual(path, step, array, query_positions[0])
        if isinstance(intervention, Intervention)
        else array
    )


def _cut_edges(inputs: AttentionInputs, cut: Tensor) -> AttentionMask:
    mask = ~cut[None]
    if inputs.attention_mask.causal:
        shape = inputs.query.shape[2], inputs.key.shape[2]
        mask = mask & torch.ones(shape, dtype=torch.bool, device=mask.device).tril()
    elif inputs.attention_mask.mask is not None:
        mask = mask & inputs.attention_mask.mask
    return AttentionMask(mask, inputs.attention_mask.bias)


def _make_uniform(inputs: AttentionInputs, heads: tuple[int, ...]) -> AttentionInputs:
    """Set the scores of these heads to zero, so that all unmasked keys get the same weight."""
    query, bias = inputs.query.clone(), inputs.attention_mask.bias
    query[:, list(heads)] = 0
    if bias is not None:
        bias = bias.clone()
        bias[:, list(heads)] = 0
    sinks = None if inputs.sinks is None else inputs.sinks.clone()
    if sinks is not None:
        sinks[list(heads)] = -torch.inf
    mask = replace(inputs.attention_mask, bias=bias, key_range=None, _additive={})
    return replace(inputs, query=query, attention_mask=mask, sinks=sinks)
