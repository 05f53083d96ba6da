"""Number formatting."""

import math

from hypothesis import given
from hypothesis import strategies as st

from peasy.render.number import SCIENTIFIC_FROM, decimals_for, format_cell, format_number


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 8))
def test_a_written_number_is_the_nearest_and_never_minus_zero(value, decimals):
    written = format_number(value, decimals)
    assert not (written.startswith("-") and float(written) == 0)
    if abs(value) < SCIENTIFIC_FROM:
        assert abs(float(written) - value) <= 0.5 * 10**-decimals * (1 + 1e-9) + abs(value) * 1e-15
        assert len(written.partition(".")[2]) == decimals
    else:
        assert len(written) < 30


def test_non_finite_numbers_are_words():
    assert [format_number(float(text)) for text in ("nan", "inf", "-inf")] == ["not a number", "∞", "−∞"]


def test_whole_numbers_look_whole_and_a_matrix_has_one_number_of_decimals():
    assert decimals_for([1, 2.0, -3], 4) == 0
    assert decimals_for([0.1, 2.13], 4) == 2
    assert decimals_for([1, 1 / 3], 4) == 4
    assert decimals_for([0.1 + 0.2], 4) == 1, "floating-point error is not a decimal"
    assert decimals_for([math.inf, None, "x"], 4) == 0


def test_text_and_empty_cells_are_unchanged():
    assert [format_cell(cell, 2) for cell in ("q_3*k_2", None, 0.125)] == ["q_3*k_2", "", "0.12"]
