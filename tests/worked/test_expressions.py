"""Expressions: every step of every example gives formulas with the values of the step; how they are written."""

import numpy as np
import pytest

from peasy.formula.scoring import softmax
from peasy.worked import example_names, load_example, solve
from peasy.worked import expressions as xp
from peasy.worked.decoding import BestScores
from peasy.worked.expressions import ExpressionArray, cell_formulas, spreadsheet_formula, symbolic_formula


@pytest.mark.parametrize("name", example_names())
def test_formulas_have_the_values_of_the_steps(name):
    worked = solve(load_example(name))
    for node, values in worked.values.items():
        if worked.graph.route(node, worked.values) is not None:
            formulas = cell_formulas(worked.graph, worked.values, node)
            if formulas is None:  # sorted numbers
                assert isinstance(worked.graph.nodes[node].routes[0].step, BestScores), node
                continue
            np.testing.assert_allclose(ExpressionArray(formulas).values, values, rtol=0, atol=1e-12, err_msg=node)


def written(array, write=spreadsheet_formula):
    return [write(cell, lambda name, row, column: f"{name}{row}{column}") for cell in array.cells.ravel()]


def test_brackets_constants_and_signs():
    a, b = (ExpressionArray.of_node(name, np.array([[2.0, 3.0]])) for name in "ab")
    assert written((a + b) * a) == ["(a00+b00)*a00", "(a01+b01)*a01"]
    assert written(a - (b - a)) == ["a00-(b00-a00)", "a01-(b01-a01)"]
    assert written(a / (b * a)) == ["a00/(b00*a00)", "a01/(b01*a01)"]
    assert written(a * [[0, 1]] + [[0, -2]]) == ["0", "a01-2"]
    assert written(a @ xp.matrix_transpose(b)) == ["a00*b00+a01*b01"]
    assert written(-xp.square(a) * 0.5) == ["-1*a00^2*0.5", "-1*a01^2*0.5"]
    assert written(xp.where(a > 2, a, b)) == ["IF(a00>2,a00,b00)", "IF(a01>2,a01,b01)"]
    assert xp.where(a > 2, a, b * 10).values.tolist() == [[20.0, 3.0]]
    assert written(xp.astype(xp.any(a != 0, axis=-1, keepdims=True), float)) == ["IF(OR(NOT(a00=0),NOT(a01=0)),1,0)"]
    assert written(xp.exp(a), symbolic_formula) == ["exp(a00)", "exp(a01)"]


def test_a_masked_score_is_left_out():
    scores = ExpressionArray.of_node("s", np.array([[1.0, -np.inf, 2.0]]))
    first = "exp(s00) / (exp(s00) + exp(s02))"
    assert written(softmax(xp, scores), symbolic_formula) == [first, "0", first.replace("s00", "s02", 1)]
