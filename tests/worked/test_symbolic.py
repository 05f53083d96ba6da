"""Symbolic tables of the slides on 'Easy peasy lemon squeezy'."""

from peasy.worked import load_example, solve
from peasy.worked.symbolic import to_symbols, weighted_sum_of_words


def test_easy_peasy_in_symbols():
    symbols = to_symbols(solve(load_example("easy-peasy")))
    scores, weights, context = symbols.tables
    assert scores.rows[3] == "squeezy(q_3)"
    assert scores.columns[2] == "lemon(k_2)"
    assert scores.cells[0] == ("q_0*k_0", "x", "x", "x")
    assert scores.cells[3] == ("q_3*k_0", "q_3*k_1", "q_3*k_2", "q_3*k_3")
    assert weights.cells[2] == ("0.3", "0.2", "0.5", "x")
    assert context.cells[1] == ("0.4*v_0", "0.6*v_1", "x", "x")
    assert dict(symbols.sums)["squeezy"] == "0.2*v_0 + 0.1*v_1 + 0.3*v_2 + 0.4*v_3"


def test_no_mask_no_crosses():
    symbols = to_symbols(solve(load_example("i-love-ai")), decimals=2)
    assert not any("x" in row for table in symbols.tables for row in table.cells)
    assert symbols.sums[0] == ("I", "0.20*v_0 + 0.40*v_1 + 0.40*v_2")


def test_a_row_in_words():
    assert weighted_sum_of_words(solve(load_example("pizza")), 0) == "0.36 Pizza + 0.4 is + 0.24 awesome"
