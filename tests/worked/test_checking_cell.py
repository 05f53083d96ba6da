"""Cell parser: accepted notations and the values they match."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peasy.errors import InvalidInput
from peasy.worked.checking.cell import CellMark, WrittenNumber, evaluate, read_cell


@pytest.mark.parametrize(
    ("written", "value", "decimals"),
    [
        ("0.71", 0.71, 2), (".71", 0.71, 2), ("0,71", 0.71, 2), ("2", 2, 0), ("2.", 2, 0), ("1.0", 1, 1),
        ("-0.35", -0.35, 2), ("−0.35", -0.35, 2), ("+3", 3, 0), ("40 %", 0.4, 2), ("40%", 0.4, 2),
        ("19.8\\%", 0.198, 3), ("1.2e-3", 0.0012, 4), ("**0.71**", 0.71, 2), ("$0.71$", 0.71, 2), ("≈ 0.71", 0.71, 2),
        ("1/5.06 = 0.1976", 0.1976, 4), ("0{,}71", 0.71, 2), ("\\textbf{0.71}", 0.71, 2), (3, 3, 0), (0.25, 0.25, 2),
        ("1/2", 0.5, None), ("½", 0.5, None), ("√2", math.sqrt(2), None), ("2√2", 2 * math.sqrt(2), None),
        ("sqrt(2)", math.sqrt(2), None), ("\\sqrt{2}", math.sqrt(2), None), ("1/√2", 1 / math.sqrt(2), None),
        ("\\frac{1}{\\sqrt{2}}", 1 / math.sqrt(2), None), ("\\tfrac{3}{4}", 0.75, None), ("e^0", 1, None),
        ("e^{0.71}", math.exp(0.71), None), ("exp(0.71)", math.exp(0.71), None), ("e^-1", math.exp(-1), None),
        ("e^0.71/5.06", math.exp(0.71) / 5.06, None), ("(1 + 2)/4", 0.75, None), ("2*3 + 1", 7, None),
    ],
)  # fmt: skip
def test_numbers_are_read_as_people_write_them(written, value, decimals):
    number = read_cell(written)
    assert isinstance(number, WrittenNumber)
    assert number.value == pytest.approx(value, rel=1e-12)
    assert number.decimals == decimals
    assert number.is_rounding_of(value)


def test_a_plain_number_matches_all_values_that_round_to_it():
    number = read_cell("0.71")
    assert number.is_rounding_of(0.7071)
    assert number.is_rounding_of(0.705)
    assert number.is_rounding_of(0.715)
    assert not number.is_rounding_of(0.7049)
    assert not number.is_rounding_of(0.7151)


def test_expressions_of_whole_numbers_are_exact_and_decimals_are_rounded():
    assert not read_cell("1/3").is_rounding_of(0.3333)
    assert read_cell("1/5.06").is_rounding_of(1 / 5.0562)
    assert not read_cell("1/5.06").is_rounding_of(1 / 5.07)


@pytest.mark.parametrize(("written", "exact"), [("0.138", 0.13855), ("0.23", 0.2379), ("-0.23", -0.2379), ("1", 1.9)])
def test_truncation_is_not_rounding(written, exact):
    number = read_cell(written)
    assert number.may_be_cut(exact, exact)
    assert not number.is_rounding_of(exact)


@pytest.mark.parametrize(("written", "exact"), [("0.24", 0.2379), ("0.23", 0.2401), ("0.23", -0.2379), ("0.23", 0.23)])
def test_not_a_truncation(written, exact):
    assert not read_cell(written).may_be_cut(exact, exact)


@pytest.mark.parametrize("written", ["", "  ", "_", "____", "...", "…", "?", "-", "—", "\\ldots", "$ $", ".."])
def test_missing_answers_are_blank(written):
    assert read_cell(written) is CellMark.BLANK


@pytest.mark.parametrize("written", ["x", "X", "×", "-inf", "-∞", "−∞", "$-\\infty$", "\\times"])
def test_mask_signs(written):
    assert read_cell(written) is CellMark.MASKED


@pytest.mark.parametrize(
    ("written", "terms"),
    [
        ("q_3*k_2", ["q_3*k_2"]), ("0.4*v_0 + 0.6*v_1", ["0.4*v_0", "0.6*v_1"]), ("q_{3} \\cdot k_{2}", ["q_3*k_2"]),
        ("0.57 Orange + 0.43 Apple", ["0.57*Orange", "0.43*Apple"]), ("q₃·k₂", ["q_3*k_2"]), ("Q3*K2", ["q_3*k_2"]),
        ("0.5 <eos>", ["0.5*<eos>"]),
    ],
)  # fmt: skip
def test_symbolic_terms(written, terms):
    assert [str(term) for term in read_cell(written)] == terms


@pytest.mark.parametrize(
    "written",
    [
        "nan",
        "NaN",
        "inf",
        "∞",
        "1e999",
        "9" * 400,
        "1 000",
        "1//2",
        "(1",
        "1/0",
        "0.4*0.5*",
        "^",
        "{}",
        "1e5000",
        "√-1",
    ],
)
def test_unreadable_cells_are_rejected_with_their_location(written):
    with pytest.raises(InvalidInput, match="scores, row love"):
        read_cell(written, "scores, row love")


@given(st.text(max_size=60))
def test_arbitrary_text_never_crashes_the_parser(text):
    with contextlib.suppress(InvalidInput):
        read_cell(text)


@given(st.text(alphabet="0123456789.,+-*/^(){}√e%", max_size=40))
def test_arbitrary_expressions_never_crash_and_bounds_enclose_the_value(text):
    interval = evaluate(text)
    if interval is not None:
        assert interval.low <= interval.value <= interval.high


@given(st.floats(-100, 100), st.integers(0, 6))
def test_a_number_matches_every_value_rounded_to_it(exact, decimals):
    assert read_cell(f"{exact:.{decimals}f}").is_rounding_of(exact)


@given(st.floats(-100, 100), st.integers(0, 6), st.integers(2, 50))
def test_a_number_rejects_values_units_away(exact, decimals, units):
    assert not read_cell(f"{exact + units * 10.0**-decimals:.{decimals}f}").is_rounding_of(exact)
