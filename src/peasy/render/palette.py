"""Colours that colour-blind eyes can tell apart: cividis by size, blue to orange around zero, Okabe-Ito by kind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peasy.render.number import is_number
from peasy.views.document import Cell

CIVIDIS = (
    "#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
)  # fmt: skip
BLUE_ORANGE = ("#0b4a8f", "#3f78b5", "#86aed6", "#cbdcec", "#f4f2ee", "#f6d6b0", "#eaa65a", "#cd7419", "#8f4700")
OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000")

LEVELS = 24
"""How many shades are told apart: few enough for a short style sheet, enough for a smooth picture."""

BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Shade:
    """The colours of one cell; `level` from 0 to LEVELS and the `palette` name say the same without colours."""

    palette: str
    level: int

    @property
    def background(self) -> str:
        """The colour behind the number."""
        return colour(self.palette, self.level / LEVELS)

    @property
    def ink(self) -> str:
        """Black or white, whichever reads better on the background."""
        return ink_on(self.background)

    @property
    def bar(self) -> str:
        """A block as high as the number is large, for where there are no colours."""
        return BARS[round(self.level / LEVELS * (len(BARS) - 1))]


@dataclass(frozen=True)
class Scale:
    """From the smallest to the largest number of a matrix; around zero when there are both signs."""

    low: float
    high: float
    palette: str

    def shade(self, cell: Cell) -> Shade | None:
        """The shade of a cell; None for what is no finite number."""
        if not is_number(cell) or not math.isfinite(cell):  # type: ignore[arg-type]
            return None
        span = self.high - self.low
        share = 0.5 if span <= 0 else (float(cell) - self.low) / span  # type: ignore[arg-type]
        return Shade(self.palette, round(min(max(share, 0.0), 1.0) * LEVELS))


def scale_for(values: Sequence[Sequence[Cell]]) -> Scale:
    """The scale on which these numbers are shaded: from 0 up, or equally far to both sides of 0."""
    numbers = [float(v) for row in values for v in row if is_number(v) and math.isfinite(v)]  # type: ignore[arg-type]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    if low < 0:
        reach = max(-low, high)
        return Scale(-reach, reach, "around-zero")
    return Scale(0.0, high, "by-size")


def colour(palette: str, share: float) -> str:
    """The colour at a share between 0 and 1 of a palette."""
    stops = CIVIDIS if palette == "by-size" else BLUE_ORANGE
    place = share * (len(stops) - 1)
    left = min(int(place), len(stops) - 2)
    return _mixed(stops[left], stops[left + 1], place - left)


def ink_on(background: str) -> str:
    """Black or white, by contrast as the accessibility guidelines count it."""
    light = _luminance(background)
    return "#000000" if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else "#ffffff"


def _luminance(background: str) -> float:
    channels = [part / 255 for part in _channels(background)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _mixed(first: str, second: str, share: float) -> str:
    return "#" + "".join(
        f"{round(a + (b - a) * share):02x}" for a, b in zip(_channels(first), _channels(second), strict=True)
    )
