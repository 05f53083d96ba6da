"""Palettes: contrast and scales."""

import math
from itertools import pairwise

import numpy as np
import pytest

from peasy.render import palette


@pytest.mark.parametrize("name", ["sequential", "diverging"])
def test_every_shade_has_enough_contrast(name):
    for level in range(palette.LEVELS + 1):
        shade = palette.Shade(name, level)
        light, ink = palette._luminance(shade.background), palette._luminance(shade.text_colour)
        contrast = (max(light, ink) + 0.05) / (min(light, ink) + 0.05)
        assert contrast >= 4.5, f"level {level} of {name}: {contrast:.2f}"


def test_larger_numbers_are_lighter_and_readable_in_greyscale():
    shades = [palette.Shade("sequential", level) for level in range(palette.LEVELS + 1)]
    assert all(palette._luminance(a.background) < palette._luminance(b.background) for a, b in pairwise(shades))


def test_zero_is_in_the_middle_of_a_diverging_scale():
    scale = palette.scale_for(((-1.0, 0.0, 3.0),))
    assert [scale.shade(value).level for value in (-3.0, 0.0, 3.0)] == [0, palette.LEVELS // 2, palette.LEVELS]
    assert palette.scale_for(((0.2, 0.6),)).shade(0.0).level == 0


def test_non_numbers_have_no_shade():
    scale = palette.scale_for(((1.0, math.inf, math.nan, None, "x"),))
    assert scale.high == 1.0
    assert [scale.shade(cell) for cell in (math.inf, math.nan, None, "x")] == [None] * 4
    assert palette.scale_for(()).shade(1.0) is not None


def test_bars_grow_with_the_level():
    bars = [palette.Shade("sequential", level).bar for level in range(palette.LEVELS + 1)]
    assert bars == sorted(bars, key=palette.BARS.index)
    assert bars[-1] == "█"


def test_a_long_causal_map_is_not_dark():
    """Its first row is 1 and its last rows are near 1/300: on a plain scale nearly every cell has the first shade."""
    weights = np.where(np.tri(300, dtype=bool), 1 / np.arange(1, 301)[:, None], np.nan)
    scale = palette.scale_of_map(weights)
    assert scale.clipped
    assert scale.lifted
    assert scale.high < 0.1
    visible = weights[np.isfinite(weights)]
    assert np.median(np.sqrt(visible / scale.high)) > 0.2
    plain = palette.scale_between(0.0, 1.0)
    assert np.median(visible / plain.high) < 0.01  # inverse
    short = palette.scale_of_map(weights[:10, :10])
    assert (short.high, short.clipped, short.lifted) == (1.0, False, False)
