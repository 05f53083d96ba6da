"""MATHEMATICS: the attention formula and what stands around it, as named steps; no weights, no torch.

May import: errors, display. Imported by: every room that shows or uses a number of attention.
In: arrays of any array-API library. Out: steps with their captions.
"""

from peasy.formula.attention import AttentionSteps, attend
from peasy.formula.heads import attend_with_weights
from peasy.formula.scoring import Additive
from peasy.formula.step import Step, Steps

__all__ = ["Additive", "AttentionSteps", "Step", "Steps", "attend", "attend_with_weights"]
