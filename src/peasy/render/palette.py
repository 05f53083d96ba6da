"""Colour-blind safe palettes: cividis (sequential), blue to orange (diverging), Okabe-Ito (categorical)."""

import math
from collections.abc import Sequence

import numpy as np

from peasy.parameters import Record
from peasy.render.number import is_number
from peasy.views.document import Cell

CIVIDIS = (
    "#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
)  # fmt: skip
BLUE_ORANGE = ("#0b4a8f", "#3f78b5", "#86aed6", "#cbdcec", "#f4f2ee", "#f6d6b0", "#eaa65a", "#cd7419", "#8f4700")
OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000")

LEVELS = 24
"""Number of shades: few enough for a short style sheet, enough for a smooth heat map."""

BARS = " ▁▂▃▄▅▆▇█"
_MIN_CLIPPED_VALUES, _CLIPPED_SHARE = 2_000, 0.005


class Shade(Record):
    """Shade of one cell: palette name and `level` from 0 to LEVELS."""

    palette: str
    level: int

    @property
    def background(self) -> str:
        """Background colour."""
        return colour(self.palette, self.level / LEVELS)

    @property
    def text_colour(self) -> str:
        """Text colour: black or white, whichever has more contrast (WCAG)."""
        light = _luminance(self.background)
        return "#000000" if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else "#ffffff"

    @property
    def bar(self) -> str:
        """Block character of the level's height, for output without colours."""
        return BARS[round(self.level / LEVELS * (len(BARS) - 1))]


class ColourScale(Record):
    """Colour scale of a matrix from `low` to `high`; `clipped` if larger numbers share the last colour.

    `lifted`: small numbers get more of the colours (by the square root).
    """

    low: float
    high: float
    palette: str
    clipped: bool = False
    lifted: bool = False

    def shade(self, cell: Cell) -> Shade | None:
        """Return the shade of a cell; None if it is not a finite number."""
        if not is_number(cell) or not math.isfinite(cell):
            return None
        span = self.high - self.low
        share = 0.5 if span <= 0 else (float(cell) - self.low) / span
        return Shade(self.palette, round(min(max(share, 0.0), 1.0) * LEVELS))


def scale_for(values: Sequence[Sequence[Cell]]) -> ColourScale:
    """Return the colour scale of the finite numbers among these cells."""
    numbers = [float(v) for row in values for v in row if is_number(v) and math.isfinite(v)]
    return scale_between(min(numbers, default=0.0), max(numbers, default=0.0))


def scale_between(low: float, high: float) -> ColourScale:
    """Return the colour scale of numbers in this range: from 0 up, or symmetric around 0 if some are negative."""
    if low < 0:
        limit = max(-low, high)
        return ColourScale(-limit, limit, "diverging")
    return ColourScale(0.0, high, "sequential")


def scale_of_map(values: np.ndarray) -> ColourScale:
    """Return the colour scale of a heat map; of many numbers the largest 0.5 % share the last colour.

    The first rows of a causal map are near 1 whatever the model does: on a plain scale a long map is dark.
    """
    finite = values[np.isfinite(values)]
    scale = scale_between(*((float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)))
    if finite.size <= _MIN_CLIPPED_VALUES or scale.low < 0:
        return scale
    high = float(np.quantile(finite, 1 - _CLIPPED_SHARE))
    return ColourScale(0.0, high or scale.high, "sequential", clipped=0 < high < scale.high, lifted=True)


def colour(palette: str, fraction: float) -> str:
    """Return the colour at a fraction between 0 and 1 of a palette."""
    stops = CIVIDIS if palette == "sequential" else BLUE_ORANGE
    position = fraction * (len(stops) - 1)
    left = min(int(position), len(stops) - 2)
    ends = zip(_channels(stops[left]), _channels(stops[left + 1]), strict=True)
    return "#" + "".join(f"{round(low + (high - low) * (position - left)):02x}" for low, high in ends)


def _luminance(background: str) -> float:
    channels = [part / 255 for part in _channels(background)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
