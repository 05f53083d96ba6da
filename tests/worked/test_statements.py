"""Notes in running text: chains of equals signs, vectors in sentences, rows with names. Published numbers, as facts."""

import pytest

from peasy.commands.check import check
from peasy.worked.tables import read_text
from peasy.worked.tables.statements import reduce_statements

ONE_QUERY = """
- Query: `Q = [1, 2]`
- Keys: `K = [[1, 0], [0, 1], [1, 1]]`
- Values: `V = [[0.5, 0.3], [0.8, 0.2], [0.1, 0.9]]`

```
QK^T = [1, 2] × [[1, 0, 1], [0, 1, 1]] = [1, 2, 3]
Scaled scores = [1, 2, 3] / √2 = [0.707, 1.414, 2.121]
Attention weights = softmax([0.707, 1.414, 2.121]) = [0.140, 0.284, 0.576]
Output = 0.140×[0.5, 0.3] + 0.284×[0.8, 0.2] + 0.576×[0.1, 0.9]
       = [0.355, 0.617]
```
"""
NAMED_ROWS = """
```text
K1 = V1 = h1 = [1, 0, 0]
K2 = V2 = h2 = [0, 1, 0]
K3 = V3 = h3 = [0, 0, 1]
Q = [2, 0, 1]
Q · K1 = 2×1 + 0×0 + 1×0 = 2
scores = [2, 0, 1]
scaled scores = [2/1.732, 0/1.732, 1/1.732]
              = [1.155, 0.000, 0.577]
e^1.155 ≈ 3.174
sum = 3.174 + 1.000 + 1.781 = 5.955
weights = [3.174/5.955, 1.000/5.955, 1.781/5.955]
        = [0.533, 0.168, 0.299]
c = 0.533 × V1 + 0.168 × V2 + 0.299 × V3
  = 0.533 × [1, 0, 0] + 0.168 × [0, 1, 0] + 0.299 × [0, 0, 1]
  = [0.533, 0.168, 0.299]
```
"""
SENTENCES = """
One query is `q=[1,0]`. Keys are `k1=[1,0]`, `k2=[0,1]`, the values are `v1 = [2, 0]` and `v2 = [0, 4]`. Use `d_k=2`.

```
q.k1 = 1, q.k2 = 0
scaled scores = [1/sqrt(2), 0] = [0.7071, 0]
weights = [2.0281/3.0281, 1/3.0281]
        = [0.6698, 0.3302]
output = 0.6698*[2,0] + 0.3302*[0,4]
       = [1.3395, 1.3210]
```
"""
CELLS = """
| Word | Query (Q) | Key (K) | Value (V) |
|---|---|---|---|
| She | [1, 0, 1] | [1, 0, 0] | [1, 2, 0] |
| loves | [0, 1, 0] | [0, 1, 1] | [0, 1, 1] |
| cats | [1, 1, 1] | [1, 0, 1] | [2, 0, 1] |

```
score(She, cats) = Q_She · K_cats = [1,0,1]·[1,0,1] = 1×1 + 0×0 + 1×1 = 2
scaled scores = [1/1.73, 1/1.73, 2/1.73] = [0.58, 0.58, 1.15]
softmax([0.58, 0.58, 1.15])
exp(0.58) ≈ 1.79
attention weights = [1.79/6.74, 1.79/6.74, 3.16/6.74]
                  = [0.27, 0.27, 0.47]
```
"""
ROWS_BELOW = """
Q = [0.1, 0.2]
    [0.4, 0.5]

K = [0.1, 0.2]
    [0.4, 0.5]

Result matrix:
[0.05, 0.14]
[0.14, 0.41]

Softmax weights (attention matrix):
[0.48, 0.52]
[0.45, 0.55]

Divided by √2 before the softmax.
"""


def cells(text):
    result = check(read_text(text, ".md"))
    return result, [cell for part in result.parts for cell in part.cells]


@pytest.mark.parametrize(
    ("notes", "count"), [(ONE_QUERY, 11), (NAMED_ROWS, 12), (SENTENCES, 6), (CELLS, 6), (ROWS_BELOW, 8)]
)
def test_a_right_lecture_has_no_wrong_number(notes, count):
    result, checked = cells(notes)
    assert result.passed
    assert [cell.verdict for cell in checked] == ["right"] * count


@pytest.mark.parametrize(
    ("notes", "changes", "wrong", "name"),
    [
        (ONE_QUERY, {"√2 = [0.707, 1.414, 2.121]": "√2 = [0.5, 1, 1.5]", "[0.355, 0.617]": "[0.389, 0.573]",
                     "= [0.140, 0.284, 0.576]": "= [0.186, 0.307, 0.506]"}, 3, "divided by d_k instead of √d_k"),
        (ONE_QUERY, {"√2 = [0.707, 1.414, 2.121]": "√2 = [1, 2, 3]"}, 2, "not scaled"),
        (ONE_QUERY, {"= [0.140, 0.284, 0.576]": "= [0.167, 0.333, 0.500]", "[0.355, 0.617]": "[0.400, 0.567]"}, 3,
         "divided by their sum, without e^x"),
        (ONE_QUERY, {"[0.355, 0.617]": "[0.355, 0.671]"}, 1, "two digits are swapped"),
        (ONE_QUERY, {"= [1, 2, 3]\n": "= [1, 2, 2]\n"}, 1, "was left out"),
        (NAMED_ROWS, {"scores = [2, 0, 1]": "scores = [2, 1, 0]"}, 2, "swapped"),
        (SENTENCES, {"= [0.6698, 0.3302]": "= [0.3302, 0.6698]", "[1.3395, 1.3210]": "[0.6604, 2.6792]"}, 2,
         "negative scores"),
        (CELLS, {"= [0.27, 0.27, 0.47]": "= [0.25, 0.25, 0.50]"}, 3, "divided by their sum, without e^x"),
        (ROWS_BELOW, {"Result matrix": "Scores", "[0.14, 0.41]": "[0.14, 0.51]"}, 1, "one digit is wrong"),
    ],
)  # fmt: skip
def test_a_student_error_in_running_text_is_named_and_counted_once(notes, changes, wrong, name):
    for old, new in changes.items():
        assert old in notes
        notes = notes.replace(old, new, 1)
    result, checked = cells(notes)
    assert result.passed is False
    mistakes = [cell for cell in checked if cell.verdict == "wrong"]
    assert len(mistakes) == wrong
    assert all(name in cell.reason for cell in mistakes)


def test_a_vector_without_inputs_has_as_many_keys_as_numbers():
    result, checked = cells("```\nscaled = [0.185, 0.51, 0.665]\nweights = [0.25, 0.35, 0.40]\n```")
    assert result.passed
    assert len(checked) == 3


def test_vectors_of_a_token_that_is_not_known_are_listed_not_called_wrong():
    notes = "```\nX = [1 0]\n    [0 1]\n    [1 1]\nweights = [0.27, 0.365, 0.365]\n```"
    result, checked = cells(notes)
    assert result.passed is None
    assert not checked


def test_program_text_and_formulas_stay_as_they_are():
    lines = ["x = torch.tensor([[1, 2]])", "y = f(x)", "| a = [1, 2] |"]
    assert list(reduce_statements(lines, fenced=True)) == lines
    assert list(reduce_statements(["= [1, 2] + [3, 4]", "softmax([1, 2])"], fenced=True)) == []


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("softmax([1, 0]) = [0.5, 0.5] × [1, 2] = [0.5, 1.0]", "softmax([1, 0]) = [0.5, 0.5]"),
        ("sum = 22.05\n  = [0.05, 0.77, 0.19]", "w =\n  = [0.05, 0.77, 0.19]"),
    ],
)
def test_the_end_of_another_calculation_has_not_its_name(text, other):
    named = [[line for line in reduce_statements(each.splitlines(), True) if line[0] != " "] for each in (text, other)]
    assert ["[" in "".join(lines) for lines in named] == [False, True]


def test_scores_that_are_divided_in_their_chain_are_the_scaled_ones():
    (line,) = reduce_statements(["scores = [1*1 + 0*0, 1*0 + 0*1] / sqrt(2) = [0.71, 0]"], True)
    assert line == "scaled = [0.71, 0]"
    (line,) = reduce_statements(["scores = [1*1 + 0*0, 1*0 + 0*1] / 2 = [0.5, 0]"], True)
    assert line == "scores = [0.5, 0]"


def test_a_number_before_the_next_name_is_a_statement_of_its_own():
    assert not any(
        "y = [" in line
        for line in reduce_statements(["x = [2, 3] y = 1 w = [0.1, -0.2]", "y = 1 w = [0.1, -0.2]"], True)
    )
