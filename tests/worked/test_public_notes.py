"""What was misread in public lectures and notebooks: products in TeX, printed arrays, sentences as settings."""

import json

import numpy as np
import pytest

from peasy.commands.check import check
from peasy.views.check import all_passed
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


def verdicts(text, suffix=".md"):
    """Verdicts of all cells but right ones, and all row findings."""
    data = check(read_text(text, suffix)).data()
    return [(c["table"], c["written"], c["verdict"]) for c in data["cells"] if c["verdict"] != "right"] + data["rows"]


UNIT = r"Q = K = \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}"
HALVES = r"\begin{bmatrix} 0.67 & 0.33 \\ 0.33 & 0.67 \end{bmatrix}"


@pytest.mark.parametrize("amp", ["&amp;", "&"])
def test_entities_in_tex_are_signs(amp):
    text = f"$${UNIT}$$\n\n$$A = {HALVES}$$\n".replace("&", amp)
    assert check(read_text(text)).points == (4, 4)


def test_fences_of_math_are_tex():
    assert check(read_text(f"```math\n{UNIT}\n```\n\n```math\nA = {HALVES}\n```\n")).points == (4, 4)


def test_matrices_above_a_fraction_line_are_operands():
    text = r"""$$
\frac{qk^T}{\sqrt{d_k}}=\frac
{\begin{bmatrix} 2 & 1 \\ 0 & 1 \end{bmatrix}}
{\sqrt{3}}
={\begin{bmatrix} 1.1547 & 0.5774 \\ 0 & 0.5774 \end{bmatrix}}
$$

$$A = \begin{bmatrix} 0.6405 & 0.3595 \\ 0.3595 & 0.6405 \end{bmatrix}$$
"""
    assert verdicts(text) == []
    assert verdicts(text.replace("0.6405 & 0.3595", "0.7311 & 0.2689", 1)) != []


def test_sums_of_float32_weights():
    rows = [["0.64045745", "0.35954252"], ["0.35954252", "0.64045745"]]
    text = "weights\n" + "\n".join(",".join(row) for row in rows)
    assert verdicts(text, ".csv") == []
    assert verdicts(text.replace("0.64045745,", "0.64055745,"), ".csv") != []


def test_a_label_before_a_matrix_names_it():
    attention = rf"\text{{Attention}}(Q, K, V) = {HALVES} \begin{{bmatrix}} 2 & 3 \\ 4 & 5 \end{{bmatrix}}"
    result = r"\begin{bmatrix} 2.66 & 3.66 \\ 3.34 & 4.34 \end{bmatrix}"
    text = rf"- **Attention Scores**: \( {HALVES} \)." + "\n\n- **Result**:\n" + rf"\[ {attention} = {result} \]"
    assert verdicts(text) == []  # no context outside of the values
    assert [table.name for part in check(read_text(text)).parts for table in part.tables] == ["scores", "context"]


def test_formulas_of_several_lines_are_one():
    text = r"""$$
QK^T = \begin{bmatrix} 1 & 0 \\ 0 & 1 \\ 1 & 1 \end{bmatrix}
\begin{bmatrix} 1 & 0 & 0.5 \\ 0 & 1 & 0.5 \end{bmatrix}
= \begin{bmatrix} 1 & 0 & 0.5 \\ 0 & 1 & 0.5 \\ 1 & 1 & 1 \end{bmatrix}
$$"""
    assert len(check(read_text(text)).parts[0].tables) == 1


PLAIN = """Q = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]]
K = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]]

Each head has $d_k = 4$.

$$S = QK^T = \\begin{bmatrix} 2 & 0 & 1 \\\\ 0 & 2 & 1 \\\\ 1 & 1 & 2 \\end{bmatrix}$$

$$A = \\text{softmax}(S) = \\begin{bmatrix} .665 & .090 & .245 \\\\ .090 & .665 & .245 \\\\ .212 & .212 & .576
\\end{bmatrix}$$
"""


def test_softmax_of_plain_scores_needs_no_scale():
    assert verdicts(PLAIN) == []
    assert verdicts(PLAIN.replace("softmax}(S)", "softmax}(S/\\sqrt{d_k})")) != []


def test_rows_named_with_braces_and_vectors_in_round_brackets():
    text = "- $Q_{robot} = [1, 0]$\n- $Q_{dance} = [0, 1]$\n- $K_{robot} = (1, 2)$\n- $K_{dance} = (0, 1)$\n\n"
    scores = r"$$QK^T = \begin{bmatrix} 1 & 0 \\ 2 & 1 \end{bmatrix}$$"
    assert check(read_text(text + scores)).points == (4, 4)
    assert verdicts(text + scores.replace("2 & 1", "2 & 3")) == [("scores", "3", "wrong")]


def test_projections_of_each_head():
    unit = r"\begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}"
    first, second = (rf"\begin{{bmatrix}} {rows} \end{{bmatrix}}" for rows in (r"1 \\ 0", r"0 \\ 1"))
    text = f"$$X = {unit}$$\n\n" + "".join(
        f"$$W_Q^{{({head})}} = {w}$$\n\n$$Q^{{({head})}} = {w}$$\n\n" for head, w in ((1, first), (2, second))
    )
    assert check(read_text(text)).points == (4, 4)
    assert verdicts(text.replace(rf"$$Q^{{(2)}} = {second}", rf"$$Q^{{(2)}} = {first}")) != []


def test_a_result_cut_to_a_whole_number_is_wrong():
    text = "Q\n1,0\n\nK\n1,1\n0,1\n\nV\n1,2\n3,4\n\nweights\n0.67,0.33\n\ncontext\n1,2\n"
    assert verdicts(text, ".csv") == [("context", "1", "wrong"), ("context", "2", "wrong")]


def test_wrong_weights_below_their_scores_in_a_text_with_a_program():
    program = "```python\nimport torch\nfor i in range(3):\n    print(i)\n```\n"
    scores = "QK^T = [[2, 0], [0, 2]]\nQK^T / √4 = [[1.0, 0.0], [0.0, 1.0]]"
    block = f"```\n{scores}\nSoftmax → [[0.61, 0.39], [0.27, 0.73]]\n```"
    assert ("weights", "0.61", "wrong") in verdicts(f"{program}\n{block}\n")


def test_scores_of_more_keys_than_are_shown():
    text = "query_i = [0.3, -0.2, 0.8, 0.1]\nkey_j = [0.5, 0.4, 0.7, 0.2]\n\nscores = [0.65, 0.20, 0.80, 0.10]\n"
    assert [entry[0] for entry in verdicts(f"```\n{text}\nweights = [0.25, 0.15, 0.45, 0.10]\n```")[:4]] == [
        "weights"
    ] * 4


def test_shares_called_s_are_weights():
    matrix = "S\n12,8\n8,4\n\nscaled\n8.485,5.657\n5.657,2.828\n\nS\n0.944,0.056\n0.944,0.056\n"
    assert verdicts(f"Q\n3,2\n1,2\n\nK\n2,3\n2,1\n\n{matrix}", ".csv") == []


@pytest.mark.parametrize(
    "line",
    ["shape: (3 × 2) = 3 samples, 2 features", "0.8 × 0.6 = 0.48\n+ 1.2 × 0.4 = 0.48\n= 0.96", "total_tokens = 0"],
)
def test_shapes_sums_in_lines_and_variables(line):
    assert verdicts(f"{line}\n\n2·3 + 1 = 7\n") == []


def test_nothing_checked_is_not_passed():
    assert all_passed([]) is None


STEPS = """| Token | Score | Score / √d_k | exp | Attention weight |
|---|---|---|---|---|
| the | 1 | 0.707 | 2.028 | 0.40 |
| cat | 0 | 0.000 | 1.000 | 0.20 |
| sat | 1 | 0.707 | 2.028 | 0.40 |
"""


def test_steps_of_one_query_as_columns():
    data = check(read_text(STEPS)).data()
    assert [cell["verdict"] for cell in data["cells"]] == ["right"] * 6
    assert verdicts(STEPS.replace("2.028 | 0.40 |\n| cat", "2.082 | 0.40 |\n| cat"))[0][:2] == ("powers", "2.082")
    rubric = "| Task | Weight | Score |\n|---|---|---|\n| a | 0.5 | 3 |\n| b | 0.6 | 4 |\n"
    assert verdicts(f"{rubric}\n2·3 = 6\n") == []


def test_one_vector_and_its_attention_are_of_a_longer_sequence():
    text = "```\nx_cat = [0.70, 0.33]\n```\n\n```\nAttention(x_cat) = [0.45, 0.17]\n```\n\n2·3 = 6\n"
    assert verdicts(text) == []


def test_tables_named_by_the_ones_that_were_recognised_before():
    tables = {"X": "1,0\n0,1", "Q": "3,1\n0,2", "K": "1,2\n2,0", "V": "3,1\n5,2"}
    q, k, v = (np.array([[float(n) for n in row.split(",")] for row in tables[name].split("\n")]) for name in "QKV")
    scaled = np.round(q @ k.T / np.sqrt(2), 1)
    weights = np.round(np.exp(scaled) / np.exp(scaled).sum(1, keepdims=True), 1)
    later = {"first": scaled, "second": weights, "third": np.round(weights @ v, 1)}
    tables |= {name: "\n".join(",".join(f"{n:.1f}" for n in row) for row in array) for name, array in later.items()}
    result = check(read_text("\n\n".join(f"{name}\n{rows}" for name, rows in tables.items()), ".csv"))
    assert result.passed, result.data()["unread"]
