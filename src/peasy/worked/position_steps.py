"""Steps of positions: angles, sinusoidal encoding, and rotation of pairs (RoPE) with its gradient."""

import numpy as np

from peasy.formula.positions import LAYOUTS, rotary, sinusoidal
from peasy.formula.step import Array, Namespace
from peasy.worked.graph import Application, Route, Step
from peasy.worked.label import format_number, format_operand
from peasy.worked.operations import Gradients, Inputs


class PositionAngles(Step):
    """Angle of each pair of columns at each position: p · base^(-2i/d), for the rows and columns of the input.

    A second input gives the frequencies, in place of base^(-2i/d).
    """

    base: float = 10000.0
    output_axes = ("0r", "pair")
    is_fixed = True
    label = "angle"
    sentence = "The angle of each pair of columns at each position: position times frequency."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        if len(inputs) > 1:
            return xp.asarray([[float(row)] for row in range(inputs[0].shape[0])], dtype=xp.float64) * inputs[1]
        return xp.asarray(sinusoidal(*inputs[0].shape, base=self.base).angle.tolist(), dtype=xp.float64)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        if len(inputs) > 1:
            return f"{row}·{format_operand(float(inputs[1][0, column]), max(decimals, 8))}"
        return f"{row}·{self.base:g}^(-2·{column} / {inputs[0].shape[1]})"

    def formula(self, *symbols: str) -> str:
        return rf"p \cdot {symbols[1]}" if len(symbols) > 1 else rf"p \cdot {self.base:g}^{{-2i/d}}"


class SineCosine(Step):
    """Sinusoidal position encoding: sine and cosine of each angle in turn; inputs are angles and embeddings."""

    output_axes = ("1r", "1c")
    is_fixed = True
    label = "encoding"
    sentence = "The sine and the cosine of each angle in turn: nearby positions get similar vectors."
    tex = r"\left[\sin $0,\; \cos $0\right]"

    def forward(self, xp: Namespace, angles: Array, x: Array) -> Array:
        parts = []
        for column in range(x.shape[1]):
            angle = angles[:, column // 2 : column // 2 + 1]
            parts.append(xp.cos(angle) if column % 2 else xp.sin(angle))
        return xp.concat(parts, axis=-1)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        return f"{'cos' if column % 2 else 'sin'}({format_number(inputs[0][row, column // 2], max(decimals, 6))})"


class Rotate(Step):
    """Rotation of each pair of columns by its angle (RoPE), or back with `inverse`; inputs are x and angles.

    Columns beyond the pairs that have an angle are kept. `factor` multiplies sine and cosine (YaRN).
    """

    layout: str = "halves"
    inverse: bool = False
    factor: float = 1.0
    label = "rotated"
    sentence = "Each pair of columns is turned by its angle, so that scores depend on the distance of two tokens only."

    def forward(self, xp: Namespace, x: Array, angles: Array) -> Array:
        """Return x cos + x̃ sin, where x̃ is x turned by 90 degrees."""
        width = 2 * angles.shape[1]
        x, rest = x[:, :width], x[:, width:]
        turn = xp.asarray(self._quarter_turn(width).tolist(), dtype=xp.float64)
        cosine, sine = (self._spread(xp, function(angles)) * self.factor for function in (xp.cos, xp.sin))
        rotated = x * cosine + (x @ turn) * sine
        return xp.concat([rotated, rest], axis=-1) if rest.shape[1] else rotated

    def _quarter_turn(self, width: int) -> np.ndarray:
        turn: np.ndarray = rotary(np.eye(width), positions=np.zeros(width), layout=self.layout).rotated_90
        return -turn if self.inverse else turn

    def _spread(self, xp: Namespace, pairs: Array) -> Array:
        """Return the number of each pair in both of its columns."""
        if not LAYOUTS[self.layout]:
            return xp.concat([pairs, pairs], axis=-1)
        return xp.concat([pairs[:, i // 2 : i // 2 + 1] for i in range(2 * pairs.shape[1])], axis=-1)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        width = 2 * inputs[1].shape[1]
        if column >= width:
            return ""
        pair = column // 2 if LAYOUTS[self.layout] else column % (width // 2)
        angle = format_number(inputs[1][row, pair], max(decimals, 6))
        own, other = inputs[0][row, column], (inputs[0][row, :width] @ self._quarter_turn(width))[column]
        numbers = [format_operand(float(number), decimals) for number in (own, other)]
        turned = f"{numbers[0]}·cos({angle}) + {numbers[1]}·sin({angle})"
        return turned if self.factor == 1 else f"{format_operand(self.factor, 8)}·({turned})"

    def formula(self, *symbols: str) -> str:
        x, angle = symbols
        sign = "-" if self.inverse else "+"
        turned = rf"{x} \odot \cos {angle} {sign} \tilde{{{x}}} \odot \sin {angle}"
        return turned if self.factor == 1 else rf"{self.factor:.6g} \left({turned}\right)"

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient turned back."""
        return Route(Rotate(self.layout, not self.inverse, self.factor), (at.gradient, at.inputs[1])), None
