"""Attention formula, masks, positions and norms as named steps; no weights, no torch.

May import: errors, display. Imported by: every package that shows or computes attention.
In: arrays of any array-API library. Out: named steps with captions.
"""

from peasy.formula.attention import CONTRIBUTIONS, AttentionSteps, attend, unnormalised_weights, weighted_sum
from peasy.formula.heads import attend_with_weights
from peasy.formula.norms import layer_norm, rms_norm
from peasy.formula.positions import alibi, rotary, rotary_angles, sinusoidal
from peasy.formula.scoring import Additive
from peasy.formula.step import FormulaStep, Steps

__all__ = [
    "CONTRIBUTIONS", "Additive", "AttentionSteps", "FormulaStep", "Steps", "alibi", "attend", "attend_with_weights",
    "layer_norm", "rms_norm", "rotary", "rotary_angles", "sinusoidal", "unnormalised_weights", "weighted_sum",
]  # fmt: skip
