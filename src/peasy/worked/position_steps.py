"""Steps of positions: angles, sinusoidal encoding, and rotation of pairs (RoPE) with its gradient."""

from dataclasses import dataclass

import numpy as np

from peasy.formula.positions import LAYOUTS, rotary, sinusoidal
from peasy.formula.step import Array, Namespace
from peasy.worked.graph import Application, Route, Step
from peasy.worked.label import format_number, format_operand
from peasy.worked.operations import Gradients, Inputs


@dataclass(frozen=True)
class PositionAngles(Step):
    """Angle of each pair of columns at each position: p · base^(-2i/d), for the rows and columns of the input."""

    base: float = 10000.0
    output_axes = ("0r", "pair")
    label = "angle"
    sentence = "The angle of each pair of columns at each position: position times frequency."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the angles."""
        return xp.asarray(sinusoidal(*inputs[0].shape, base=self.base).angle.tolist(), dtype=xp.float64)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        """Return position times frequency."""
        return f"{row}·{self.base:g}^(-2·{column} / {inputs[0].shape[1]})"

    def formula(self, *symbols: str) -> str:
        """Return p b^(-2i/d)."""
        return rf"p \cdot {self.base:g}^{{-2i/d}}"

    def gradients(self, at: Application) -> Gradients:
        """Return nothing: only the shape counts."""
        return (None,)


@dataclass(frozen=True)
class SineCosine(Step):
    """Sinusoidal position encoding: sine and cosine of each angle in turn; inputs are angles and embeddings."""

    output_axes = ("1r", "1c")
    label = "encoding"
    sentence = "The sine and the cosine of each angle in turn: nearby positions get similar vectors."
    tex = r"\left[\sin $0,\; \cos $0\right]"

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the encoding."""
        parts = []
        for column in range(inputs[1].shape[1]):
            angle = inputs[0][:, column // 2 : column // 2 + 1]
            parts.append(xp.cos(angle) if column % 2 else xp.sin(angle))
        return xp.concat(parts, axis=-1)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        """Return the sine or cosine."""
        return f"{'cos' if column % 2 else 'sin'}({format_number(inputs[0][row, column // 2], max(decimals, 6))})"

    def gradients(self, at: Application) -> Gradients:
        """Return nothing: positions are fixed."""
        return None, None


@dataclass(frozen=True)
class Rotate(Step):
    """Rotation of each pair of columns by its angle (RoPE), or back with `inverse`; inputs are x and angles."""

    layout: str = "halves"
    inverse: bool = False
    label = "rotated"
    sentence = "Each pair of columns is turned by its angle, so that scores depend on the distance of two tokens only."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return x cos + x̃ sin, where x̃ is x turned by 90 degrees."""
        turned = xp.asarray(self._quarter_turn(inputs[0].shape[1]).tolist(), dtype=xp.float64)
        return inputs[0] * self._spread(xp, xp.cos(inputs[1])) + (inputs[0] @ turned) * self._spread(
            xp, xp.sin(inputs[1])
        )

    def _quarter_turn(self, width: int) -> np.ndarray:
        turn: np.ndarray = rotary(np.eye(width), positions=np.zeros(width), layout=self.layout).rotated_90
        return -turn if self.inverse else turn

    def _spread(self, xp: Namespace, pairs: Array) -> Array:
        """Return the number of each pair in both of its columns."""
        if not LAYOUTS[self.layout]:
            return xp.concat([pairs, pairs], axis=-1)
        return xp.concat([pairs[:, i // 2 : i // 2 + 1] for i in range(2 * pairs.shape[1])], axis=-1)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        """Return the two products."""
        width = inputs[0].shape[1]
        pair = column // 2 if LAYOUTS[self.layout] else column % (width // 2)
        angle = format_number(inputs[1][row, pair], max(decimals, 6))
        own, other = inputs[0][row, column], (inputs[0] @ self._quarter_turn(width))[row, column]
        numbers = [format_operand(float(number), decimals) for number in (own, other)]
        return f"{numbers[0]}·cos({angle}) + {numbers[1]}·sin({angle})"

    def formula(self, *symbols: str) -> str:
        """Return x cos + x̃ sin."""
        x, angle = symbols
        sign = "-" if self.inverse else "+"
        return rf"{x} \odot \cos {angle} {sign} \tilde{{{x}}} \odot \sin {angle}"

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient turned back."""
        return Route(Rotate(self.layout, not self.inverse), (at.gradient, at.inputs[1])), None
