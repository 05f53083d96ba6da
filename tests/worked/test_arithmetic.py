"""Arithmetic of one cell: evaluating the displayed lines gives the cell's value."""

import math
import re

import numpy as np
import pytest

from peasy.errors import NotFound
from peasy.worked import example_names, load_example, read_example, solve
from peasy.worked.arithmetic import arithmetic
from peasy.worked.example import library_files
from peasy.worked.graph import MAX_TERMS


def evaluate(expression: str) -> float:
    """Evaluate the displayed text as a calculator would."""
    text = re.sub(r"√([\d.]+)", r"sqrt(\1)", expression).replace("√", "sqrt")
    text = (
        re.sub(r"\be\^", "E^", text)
        .replace("·", "*")
        .replace("^", "**")
        .replace("-∞", "-inf")
        .replace("π", str(math.pi))
    )
    names = {"sqrt": math.sqrt, "ln": math.log, "E": math.e, "inf": math.inf, "max": max}
    names |= {name: getattr(math, name) for name in ("tanh", "erf", "sin", "cos")}
    names["sign"] = lambda x: (x > 0) - (x < 0)
    assert re.fullmatch(rf"(?:{'|'.join(names)}|[\d.e+*/(), -])+", text), text
    return eval(text.replace("--", "+"), {"__builtins__": {}} | names)


def check(worked, decimals=12, tolerance=1e-9):
    for step in worked.steps:
        for row in range(len(step.rows)):
            for column in range(len(step.columns)):
                shown = arithmetic(worked, step.name, row, column, decimals)
                for line in shown.lines:
                    for way in line.text.partition(": ")[2].split(" = "):
                        assert evaluate(way) == pytest.approx(line.value, rel=tolerance, abs=tolerance), line.text
                last = evaluate(shown.texts[-1].rpartition(": ")[2].rpartition(" = ")[2])
                assert last == pytest.approx(step.values[row, column], rel=tolerance, abs=tolerance)
                assert shown.value == step.values[row, column]


@pytest.mark.parametrize("name", sorted({*example_names(), *library_files("transformer")}))
def test_displayed_arithmetic_reproduces_every_cell_of_the_library(name: str):
    example = load_example(name)
    check(solve(example))
    for variant in example.variants:
        check(solve(example.with_variant(variant)))


def test_four_decimals_agree_within_rounding():
    check(solve(load_example("i-love-ai")), decimals=4, tolerance=5e-4)


WIDE = np.random.default_rng(3).normal(size=(40, 30)).round(2)


@pytest.mark.parametrize(
    "given",
    [
        {"scoring": {"kind": "additive", "w": [[1, 0], [-2, 1]], "u": [[1, 1], [0, 1]], "v": [1, -2]}},
        {"scoring": "cosine", "normalise": "sum", "x": [[1, -2], [1, 1], [0, 0]], "bias": [[1, 2, 3]] * 3},
        {"bias": [[0, "-inf", 1], [0, -1, 2], [1, 1, 1]], "scale": 0.3},
        {"x": [[600.0, 1], [1, 600], [-600, 1]], "scoring": "dot"},
        {"x": [[-40.0, 1], [1, -40], [-40, 1]], "scale": -1.0},
        {"mask": [[False, False, False], [True, False, True], [True, True, True]]},
        {"w_q": [[1, 2], [0, 1]], "w_k": [[1], [2]], "w_v": [[3], [1]], "heads": 2, "w_o": [[1, -1, 2], [0, 1, 0]]},
        {"x": [[1, 2], [3, -1], [2, 2]], "w_o": [[1, 2], [3, 4]]},
        {"tokens": [f"t{i}" for i in range(40)], "x": WIDE[:, :2]},
        {"tokens": [f"t{i}" for i in range(40)], "x": abs(WIDE), "normalise": "sum"},
        {"x": WIDE[:3], "scoring": "cosine"},
    ],
)
def test_displayed_arithmetic_reproduces_every_cell_with_other_settings(given):
    example = {"title": "t", "tokens": ["a", "b", "c"], "x": [[1, 0], [0, 1], [1, 1]]} | given
    check(solve(read_example(example)))


def test_evaluation_detects_a_wrong_line():
    assert evaluate("2.0281 / 5.0562") == pytest.approx(0.4011, abs=1e-4)
    assert evaluate("1·2 + (-3)^2 + √4 + √(1 + 3) + e^0") == 2 + 9 + 2 + 2 + 1
    worked = solve(load_example("i-love-ai"))
    worked.step("weights").values[0, 1] += 1e-3
    with pytest.raises(AssertionError):
        check(worked)


def test_i_love_ai_lecture_notes_cell_by_cell():
    worked = solve(load_example("i-love-ai"))
    assert arithmetic(worked, "scores", "AI", "AI").texts == ("query · key: 2·1 + 1·1 = 2 + 1 = 3",)
    assert arithmetic(worked, "scaled", 0, 1, 2).texts == (
        "square root of d_k: √2 = 1.41",
        "scaled: 1 / 1.41 = 0.71",
    )
    softmax = arithmetic(worked, "weights", 0, 0, 2).texts
    assert softmax[-2:] == ("sum: 1 + 2.03 + 2.03 = 5.06", "share: 1 / 5.06 = 0.20")
    context = arithmetic(worked, "context", "I", 0)
    assert context.texts == ("weights · values: 0.1978·1 + 0.4011·0 + 0.4011·1 = 0.1978 + 0 + 0.4011 = 0.5989",)
    assert context.title == "context: query I, d_value 0"


def test_masked_cells_are_explained():
    worked = solve(load_example("i-love-ai-causal"))
    assert arithmetic(worked, "masked", 0, 1).texts == ("masked for this query: -∞",)
    assert arithmetic(worked, "weights", 0, 1).texts == ("masked for this query: 0",)
    assert not any("AI" in line for line in arithmetic(worked, "weights", 0, 0).texts)


def test_long_rows_are_abbreviated():
    worked = solve(read_example({"title": "t", "tokens": [str(i) for i in range(900)], "x": [[1.0]] * 900}))
    shown = arithmetic(worked, "weights", 0, 899)
    assert len(shown.lines) <= MAX_TERMS + 4
    assert max(map(len, shown.texts)) < 600


def test_rows_and_columns_by_token_or_position():
    worked = solve(load_example("i-love-ai"))
    assert arithmetic(worked, "weights", "love", "ai").value == arithmetic(worked, "weights", 1, -1).value
    assert arithmetic(worked, "weights", "1", "2").value == arithmetic(worked, "weights", 1, 2).value
    with pytest.raises(NotFound, match="no row of weights 'lvoe'") as caught:
        arithmetic(worked, "weights", "lvoe", 0)
    assert caught.value.hint == "Did you mean love?"
    with pytest.raises(NotFound, match="no column"):
        arithmetic(worked, "weights", 0, 3)
