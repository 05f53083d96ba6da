"""What was misread in public lectures and notebooks: products in TeX, printed arrays, sentences as settings."""

import json

import numpy as np
import pytest

from peasy.commands.check import check
from peasy.worked.checking.difference import compare_notes
from peasy.worked.tables import read_text

Q, K = np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([[0.0, 1], [1, 0], [1, 1]])
V = np.array([[1, 0], [0, 1], [0.5, 0.5]])
SCORES = Q @ K.T
SCALED = SCORES / np.sqrt(2)
WEIGHTS = np.exp(SCALED) / np.exp(SCALED).sum(axis=1, keepdims=True)


def tex(matrix, decimals=3):
    rows = (" & ".join(f"{number:.{decimals}f}" for number in row) for row in matrix)
    inside = r" \\ ".join(rows)
    return rf"\begin{{bmatrix}} {inside} \end{{bmatrix}}"


def lecture(scores=SCORES, scaled=SCALED, weights=WEIGHTS, context=None):
    context = weights @ V if context is None else context
    return rf"""
$$Q = {tex(Q, 0)}, \quad K = {tex(K, 0)}, \quad V = {tex(V, 1)}$$
$$QK^\top = {tex(Q, 0)} {tex(K.T, 0)} = {tex(scores, 0)}$$
$$\frac{{Q \cdot K^\top}}{{\sqrt{{d_k}}}} = {tex(scaled)}$$
$$\text{{softmax}} = {tex(weights)}$$
$$\text{{Output}} = {tex(weights)} \cdot {tex(V, 1)} = {tex(context)}$$
"""


def marked(text, suffix=".md"):
    result = check(read_text(text, suffix))
    return result, [cell for part in result.parts for cell in part.cells]


def notebook(*cells):
    sources = [
        {"cell_type": "code", "source": source, "outputs": [{"text": printed}] if printed else []}
        for source, printed in cells
    ]
    return json.dumps({"cells": sources})


def printed(matrix, decimals=4):
    rows = ",\n        ".join(f"[{', '.join(f'{number:.{decimals}f}' for number in row)}]" for row in matrix)
    return f"tensor([{rows}])\n"


def test_operands_of_a_product_in_tex_are_no_tables():
    result, cells = marked(lecture())
    assert result.passed
    assert [cell.verdict for cell in cells] == ["right"] * 33


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"scaled": SCORES / 2}, "divided by d_k instead of √d_k"),
        ({"scaled": SCORES}, "not scaled"),
        ({"context": np.tile(V.mean(axis=0), (3, 1))}, "averaged"),
        ({"scores": SCORES - np.diag([0, 0, 1.0])}, "was left out"),
    ],
)
def test_a_mistake_in_such_a_lecture_is_named(changes, name):
    result, cells = marked(lecture(**changes))
    wrong = [cell for cell in cells if cell.verdict == "wrong" and name in cell.reason]
    assert result.passed is False
    assert wrong


def test_products_and_sums_in_sentences_are_not_read_as_vectors():
    notes = """
- `v1 = [0, 1, 1]`
- `v2 = [1, 0, 1]`
- `0.4 * v1 = 0.4 * [0, 1, 1] = [0, 0.4, 0.4]`
- `z1 = [0, 0.4, 0.4] + [0.6, 0, 0.6]`

output = [[0.5, 0.5]] @ [[0, 1, 1], [1, 0, 1]]
"""
    example = read_text(notes).parts[0]
    assert [(table.table, table.cells) for table in example.written] == [
        ("value", (("0", "1", "1"), ("1", "0", "1")))
    ]  # fmt: skip


def test_a_product_drawn_with_letters_is_not_read():
    notes = """
Q = [[1, 0], [0, 1]]

```
               [0, 1]
[1, 0]  x      [1, 0]   [0, 1]
[0, 1]         [1, 1] = [1, 0]
```
"""
    assert [table.table for table in read_text(notes).parts[0].written] == ["query"]


@pytest.mark.parametrize(
    "line", ["Example: is it money or water?", "Scale: divide by the root of the width", "example: *"]
)
def test_a_sentence_that_begins_like_a_setting_stops_nothing(line):
    result, cells = marked(f"{line}\n{lecture()}")
    assert result.passed
    assert len(cells) == 33


def test_numbered_vectors_in_different_places_are_rows_of_one_table():
    notes = (
        "Word 1: `q1 = [1, 0]`\n\ntext\n\nWord 2: `q2 = [0, 1]`\n\nK = [[1, 0], [0, 1]]\n\nscores = [[1, 0], [0, 1]]\n"
    )
    result, cells = marked(notes)
    assert result.passed
    assert [cell.verdict for cell in cells] == ["right"] * 4


def test_arrays_printed_one_after_the_other_get_the_printed_names():
    source = "print(Q)\nprint(K)\nprint(attn_scores)\nprint(Q.shape)"
    output = printed(Q) + printed(K) + printed(SCORES) + "torch.Size([3, 2])\n"
    result, cells = marked(notebook((source, output)), ".ipynb")
    assert result.passed
    assert {cell.table for cell in cells} == {"scores"}


def test_a_table_whose_inputs_are_not_shown_is_given_to_the_tables_after_it():
    masked = np.where(np.tril(np.ones((3, 3))) > 0, SCORES, -np.inf)
    powers = np.exp(masked / np.sqrt(4))
    weights = powers / powers.sum(axis=1, keepdims=True)
    cells = (
        ("import torch\ninputs = torch.tensor([[0.43, 0.15], [0.55, 0.87], [0.57, 0.85]])", ""),
        ("attn_scores_masked = f()\nprint(attn_scores_masked)", printed(masked)),
        (
            "attn_weights = torch.softmax(attn_scores_masked / keys.shape[-1]**0.5)\nprint(attn_weights)",
            printed(weights),
        ),
    )
    result, checked = marked(notebook(*cells), ".ipynb")
    assert [cell.verdict for cell in checked] == ["right"] * 9
    weights[2] = weights[2, ::-1]
    result, checked = marked(notebook(*cells[:2], (cells[2][0], printed(weights))), ".ipynb")
    assert result.passed is not True


@pytest.mark.parametrize("name", ["context", "output"])
def test_a_wrong_result_of_a_program_is_not_taken_for_another_calculation(name):
    cells = [
        (f"{name} = {number}\nprint({name})", printed(matrix))
        for name, number, matrix in (
            ("Q", 1, Q),
            ("K", 2, K),
            ("V", 3, V),
            ("weights", 4, WEIGHTS),
            (name, 5, WEIGHTS @ K),
        )
    ]
    result, checked = marked(notebook(*cells), ".ipynb")
    assert result.passed is False
    assert any("keys instead of the values" in cell.reason for cell in checked)


def table(name, *rows):
    width = rows[0].count("|") + 1
    lines = [f"**{name}**", "", "|" * (width + 1), "|" + "---|" * width, *(f"|{row}|" for row in rows)]
    return "\n".join([*lines, "", ""])


def test_an_empty_column_of_labels_is_no_column():
    result, cells = marked(table("X", " |1|0", " |0|1") + table("scores", " |1|0", " |0|1"))
    assert result.passed
    assert len(cells) == 4


def test_shapes_that_do_not_fit_are_listed():
    notes = table("X", "1|0") + table("W_Q", "1|0", "0|1") + table("b_Q", "1|2|3") + table("Q", "1|0")
    result, _ = marked(notes)
    assert result.passed is None
    assert any("do not fit" in unread.reason for part in result.parts for unread in part.unread)


def test_weights_with_as_many_digits_each_may_differ_from_one_in_the_sum():
    result, _ = marked(table("weights", "0.00094|0.969|0.0302"))
    assert not any(part.rows for part in result.parts)
    result, _ = marked(table("weights", "0.00094|0.949|0.0302"))
    assert any(finding.finding == "sum" for part in result.parts for finding in part.rows)


def test_a_difference_without_a_known_name_says_so():
    theirs = lecture(context=WEIGHTS @ V + np.arange(6).reshape(3, 2) / 7)
    (difference,) = [
        each for each in compare_notes(read_text(lecture()).parts, read_text(theirs).parts) if each.table == "context"
    ]
    assert difference.reasons == (
        "As calculated from the inputs: yours.",
        "No known convention or slip gives the numbers of the expected table.",
    )


def heads(weights=WEIGHTS):
    """Two heads with numbered matrices: the second one has queries and keys exchanged."""
    second = np.exp(SCALED.T) / np.exp(SCALED.T).sum(axis=1, keepdims=True)
    return rf"""
\[Q_1 = {tex(Q, 0)},\quad K_1 = {tex(K, 0)},\quad V_1 = {tex(V, 1)}\]
\[\frac{{Q_1 K_1^\top}}{{\sqrt{{2}}}} \approx {tex(SCALED)}\]
\[A_1 \approx {tex(weights)}\]
\[O_1 = A_1 V_1 \approx {tex(weights @ V)}\]
\[Q_2 = {tex(K, 0)},\quad K_2 = V_2 = {tex(Q, 0)}\]
\[A_2 \approx {tex(second)}\]
\[O_2 = A_2 V_2 \approx {tex(second @ Q)}\]
\[O_{{\mathrm{{concat}}}} = \operatorname{{Concat}}(O_1, O_2) \approx {tex(np.hstack([weights @ V, second @ Q]))}\]
"""


def test_numbered_matrices_belong_to_heads():
    result, cells = marked(heads(), ".tex")
    assert result.passed
    assert {"head-1.weights", "head-2.weights", "head-2.context", "concat"} <= {cell.table for cell in cells}
    _, cells = marked(heads(np.roll(WEIGHTS, 1, axis=0)), ".tex")
    assert {cell.table for cell in cells if cell.verdict == "wrong"} == {"head-1.weights"}


def test_a_column_of_numbers_under_a_name_holds_labels():
    header = "| Token | 0 | 1 | 2 |\n|---|---|---|---|\n"
    rows = [f"| {index} | {' | '.join(f'{number:.4f}' for number in row)} |" for index, row in enumerate(WEIGHTS)]
    q, k = (
        table(name, *("|".join(map(str, row)) for row in matrix.astype(int))) for name, matrix in (("Q", Q), ("K", K))
    )
    result, cells = marked("\n".join([q, k, "**weights**, softmax of QK^T / √d_k\n\n" + header + "\n".join(rows)]))
    assert result.passed
    assert [cell.verdict for cell in cells] == ["right"] * 9


def test_a_matrix_with_dots_is_not_read():
    rows = r"q_0 k_0 & q_0 k_1 & \dots \\ \vdots & \vdots & \ddots"
    general = rf"$$\text{{attention scores}} = \begin{{bmatrix}} {rows} \end{{bmatrix}}$$"
    result, cells = marked(lecture() + general)
    assert result.passed
    assert len(cells) == 33


def test_digits_of_float32_are_no_mistake():
    source = f"Q = tf.constant({Q.tolist()})\nK = tf.constant({Q.tolist()})\nprint(scores)"
    shown = printed(Q @ Q.T, 8).replace("1.00000000", "1.00000012")
    assert marked(notebook((source, f"scores:\n{shown}")), ".ipynb")[0].passed
    wrong = shown.replace("1.00000012", "1.00001200", 1)
    assert marked(notebook((source, f"scores:\n{wrong}")), ".ipynb")[0].passed is False


def test_numbers_in_the_text_of_a_program_are_given_and_not_calculated():
    inputs = f"import numpy as np\nQ = np.array({Q.tolist()})\nK = np.array({K.tolist()})\n"
    given = inputs + f"weights = np.array({SCALED.round(4).tolist()})"
    assert marked(notebook((given, "")), ".ipynb")[0].passed is not False
    calculated = notebook((inputs, ""), ("print(weights)", f"weights:\n{printed(SCALED)}"))
    assert marked(calculated, ".ipynb")[0].passed is False


def test_weights_after_scores_of_keys_that_are_not_shown_are_no_mistake():
    """The last weights come from other scores, which themselves come from keys that are not shown."""
    x = np.array([[0.43, 0.15], [0.55, 0.87], [0.57, 0.85], [0.22, 0.58], [0.77, 0.25]])
    weights = np.exp(x @ x.T) / np.exp(x @ x.T).sum(axis=1, keepdims=True)
    hidden = np.array([[1.2705, 1.8524, 1.8111, 1.0795, 0.5577]])
    others = np.exp(hidden / np.sqrt(2)) / np.exp(hidden / np.sqrt(2)).sum()
    shown = {"attn_scores": x @ x.T, "attn_weights": weights, "attn_scores_2": hidden, "attn_weights_2": others}
    cells = [
        (f"print({name})", printed(matrix).replace("[[", "[").replace("]])", "])")) for name, matrix in shown.items()
    ]
    cells[:2] = [(f"print({name})", printed(shown[name])) for name in ("attn_scores", "attn_weights")]
    result, checked = marked(notebook((f"inputs = torch.tensor({x.tolist()})", ""), *cells), ".ipynb")
    assert result.passed is not False
    assert len(checked) >= 25


@pytest.mark.parametrize("wrong", [Q @ np.array([[1, 2], [0, 1]]).T, np.array([[1, 2], [0, -1], [1, 3]])])
def test_wrong_projections_that_a_program_prints_are_mistakes(wrong):
    source = f"X = np.array({Q.tolist()})\nW_q = np.array([[1, 2], [0, 1]])\nQ = X @ W_q"
    assert marked(notebook((source, ""), ("print(Q)", f"Q:\n{printed(wrong)}")), ".ipynb")[0].passed is False


@pytest.mark.parametrize("total", [1.0, 0.97])
def test_a_column_of_sums_without_inputs_is_no_token(total):
    tokens = ["I", "like", "tea"]
    rows = [
        f"{name} | {' | '.join(f'{number:.4f}' for number in row)} | 1.0000"
        for name, row in zip(tokens, WEIGHTS, strict=True)
    ]
    rows[1] = rows[1].replace("1.0000", f"{total:.4f}")
    q, k = (
        table(name, *("|".join(map(str, row)) for row in matrix.astype(int))) for name, matrix in (("Q", Q), ("K", K))
    )
    weights = f"**weights**, softmax of QK^T / √d_k\n\n| | {' | '.join(tokens)} | sum |\n|---|---|---|---|---|\n"
    result, cells = marked("\n".join([q, k, weights + "\n".join(f"| {row} |" for row in rows)]))
    assert [cell.verdict for cell in cells] == ["right"] * 9
    assert result.passed is (total == 1)


def test_a_printed_product_is_named_by_its_factors():
    source = f"Q = np.array({Q.tolist()})\nK = np.array({K.tolist()})\nprint(Q @ K.T)"
    assert [cell.table for cell in marked(notebook((source, printed(SCORES))), ".ipynb")[1]] == ["scores"] * 9
    assert marked(notebook((source, printed(Q @ Q.T))), ".ipynb")[0].passed is False


def test_numbered_results_without_numbered_queries_belong_to_no_head():
    layers = rf"\[Z_1 = {tex(WEIGHTS @ V)}\] \[Z_2 = {tex(2 * WEIGHTS @ V)}\]"
    result, _ = marked(lecture() + layers, ".tex")
    assert result.passed is not False
