"""MATHEMATICS: the attention formula and what stands around it, as named steps; no weights, no torch.

May import: errors, display. Imported by: every room that shows or uses a number of attention.
In: arrays of any array-API library. Out: steps with their captions.
"""

from peasy.formula.attention import CONTRIBUTIONS, AttentionSteps, attend, weigh
from peasy.formula.heads import attend_with_weights
from peasy.formula.norms import layer_norm, rms_norm
from peasy.formula.positions import alibi, rotary, rotary_angles, sinusoidal
from peasy.formula.scoring import Additive
from peasy.formula.step import Step, Steps

__all__ = [
    "CONTRIBUTIONS",
    "Additive",
    "AttentionSteps",
    "Step",
    "Steps",
    "alibi",
    "attend",
    "attend_with_weights",
    "layer_norm",
    "rms_norm",
    "rotary",
    "rotary_angles",
    "sinusoidal",
    "weigh",
]
