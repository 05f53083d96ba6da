"""Forward context shared by all layers: mask, KV cache, tap, intervention."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from peasy.nn.intervention import Intervention, InterventionLike, edit_activation, to_intervention
from peasy.nn.kv_cache import KVCache
from peasy.nn.mask import MaskSpec
from peasy.nn.module_path import ModulePath
from peasy.nn.position import CosSin
from peasy.nn.tap import Tap, record_step


@dataclass(eq=False)
class ForwardContext:
    """Context of one forward pass of one stack. `encoder_output` is for cross-attention; `rope` is by layer.

    With `sequences`, a packed batch without padding, `[1, all new tokens, width]`: attention, KV cache, tap and
    intervention use the context of each sequence.
    """

    mask_spec: MaskSpec
    kv_cache: KVCache | None = None
    tap: Tap | None = None
    intervention: InterventionLike | None = None
    encoder_output: Tensor | None = None
    cross_mask_spec: MaskSpec | None = None
    rope: Sequence[CosSin | None] = ()
    sequences: tuple["ForwardContext", ...] = ()

    def __post_init__(self) -> None:
        given = self.intervention
        self.active_intervention: Intervention | None = None if given is None else to_intervention(given)
        # Precomputed: read many times in every decoding step. `seq_lens` are the new tokens of each sequence.
        self.seq_lens = [sequence.mask_spec.query_positions.shape[1] for sequence in self.sequences]
        sequences = self.sequences or (self,)
        self.any_tap = any(sequence.tap is not None for sequence in sequences)
        self.any_intervention = any(sequence.intervention is not None for sequence in sequences)
        self.any_padding = any(sequence.mask_spec.padding_mask is not None for sequence in sequences)

    def record(self, path: ModulePath, step: str, array: Tensor) -> None:
        """Pass a step `[batch, time, width]` to the taps, if it is to be captured."""
        arrays = array.split(self.seq_lens, dim=1) if self.sequences else (array,)
        for sequence, values in zip(self.sequences or (self,), arrays, strict=True):
            record_step(sequence.tap, path, step, values)

    def edit(self, path: ModulePath, step: str, array: Tensor, time_axis: int = 1) -> Tensor:
        """Apply the interventions to an activation of all new tokens; `time_axis` is 2 for steps of attention."""
        if not self.any_intervention:
            return array
        if not self.sequences:
            return edit_activation(self.active_intervention, path, step, array, self.mask_spec.query_positions)
        pairs = zip(self.sequences, array.split(self.seq_lens, dim=time_axis), strict=True)
        changed = [
            edit_activation(one.active_intervention, path, step, values, one.mask_spec.query_positions)
            for one, values in pairs
        ]
        return torch.cat(changed, dim=time_axis)

    def edit_and_record(self, path: ModulePath, step: str, array: Tensor) -> Tensor:
        """Apply the interventions to a step `[batch, time, width]`, pass the result to the taps, and return it."""
        if self.any_intervention:
            array = self.edit(path, step, array)
        if self.any_tap:
            self.record(path, step, array)
        return array
