"""Interventions: interface of ablation, activation patching and steering during a forward pass."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from peasy.nn.capture import AttentionInputs
from peasy.nn.mask import AttentionMask, MaskSpec
from peasy.nn.module_path import Address, ModulePath

EDITABLE_STEPS = ("query", "key", "value", "weights", "context", "activation", "output", "residual")
"""Steps that an intervention can change, in the order of the forward pass of a block."""

EditFunction = Callable[[Address, Tensor], Tensor | None]
"""Function of an address and its activation; it returns the changed activation, or None to leave it as it is."""


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

    def edits(self, address: Address) -> bool:
        """Return True if this activation may be changed; only then `edit` is called."""
        return False

    def edit(self, address: Address, array: Tensor, positions: Tensor) -> Tensor:
        """Return the changed activation; the same object if nothing changed.

        `[batch, head, time, width]` for steps of attention (weights: `[batch, head, query, key]`), else
        `[batch, time, width]`. `positions` are those of the tokens of its time axis, `[batch or 1, time]`.
        """
        return array


InterventionLike = Intervention | EditFunction
"""An intervention, or simply a function of an address and an activation, called with every editable activation."""


class _FunctionIntervention(Intervention):
    """Intervention by a function."""

    def __init__(self, function: EditFunction) -> None:
        self.function = function

    def edits(self, address: Address) -> bool:
        return True

    def edit(self, address: Address, array: Tensor, positions: Tensor) -> Tensor:
        changed = self.function(address, array)
        return array if changed is None else changed


def to_intervention(intervention: InterventionLike | None) -> Intervention | None:
    """Return an intervention; a function becomes one."""
    if intervention is None or isinstance(intervention, Intervention):
        return intervention
    return _FunctionIntervention(intervention)


def edit_activation(
    intervention: Intervention | None, path: ModulePath, step: str, array: Tensor, positions: Tensor
) -> Tensor:
    """Apply an intervention to one activation."""
    address = Address(*path, step)
    if intervention is None or not intervention.edits(address):
        return array
    return intervention.edit(address, array, positions)


def edit_attention(
    intervention: Intervention, path: ModulePath, inputs: AttentionInputs, mask_spec: MaskSpec
) -> tuple[AttentionInputs, Tensor | None]:
    """Apply an intervention inside attention: return the inputs, and the weights if it changed them.

    Cut edges and uniform heads change the inputs. Weights are computed by the formula if they may be changed.
    """
    heads, n_key = inputs.query.shape[1], inputs.key.shape[2]
    keys = torch.arange(n_key, device=inputs.key.device) + max(mask_spec.key_positions.shape[1] - n_key, 0)
    cut = intervention.mask_edges(path, heads, mask_spec.query_positions[0], keys)
    uniform = intervention.uniform_heads(path)
    if cut is not None:
        mask = ~cut[None]
        if inputs.attention_mask.causal:
            shape = inputs.query.shape[2], inputs.key.shape[2]
            mask = mask & torch.ones(shape, dtype=torch.bool, device=mask.device).tril()
        elif inputs.attention_mask.mask is not None:
            mask = mask & inputs.attention_mask.mask
        inputs = replace(inputs, attention_mask=AttentionMask(mask, inputs.attention_mask.bias))
    if uniform:
        # Set the scores of these heads to zero, so that all unmasked keys get the same weight.
        query, bias = inputs.query.clone(), inputs.attention_mask.bias
        query[:, list(uniform)] = 0
        if bias is not None:
            bias = bias.clone()
            bias[:, list(uniform)] = 0
        sinks = None if inputs.sinks is None else inputs.sinks.clone()
        if sinks is not None:
            sinks[list(uniform)] = -torch.inf
        attention_mask = replace(inputs.attention_mask, bias=bias, key_range=None, _additive={})
        inputs = replace(inputs, query=query, attention_mask=attention_mask, sinks=sinks)
    if not intervention.edits(Address(*path, "weights")):
        return inputs, None
    weights = inputs.compute_steps().weights
    changed = edit_activation(intervention, path, "weights", weights, mask_spec.query_positions)
    return inputs, None if changed is weights else changed


def edit_single_query(
    intervention: Intervention | None,
    path: ModulePath,
    position: int,
    padding_mask: Tensor | None,
    encoder_output: Tensor,
) -> tuple[Tensor | None, bool]:
    """Apply an intervention to one query of a recurrent decoder: return key mask `[batch, key]` and uniform flag."""
    if intervention is None:
        return padding_mask, False
    keys = torch.arange(encoder_output.shape[1], device=encoder_output.device)
    cut = intervention.mask_edges(path, 1, torch.tensor([position], device=encoder_output.device), keys)
    if cut is not None:
        if padding_mask is None:
            padding_mask = encoder_output.new_ones(encoder_output.shape[:2], dtype=torch.bool)
        padding_mask = padding_mask & ~cut[:, 0]
    return padding_mask, 0 in intervention.uniform_heads(path)
