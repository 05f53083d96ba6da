"""Calculations in running text: each link of a chain is judged, and what is a guess is never called wrong."""

import random

import numpy as np
import pytest

from peasy.commands.check import check
from peasy.worked.checking.calculations import find_calculations
from peasy.worked.checking.cell import evaluate_array
from peasy.worked.tables import read_text


def verdicts(text):
    return [each.verdict() for each in find_calculations(text)]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("q · k = 1·0 + 2·1 = 2", 1),
        ("2.5/√2 = 1.77", 1),
        ("e^1.5 / (e^1.5 + e^0.2) = 0.79", 1),
        (r"$\frac{e^{1.5}}{e^{1.5} + e^{0.2}} \approx 0.79$", 1),
        (r"\begin{aligned} s &= 1 \times 2 + 3 \times 4 \\ &= 2 + 12 \\ &= 14 \end{aligned}", 2),
        ("sum = 3.174 + 1.000 + 1.781 = 5.955", 1),
        ("3 x 224 x 224 = 150528, 2**3 = 8, 3² = 9", 3),
        ("0,5·2,0 + 0,25·4,0 = 2,0", 1),
        ("| 1*2 + 1 = 3 | 1/3 = 33.3 % |", 2),
        ("c = 0.2·1 + 0.3·2\n  = 0.2 + 0.6\n  = 0.8", 2),
        ("0.39·2 + 0.61·0 = 0.8", 1),  # rounded operands
        ("1/(1+e^{-2}) = 0.8808", 1),
        ("exp(-100) = 3.7 × 10⁻⁴⁴", 1),
        ("softmax([0.71, 0.71, 1.41]) ≈ [0.25, 0.25, 0.50]   (sums to 1)", 1),
        ("softmax([0.7, -inf, -∞]) → [1, 0, 0]", 1),
        (r"\operatorname{softmax}\left([2, 1, 0.1]\right) = [0.66, 0.24, 0.10]", 1),
        ("z₁ = 0.33·[2,1] + 0.33·[0,2] + 0.33·[1,1] = [1.0, 1.33]", 1),
        ("[1,0]·[2,1] = 1·2 + 0·1 = 2 + 0 = 2", 3),
        ("w = softmax([1, 0])\n  = [2.718, 1] / 3.718\n  = [0.731, 0.269]", 2),
        ("[1, -1] @ [[2, 0], [0, 3]]ᵀ = [2, -3], [[1 -2]\n", 1),
        ("s = [1×1+0×2, 0×1+1×2] / √2 = [0.71, 1.41]", 1),
        ("```python\n# score: [1, 0] · [2, 1] = 2\n```", 1),
    ],
)
def test_a_right_calculation_is_right(text, count):
    assert verdicts(text) == ["right"] * count


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("q · k = 1·0 + 2·1 = 3", 0),
        ("2.5/√2 = 1.25", 0),
        ("e^1.5 / (e^1.5 + e^0.2) = 0.97", 0),
        ("7.389/45.478 = 0.163", 0),
        ("1·2 + 3·4 = 2 + 12 = 15", 1),
        ("1·2 + 3·4 = 2 + 11 = 13", 0),
        ("0,5·2,0 + 0,25·4,0 = 3,0", 0),
        ("0.39·2 + 0.61·0 = 0.9", 0),
        ("c = 0.2·1 + 0.3·2\n  = 0.2 + 0.6\n  = 0.5", 1),
        ("1. 2·3 = 7", 0),
        ("- 2·3 = 7", 0),
        ("(2·3 = 7)", 0),
        ("softmax([0.71, 0.71, 1.41]) ≈ [0.27, 0.27, 0.46]", 0),
        ("softmax([0.71, 0.71, 1.41]) → [0.25, 0.50, 0.25]", 0),
        ("softmax([0.7, -inf]) = [0.9, 0.1]", 0),
        ("0.5*[2,0] + 0.5*[0,4] = [1, 0] + [0, 2] = [1, 3]", 1),
        ("[1,0]·[2,1] = 3", 0),
        ("[2.03, 2.03, 4.10] / 8.16 = [0.25, 0.25, 0.05]", 0),
        ("[1×1+0×2, 0×1+1×2] = [1, 3]", 0),
    ],
)
def test_a_wrong_link_is_found_and_only_that_one(text, wrong):
    assert [index for index, verdict in enumerate(verdicts(text)) if verdict == "wrong"] == [wrong]


@pytest.mark.parametrize(
    ("guess", "mistake"),
    [
        ("x + 2·3 = 7", "x: 2·3 = 7"),  # the end of a longer sum
        ("Layer 1 - 2·3 = 6", "Layer 1: 2·3 = 7"),
        ("1 + 2 + ... + 8 + 9 = 45", "1 + 2 + 8 + 9 = 45"),
        ("12·768·768 = 7M", "12·768·768 = 7077889"),
        ("7 + 8 = 3 (mod 12)", "7 + 8 = 3"),
        ("0.4·100 = 40 %", "0.4·100 = 50"),
        ("2·3 = 6·v", "2·3 = 7, v"),
        ("in row 3 (2+1) = 3", "in row: (2+1) = 4"),
        ("max(0, 2·3) = 7", "max: 2·3 = 7"),
        ("f(2·3) = 7", "(2·3) = 7"),
        ("7 // 2 = 3", "7 / 2 = 5"),
        ("b x 6 x 2 = 13", "b: 6 x 2 = 13"),
        ("6 x 2 = 2 x 6 x 2", "6 x 2 = 13"),  # shapes
        (r"$3 \times 4 = 2 \times 7$", r"$3 \times 4 = 2 + 7$"),
        ("3 x 4 = 2 x 7", "3·4 = 2·7"),
        ("```python\nx = 2 * 3 == 7\n```", "```\nx = 2 * 3 = 7\n```"),
        ("(10/4) × 1.25 + 1 = 3 + 1", "(10/4) × 1.25 + 1 = 3.5 + 1"),  # the whole part
        ("e = 3 - 2.2\nL = e^2 = 0.64", "L = e^2 = 0.64"),  # a variable
        ("(1 × 3)*(3 × 2) = (1 × 2)", "(1·3)*(3·2) = (1·2)"),
        ("[2, 3] @ [3, 4] = [2, 4]", "[2, 3] @ [3, 4] = 24"),
        ("[1, 2] + [3] = [1, 2, 3]", "[1, 2] + [3, 0] = [1, 2]"),
        ("e^0.71, e^1.41 = 2.03, 4.10, sum 6.13", "e^0.71, e^1.41 = 2.03, 1·2 = 2"),  # a list
        ("log softmax([2, 1]) = [-0.31, -1.31]", "is softmax([2, 1]) = [-0.31, -1.31]"),
        ("relu([1, -2]*3) = [3, 0]", "so [1, -2]*3 = [3, 0]"),
        ("[1, 0] · [x, y] - 2 = 0", "[1, 0] · [2, 3] - 2 = 1"),
        ("[0.2, 0.8] V = softmax([1, 2]) V = [3, 1]", "[0.2, 0.8] = softmax([1, 2]) = [3, 1]"),
    ],
)
def test_a_guess_is_not_called_wrong_and_the_same_mistake_without_doubt_is(guess, mistake):
    assert "wrong" not in verdicts(guess)
    assert "wrong" in verdicts(mistake)


def test_a_file_of_right_calculations_passes():
    result = check(read_text("The score is 1·0 + 2·1 = 2; scaled, 2/√2 = 1.41."))
    assert result.passed is True
    assert result.verdict == "2 calculations checked: all right."
    wrong = check(read_text("The score is 1·0 + 2·1 = 3."))
    assert wrong.passed is False
    assert wrong.data()["cells"][0]["reason"] == "1*0 + 2*1 = 2, not 3."


HTML = """<html><head><title>1+1=3</title><style>a{}</style></head><body><h1>Attention</h1>
<table><caption>Q</caption><tr><th></th><th>1</th><th>2</th></tr><tr><td>a</td><td>1</td><td>0</td></tr>
<tr><td>b</td><td>0</td><td>2</td></tr></table>
<h3>K</h3><table><tr><td>1</td><td>1</td></tr><tr><td>0</td><td>1</td></tr></table>
<p><math><mi>S</mi><mo>=</mo><mo>[</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>0</mn></mtd></mtr>
<mtr><mtd><mn>2</mn></mtd><mtd><mn>2</mn></mtd></mtr></mtable><mo>]</mo></math></p>
<pre>scaled = [[0.707, 0.0],
 [1.414, 1.414]]</pre>
<p>e<sup>0.707</sup> = 2.03, <math><mfrac><mn>1</mn><mn>3</mn></mfrac><mo>=</mo><mn>0.33</mn></math></p>
<p>weights: \\( A = \\begin{bmatrix} 0.67 &amp; 0.33 \\\\ 0.5 &amp; 0.5 \\end{bmatrix} \\)</p></body></html>"""


def test_a_page_of_html_is_read_and_its_mistakes_are_found():
    result = check(read_text(HTML, ".html"))
    assert result.passed is True
    assert [len(part.cells) for part in result.parts] == [12]
    assert len(result.calculations.cells) == 2
    for right, mistake in (("<mn>0.33", "<mn>0.43"), ("0.67 &amp; 0.33", "0.33 &amp; 0.67"), ("[1.414", "[1.144")):
        assert right in HTML
        assert check(read_text(HTML.replace(right, mistake), ".html")).passed is False


def test_the_bounds_of_a_softmax_hold_for_all_numbers_that_round_to_the_printed_ones():
    draw = random.Random(1)
    for _ in range(300):
        scores = [round(draw.uniform(-3, 3), 1) for _ in range(3)]
        bounds = evaluate_array(f"softmax({scores})")
        powers = np.exp([score + draw.uniform(-0.05, 0.05) for score in scores])
        assert all(b.low <= weight <= b.high for b, weight in zip(bounds, powers / powers.sum(), strict=True))
        assert all(b.high - b.low < 0.1 for b in bounds)


VECTORS = """**Q**

| 1 | 0 |
|---|---|
| 0 | 1 |

**K**

| 1 | 0 |
|---|---|
| 0 | 1 |

**Weights**

| 0.67 | 0.33 |
|---|---|
| 0.33 | 0.67 |

Row 1: softmax([0.71, 0]) = [0.67, 0.33]; the next query gives softmax([0.1, 0.71]) = [0.35, 0.65].
"""


def test_a_row_without_numbers_hides_no_calculation():
    text = VECTORS.replace("| 0.33 | 0.67 |", "|  |  |")
    assert check(read_text(text)).passed is not False
    assert check(read_text(text + "\n2·3 = 7\n")).passed is False


def test_a_vector_that_is_a_row_of_a_checked_table_is_judged_once():
    result = check(read_text(VECTORS))
    assert (result.passed, result.points) == (True, (7, 7))  # row 1 is written twice
    assert [cell.row for cell in result.calculations.cells] == ["line 19"]
    assert check(read_text(VECTORS.replace("= [0.35, 0.65]", "= [0.65, 0.35]"))).passed is False
    query = "The query is `q = [1, 0]`, the keys are `k1 = [1, 0]` and `k2 = [0, 1]`. Divide by √2.\n\n"
    wrong = check(read_text(f"{query}weights = softmax([1, 0]) = [0.73, 0.27]")).data()["cells"]
    assert [cell["verdict"] for cell in wrong] == ["wrong", "wrong"]  # not of another example: it has a name
    assert "not scaled" in wrong[0]["reason"]
    alone = check(read_text("attention weights = softmax([1, 0]) = [0.73, 0.27]"))
    assert (alone.passed, alone.points) == (True, (1, 1))  # the scores are given in the line
    assert check(read_text("```\nweights = [[0.73, 0.27], [0.5, 0.5]]\n```\n1·2 = 2")).passed is None


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ("9900 / 10000 = 0.99 (99%)", ["right"]),
        ("15.576 / 20 = 0.779 (77.9%)", ["right"]),
        ("448/7 = 64×64 pixels", []),
        ("10^6 × 160^2 × 768 = 2 × 10^{13}", ["right"]),
        ("12 × 255^2 = 7.8 × 10^6", ["wrong"]),
        ("1024^4 ≈ 10^{12}", []),
        (r"$300^3 = 2.7\times10^7$", ["right"]),
        (r"$e^0 : e^{-100} : e^{-200} \approx 1 : 0 : 0$", []),
        ("Step 2: 28 * 28 = 784", ["right"]),
        ("~40/4 = 9 frames", []),
        ("4 matrices of 512^2 = 4·512^2 = 1048576", ["right"]),
    ],
)
def test_other_forms_of_a_result(text, verdicts):
    assert [verdict for each in find_calculations(text) if (verdict := each.verdict())] == verdicts


def test_small_numbers_are_shown_with_their_digits():
    [cell] = check(read_text("1 / (12 × 255^2) = 0.000013")).calculations.cells
    assert cell.reason == "1 / (12 × 255^2) = 1.282e-06, not 0.000013."


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ("1,536 + 512 = 2,048", ["right"]),
        ("1,536 + 512 = 2,084", ["wrong"]),
        ("6 / 8 = 0.75 (3/4)", ["right"]),
        ("4 + 4 = 8 (2 × 4)", ["right"]),
        ("7 + 7 = 2 (3 + 4)", ["right"]),
    ],
)
def test_thousands_and_results_written_twice(text, verdicts):
    assert [each.verdict() for each in find_calculations(text)] == verdicts
