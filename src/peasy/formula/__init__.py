"""Attention formula, masks, positions and norms as named steps; no weights, no torch.

May import: errors, display, parameters. Imported by: every package that shows or computes attention.
In: arrays of any array-API library. Out: named steps with captions.
"""

from peasy.formula import attention, heads, norms, positions
from peasy.formula.attention import CONTRIBUTIONS, AttentionSteps
from peasy.formula.scoring import Additive
from peasy.formula.step import FormulaStep, Steps
from peasy.parameters import with_checked_arguments as _checked

# Their modules have the same functions without the check of arguments, for use within peasy.
attend, attend_with_weights = _checked(attention.attend), _checked(heads.attend_with_weights)
unnormalised_weights, weighted_sum = _checked(attention.unnormalised_weights), _checked(attention.weighted_sum)
layer_norm, rms_norm = _checked(norms.layer_norm), _checked(norms.rms_norm)
rotary, rotary_angles = _checked(positions.rotary), _checked(positions.rotary_angles)
alibi, sinusoidal = _checked(positions.alibi), _checked(positions.sinusoidal)

__all__ = [
    "CONTRIBUTIONS", "Additive", "AttentionSteps", "FormulaStep", "Steps", "alibi", "attend", "attend_with_weights",
    "layer_norm", "rms_norm", "rotary", "rotary_angles", "sinusoidal", "unnormalised_weights", "weighted_sum",
]  # fmt: skip
