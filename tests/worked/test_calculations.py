"""Calculations in running text: each link of a chain is judged, and what is a guess is never called wrong."""

import pytest

from peasy.commands.check import check
from peasy.worked.checking.calculations import find_calculations
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
