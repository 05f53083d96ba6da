"""Notations, formats and names as people have them in notes: read, recognised by numbers, or listed as not read."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from peasy.commands.check import check, compare
from peasy.commands.explain import explain
from peasy.errors import InvalidInput, MissingExtra
from peasy.worked import intervals, read_example
from peasy.worked.attention_graph import FormulaSettings, attention_graph, given_matrices
from peasy.worked.checking.checker import TableChecker
from peasy.worked.checking.readings import TableReading
from peasy.worked.intervals import Interval
from peasy.worked.tables import notes, read_notes, read_text

X = "**X**\n\n| | 0 | 1 |\n|-|-|-|\n| I | 1 | 0 |\n| love | 0 | 1 |\n| AI | 1 | 1 |\n\n"
W = (
    r"$$W_Q = \begin{bmatrix} 1 & 0 \\ 1 & 1 \end{bmatrix}, W_K = \begin{bmatrix} 0 & 1 \\ 1 & 0 \end{bmatrix}$$"
    + "\n\n"
)
SCORES = "| | I | love | AI |\n|-|-|-|-|\n| I | 0 | 1 | 1 |\n| love | 1 | 1 | 2 |\n| AI | 1 | 2 | {} |\n"


def verdicts(result, table=None):
    return [cell.verdict for part in result.parts for cell in part.cells if table in (None, cell.table)]


def marked(text, suffix=".md"):
    return check(read_text(text, suffix))


LOVE = {"tokens": ["I", "love", "AI"], "x": [[1, 0], [0, 1], [1, 1]], "w_q": [[1, 0], [1, 1]], "w_k": [[0, 1], [1, 0]]}


def test_biases_are_added_and_checked():
    example = LOVE | {
        "w_v": [[1, 2], [0, 1]],
        "b_q": [10, 0],
        "b_k": [0, 1],
        "b_v": [1, 1],
        "w_o": [[1], [1]],
        "b_o": [5],
    }
    shown = explain(example)
    np.testing.assert_array_equal(shown.query, [[11, 0], [11, 1], [12, 1]])
    np.testing.assert_allclose(shown.output, shown.context.sum(axis=1, keepdims=True) + 5)
    assert shown.cell("query", 0, 0).texts == ("query: 1·1 + 0·1 + 10 = 1 + 0 + 10 = 11",)
    right = [["11", "0"], ["11", "1"], ["12", "1"]]
    assert check(example | {"written": [{"table": "Q", "cells": right}]}).passed
    missing = [["1", "0"], ["1", "1"], ["2", "1"]]
    wrong = check(example | {"written": [{"table": "Q", "cells": missing}]})
    assert "the bias was not added" in wrong.text().replace("\n", " ").replace("  ", "") or any(
        "the bias was not added" in cell.reason for part in wrong.parts for cell in part.cells
    )
    notes = X + W + "**b_Q**\n\n| | |\n|-|-|\n| 10 | 0 |\n\n**Q**\n\n| | |\n|-|-|\n| 11 | 0 |\n| 11 | 1 |\n| 12 | 7 |\n"
    assert verdicts(marked(notes), "Q") == ["right"] * 5 + ["wrong"]


@pytest.mark.parametrize("bias", [{"b_q": [1]}, {"b_q": [1, 2, 3]}])
def test_biases_must_fit(bias):
    with pytest.raises(InvalidInput, match="b_q"):
        read_example(LOVE | bias if len(bias["b_q"]) == 3 else {"tokens": ["a"], "x": [[1]]} | bias)


@pytest.mark.parametrize("labels", [("1", "2"), ("0", "1"), ("a", "b"), ("w1", "w2")])
def test_rows_of_a_projection_may_be_numbered_or_named(labels):
    table = "\n\n".join(
        f"**{name}**\n\n| | A | B |\n|-|-|-|\n| {labels[0]} | {rows[0]} |\n| {labels[1]} | {rows[1]} |"
        for name, rows in (("W_Q", ("1 | 0", "1 | 1")), ("W_K", ("0 | 1", "1 | 0")))
    )
    notes = X + table + "\n\n**Q**\n\n| | 0 | 1 |\n|-|-|-|\n| I | 1 | 0 |\n| love | 1 | 1 |\n| AI | 2 | 2 |\n"
    assert verdicts(marked(notes)) == ["right"] * 5 + ["wrong"]


def test_totals_are_checked_as_such():
    weights = "**weights**\n\n| | I | love | AI | Sum |\n|-|-|-|-|-|\n| I | 0.1978 | 0.4011 | 0.4011 | {} |\n"
    assert marked(X + W + weights.format("1")).passed
    wrong = marked(X + W + weights.format("1.2"))
    assert [(row.row, row.finding) for part in wrong.parts for row in part.rows] == [("I", "total")]
    rows = "**scores**\n\n" + SCORES.format(3) + "| Total | 2 | 4 | {} |\n"
    assert marked(X + W + rows.format("6")).passed
    assert not marked(X + W + rows.format("7")).passed


def test_percent_with_and_without_its_sign():
    for cells in ("19.8 % | 40.1 % | 40.1 %", "19.8 | 40.1 | 40.1", "20 | 40 | 40"):
        result = marked(X + W + f"**weights**\n\n| | I | love | AI |\n|-|-|-|-|\n| I | {cells} |\n")
        assert result.passed, cells
    assert "percent, without the sign" in " ".join(result.data()["remarks"])


def test_a_header_without_text_is_no_label():
    notes = "**X**\n\n| | |\n|-|-|\n| 1 | 0 |\n| 0 | 1 |\n\n**scores**\n\n| | |\n|-|-|\n| 1 | 0 |\n| 0 | 5 |\n"
    assert verdicts(marked(notes)) == ["right"] * 3 + ["wrong"]


@pytest.mark.parametrize(
    "array",
    [
        "scores:\n[[0. 1. 1.]\n [1. 1. 2.]\n [1. 2. 5.]]", "scores = [[0, 1, 1], [1, 1, 2], [1, 2, 5]]",
        "scores = tensor([[0., 1., 1.],\n        [1., 1., 2.],\n        [1., 2., 5.]])",
        "scores: array([[0, 1, 1],\n       [1, 1, 2],\n       [1, 2, 5]])",
        "attention scores\n[[0 1 1]\n [1 1 2]\n [1 2 5]]",
    ],
)  # fmt: skip
def test_arrays_are_read_in_text_and_in_code_blocks(array):
    given = "X = [[1, 0], [0, 1], [1, 1]]\nW_Q = [[1, 0], [1, 1]]\nW_K = [[0, 1], [1, 0]]\n"
    assert verdicts(marked(given + array, ".txt")) == ["right"] * 8 + ["wrong"]
    assert verdicts(marked(f"```\n{given}{array}\n```\n")) == ["right"] * 8 + ["wrong"]


def notebook(*cells):
    made = [
        {"cell_type": "code", "source": source, "outputs": [{"output_type": "stream", "text": output}], "metadata": {}}
        for source, output in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


INPUTS = ("import torch\ninputs = torch.tensor([[1., 0.], [0., 1.]])", "")


def test_notebooks_are_read_and_every_calculation_is_its_own():
    plain = (
        "attn_weights = torch.softmax(inputs @ inputs.T, -1)\nprint(attn_weights)",
        "tensor([[0.7311, 0.2689],\n        [0.2689, 0.7311]])",
    )
    scaled = (
        "attn_weights = torch.softmax(inputs @ inputs.T / 2**0.5, -1)\nprint(attn_weights)",
        "tensor([[0.6698, 0.3302],\n        [0.3302, 0.6698]])",
    )
    causal = ("print(attn_weights)", "tensor([[1.0000, 0.0000],\n        [0.3302, 0.6698]])")
    result = marked(notebook(INPUTS, plain, scaled, causal), ".ipynb")
    assert set(verdicts(result)) == {"right"}
    assert result.passed
    other = ("print(attn_weights)", "tensor([[0.6000, 0.4000],\n        [0.4000, 0.6000]])")
    unknown = marked(notebook(INPUTS, plain, other), ".ipynb")
    assert unknown.passed is None, "an array that nothing gives is not called wrong"
    assert [unread.table for part in unknown.parts for unread in part.unread] == ["weights"]
    slip = ("print(attn_weights)", "tensor([[0.7311, 0.2689],\n        [0.2689, 0.7411]])")
    assert marked(notebook(INPUTS, slip), ".ipynb").passed is False, "one wrong cell is a mistake"
    with pytest.raises(InvalidInput, match="not a Jupyter notebook"):
        read_text("{}", ".ipynb")


def test_tables_after_a_mistake_belong_to_the_same_calculation():
    weights = ("attn_weights = torch.softmax(inputs @ inputs.T, -1)\nprint(attn_weights)",
               "tensor([[0.7311, 0.2689],\n        [0.2689, 0.7411]])")  # fmt: skip
    context = "context = attn_weights @ inputs\nprint(context)"
    right = (context, "tensor([[0.7311, 0.2689],\n        [0.2689, 0.7311]])")
    result = marked(notebook(INPUTS, weights, right), ".ipynb")
    assert len(result.parts) == 1, "a table that agrees is no calculation of its own"
    assert verdicts(result).count("wrong") == 1
    wrong = (context, "tensor([[0.7811, 0.2689],\n        [0.2689, 0.7311]])")
    result = marked(notebook(INPUTS, weights, wrong), ".ipynb")
    assert not [unread for part in result.parts for unread in part.unread], "a second mistake is marked, too"
    assert verdicts(result).count("wrong") == 2


def test_workbooks_are_read_with_openpyxl(monkeypatch, tmp_path):
    path = tmp_path / "sheet.xlsx"
    path.write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtra):
        read_notes(path)
    rows = [
        ("X", None, None),
        (1, 0, None),
        (0, 1, None),
        (None,) * 3,
        ("scores", None, None),
        (1, 0, None),
        (0, 5, None),
    ]
    sheet = SimpleNamespace(title="Sheet1", iter_rows=lambda values_only: rows)
    book = SimpleNamespace(load_workbook=lambda *_, **__: SimpleNamespace(worksheets=[sheet]))
    monkeypatch.setitem(sys.modules, "openpyxl", book)
    assert verdicts(check(path)) == ["right"] * 3 + ["wrong"]


def test_arrays_in_files(tmp_path):
    path = tmp_path / "scores.npy"
    np.save(path, np.eye(2))
    assert read_notes(path).parts[0].written[0].table == "scores"


def test_a_table_without_a_name_is_recognised_by_its_numbers():
    result = marked(X + W + "**My results**\n\n" + SCORES.format(4))
    assert [cell.table for part in result.parts for cell in part.cells] == ["scores"] * 9
    assert verdicts(result) == ["right"] * 8 + ["wrong"]


def test_scores_that_are_the_weights_are_the_weights():
    """Some lectures call the weights attention scores; their numbers say which table it is."""
    rows = "| I | 0.20 | 0.40 | 0.40 |\n| love | 0.25 | 0.25 | 0.50 |\n| AI | 0.14 | 0.28 | 0.58 |\n"
    result = marked(X + W + f"**Attention scores**\n\n| | I | love | AI |\n|-|-|-|-|\n{rows}")
    assert result.passed, result.text()
    assert {cell.table for part in result.parts for cell in part.cells} == {"weights"}


def test_scores_that_are_scaled_are_the_scaled_scores_although_zeros_agree_with_both():
    given = "Q = [[1., 3.], [0., 0.]]\n\nK = [[0.5, 1.5], [0., 0.]]\n\n"
    repeated = (
        given + "Scores = [[5., 0.], [0., 0.]]\n\nWe divide by √2.\n\nAttention scores: [[3.5355, 0.], [0., 0.]]\n"
    )
    assert set(verdicts(marked(repeated))) == {"right"}
    assert "wrong" in verdicts(marked(repeated.replace("3.5355", "2.5355")))


@pytest.mark.parametrize("name", ["S", "logits", "energy", "attention logits", "QKᵀ"])
def test_names_of_scores(name):
    rows = "| I | 0 | 1 | 1 |\n| love | 1 | 1 | 2 |\n| AI | 1 | 2 | 3 |\n"
    result = marked(X + W + f"**{name}**\n\n| | I | love | AI |\n|-|-|-|-|\n{rows}")
    assert {cell.table for part in result.parts for cell in part.cells} == {"scores"}


@pytest.mark.parametrize("name", ["A", "α", "P", "attention map", "attention pattern", "softmaxed scores"])
def test_names_of_weights(name):
    result = marked(X + W + f"**{name}**\n\n| | I | love | AI |\n|-|-|-|-|\n| I | 0.20 | 0.40 | 0.40 |\n")
    assert {cell.table for part in result.parts for cell in part.cells} == {"weights"}


def test_plain_dot_products_are_a_convention_if_nothing_mentions_a_scale():
    weights = "**weights**\n\n| | I | love | AI |\n|-|-|-|-|\n| I | 0.1554 | 0.4223 | 0.4223 |\n"
    assert marked(X + W + weights).passed
    scaled = marked(X + W + "We divide by √2.\n\n" + weights)
    assert not scaled.passed
    assert all("not scaled" in cell.reason for part in scaled.parts for cell in part.cells)


def test_given_numbers_have_their_printed_precision():
    """0.1 · 0.3 from numbers that were 0.104 and 0.346: right as written, wrong if the numbers were whole."""
    given = {"tokens": ["a"], "q": [[0.1]], "k": [[0.3]]}
    assert verdicts(check(given | {"written": [{"table": "scores", "cells": [["0.036"]]}]})) == ["right"]
    assert verdicts(check(given | {"written": [{"table": "scores", "cells": [["0.056"]]}]})) == ["wrong"]
    whole = {"tokens": ["a"], "q": [[1]], "k": [[3]]}
    assert verdicts(check(whole | {"written": [{"table": "scores", "cells": [["3.6"]]}]})) == ["wrong"]
    remarks = check(given | {"written": [{"table": "scores", "cells": [["0.0312"]]}]}).data()["remarks"]
    assert any("too coarse" in remark for remark in remarks)


def _sheet(seed, exact):
    """A sheet of three decimals from inputs printed with one: as they are, or rounded from longer ones."""
    rng = np.random.default_rng(seed)
    x, *weights = (rng.normal(size=shape) for shape in ((4, 3), (3, 3), (3, 3), (3, 3)))
    printed = [array.round(1) for array in (x, *weights)]
    x, *weights = printed if exact else (x, *weights)
    tables = dict(zip(("Q", "K", "V"), (x @ each for each in weights), strict=True))
    tables["scores"] = tables["Q"] @ tables["K"].T
    tables["scaled"] = tables["scores"] / 3**0.5
    powers = np.exp(tables["scaled"])
    tables["weights"] = powers / powers.sum(axis=1, keepdims=True)
    tables["context"] = tables["weights"] @ tables["V"]
    given = dict(zip(("x", "w_q", "w_k", "w_v"), (array.tolist() for array in printed), strict=True))
    written = [{"table": name, "cells": [[f"{v:.3f}" for v in row] for row in t]} for name, t in tables.items()]
    return {"tokens": list("abcd"), **given, "written": written}


@pytest.mark.parametrize("seed", range(4))
def test_slip_in_the_last_digit_is_wrong_where_the_sheet_takes_its_decimals_as_exact(seed):
    sheet = _sheet(seed, exact=True)
    row = sheet["written"][3]["cells"][1]
    row[2] = f"{float(row[2]) + 0.002:.3f}"
    result = check(sheet)
    assert [cell.written for part in result.parts for cell in part.cells if cell.verdict == "wrong"] == [row[2]]
    assert any("exact here" in remark for remark in result.data()["remarks"])
    assert "wrong" not in verdicts(check(_sheet(seed, exact=False)))


def test_bounds_contain_every_calculation_with_inputs_in_their_bounds():
    """Two ways to one number: intervals, and 200 random choices of the inputs within their bounds."""
    rng = np.random.default_rng(0)
    for scoring, normalise in (("scaled-dot", "softmax"), ("cosine", "softmax"), ("dot", "none")):
        example = read_example(
            {"tokens": ["a", "b", "c"], "x": rng.normal(size=(3, 2)).round(2), "w_q": rng.normal(size=(2, 2)).round(2)}
            | {"w_k": rng.normal(size=(2, 2)).round(2), "w_v": rng.normal(size=(2, 2)).round(2), "causal": True}
            | {"scoring": scoring, "normalise": normalise}
        )
        graph = attention_graph(example, FormulaSettings.from_example(example))
        given = given_matrices(example)
        bounds = graph.evaluate({n: Interval(m - 0.005, m + 0.005) for n, m in given.items()}, intervals)
        for _ in range(200):
            values = graph.evaluate({n: m + rng.uniform(-0.005, 0.005, m.shape) for n, m in given.items()})
            for name, value in values.items():
                assert (bounds[name].low <= value + 1e-12).all(), name
                assert (value - 1e-12 <= bounds[name].high).all(), name


def test_fractions_run_through_the_same_steps():
    from fractions import Fraction

    example = read_example(LOVE)
    graph = attention_graph(example, FormulaSettings.from_example(example))
    third = {n: np.array([[Fraction(int(v), 3) for v in row] for row in m]) for n, m in given_matrices(example).items()}
    given = {name: third[name] for name in ("x", "w_q", "w_k")}
    query, key = (
        graph.nodes[name].routes[0].step.forward(np, given["x"], given[f"w_{name[0]}"]) for name in ("query", "key")
    )
    scores = graph.nodes["scores"].routes[0].step.forward(np, query, key)
    assert scores[2, 2] == Fraction(3, 81)


def test_why_two_solutions_differ():
    mine = LOVE | {"written": [{"table": "weights", "cells": [["0.1978", "0.4011", "0.4011"]], "rows": ["I"]}]}
    theirs = LOVE | {"written": [{"table": "weights", "cells": [["0.1554", "0.4223", "0.4223"]], "rows": ["I"]}]}
    (difference,) = compare(mine, theirs).differences
    assert not difference.agrees
    assert "the scores were not scaled" in " ".join(difference.reasons)
    assert compare(mine, mine).passed
    bare = [
        {"tokens": ["a", "b"], "written": [{"table": "scores", "cells": cells}]}
        for cells in ([["2", "4"], ["6", "8"]], [["1.4142", "2.8284"], ["4.2426", "5.6569"]])
    ]
    assert "1/√2" in " ".join(compare(*bare).differences[0].reasons)
    assert compare(LOVE | {"written": [{"table": "Q", "cells": [["1", "0"]]}]}, bare[0]).passed is None


def lecture(rng, decimals_in, decimals_out, goes_on_rounded):
    """A correct lecture: inputs printed with few decimals, results from all digits or from printed tables."""
    x, *weights = (rng.normal(size=shape) for shape in ((4, 3), (3, 3), (3, 3), (3, 3)))

    def kept(table):
        return np.array([[float(f"{n:.{decimals_out}f}") for n in row] for row in table]) if goes_on_rounded else table

    query, key, value = (x @ w for w in weights)
    scores = kept(query) @ kept(key).T
    scaled = kept(scores) / 3**0.5
    powers = np.exp(kept(scaled))
    shares = powers / powers.sum(axis=1, keepdims=True)
    tables = {"Q": query, "K": key, "V": value, "scores": scores, "scaled": scaled, "weights": shares}
    tables["context"] = kept(shares) @ kept(value)
    given = dict(zip(("x", "w_q", "w_k", "w_v"), (m.round(decimals_in) for m in (x, *weights)), strict=True))
    written = [
        {"table": name, "cells": [[f"{n:.{decimals_out}f}" for n in row] for row in table]}
        for name, table in tables.items()
    ]
    return {"tokens": list("abcd"), "written": written} | given


@pytest.mark.parametrize("decimals_out", [2, 3, 4])
@pytest.mark.parametrize("decimals_in", [1, 2, 3, 4])
@pytest.mark.parametrize("goes_on_rounded", [False, True])
def test_no_cell_of_a_correct_lecture_is_wrong(decimals_in, decimals_out, goes_on_rounded):
    rng = np.random.default_rng([decimals_in, decimals_out, goes_on_rounded])
    for _ in range(2):
        result = check(lecture(rng, decimals_in, decimals_out, goes_on_rounded))
        assert result.passed, [c for part in result.parts for c in part.cells if c.verdict != "right"][:3]


def test_without_bounds_of_the_inputs_a_correct_lecture_fails(monkeypatch):
    notes = lecture(np.random.default_rng(0), 2, 4, False)
    assert check(notes).passed
    monkeypatch.setattr(TableChecker, "given_bounds", lambda self, numbers, decimals: Interval.exact(numbers))
    assert not check(notes).passed


def test_a_wrong_cell_is_found_although_inputs_have_decimals():
    rng = np.random.default_rng(5)
    x, w_q = rng.normal(size=(4, 3)).round(1), rng.normal(size=(3, 3)).round(1)
    cells = [[f"{n:.2f}" for n in row] for row in x @ w_q]
    cells[2][1] = f"{float(cells[2][1]) + 0.09:.2f}"
    result = check({"tokens": list("abcd"), "x": x, "w_q": w_q, "written": [{"table": "Q", "cells": cells}]})
    assert [cell.written for part in result.parts for cell in part.cells if cell.verdict == "wrong"] == [cells[2][1]]


def test_a_document_may_calculate_twice_without_and_with_a_scale():
    weights = "**weights**\n\n| | I | love | AI |\n|-|-|-|-|\n| I | {} |\n\n"
    plain, scaled = weights.format("0.1554 | 0.4223 | 0.4223"), weights.format("0.1978 | 0.4011 | 0.4011")
    result = marked(X + W + plain + "Now divided by √2:\n\n" + scaled)
    assert len(result.parts) == 2
    assert result.passed, result.text()


_VECTORS = """
Embeddings:
- please → [1, 0]
- study → [0, 2]

Wq = [[1, 0], [0, 1]]
Wk = [[1, 1], [0, 1]]

Query vectors:
please → [1, 0]
study → [0, 2]

Key vectors:
please: [1, 1]
study: [0, 2]

Scores: [[1, 0], [2, {score}]]
"""


@pytest.mark.parametrize("suffix", [".md", ".txt"])
def test_labelled_vectors_and_arrays_in_prose_are_tables(suffix):
    right = marked(_VECTORS.format(score=4), suffix)
    assert (right.passed, set(verdicts(right)), len(verdicts(right))) == (True, {"right"}, 12)
    assert right.parts[0].tables[0].rows == ("please", "study")
    wrong = marked(_VECTORS.format(score=5), suffix).parts[0].cells
    assert [(cell.row, cell.column) for cell in wrong if cell.verdict == "wrong"] == [("study", "study")]


def test_one_array_may_be_given_several_names():
    text = "Q = K = V = [[1, 0], [0, 1]]\nscores:\n[[1, 0], [0, 1]]\nscaled:\n[[0.707, 0], [0, 0.707]]"
    result = marked(text, ".txt")
    names = {table.name for table in result.parts[0].tables}
    assert (result.passed, names) == (True, {"Q", "K", "V", "scores", "scaled"})


@pytest.mark.parametrize("end", ["; ", " \\\\ "])
def test_rows_that_are_separated_by_signs_are_the_rows_of_a_matrix(end):
    text = f"Q = [1 0{end}0 2]\n\nK = [1, 1{end}0, 1]\n\nscores = [1 0{end}2 2]\n"
    result = check(read_text(text))
    assert (result.passed, len(result.parts[0].cells)) == (True, 4)
    assert check(read_text(text.replace("2 2", "2 3"))).passed is False
    assert check(read_text(f"[1 0{end}0 2] * [1, 2] = [1, 4]")).passed is True
    assert check(read_text(f"[1 0{end}0 2] * [1, 2] = [1, 5]")).passed is False


def test_a_reading_knows_only_its_own_cells():
    reading = TableReading(np.eye(2), Interval.exact(np.eye(2)), True)
    assert [reading.knows(1, 1), reading.knows(2, 0), reading.knows(0, 2)] == [True, False, False]


def test_a_term_that_names_no_key_is_listed():
    notes = "weights\n\n| | a | b |\n|---|---|---|\n| a | 1 | 0 |\n| b | 0.5 | 0.5 |\n\ncontext\n\n"
    notes += "| | a | b | c |\n|---|---|---|---|\n| a | 1*v_0 | x | x |\n| b | 0.5*v_0 | 0.5*v_1 | 0.1*v_2 |\n"
    assert check(read_text(notes)).passed is None


def test_a_table_without_rows_is_listed_beside_others():
    result = check(read_text("X\n1,0\n0,1\n\nscores\n1,0\n0,1\n\nscaled\n,a,b\n", ".csv"))
    assert any(unread["table"] == "scaled" for unread in result.data()["unread"])


def test_symbols_of_all_tokens_in_one_row_are_not_those_of_one_token():
    result = check(read_text("v\n\n| | a | b |\n|---|---|---|\n| v | v_0 | v_1 |\n| x | v_0 | v_1 |\n"))
    assert result.passed is not False


def side_by_side(monkeypatch, tmp_path, weights):
    """Check a workbook with Q, K and V beside each other, and below them scores beside weights."""
    grid = np.full((12, 40), None, object)
    query, key, value = np.eye(3)[:, :2], np.ones((3, 2)), np.arange(6).reshape(3, 2)
    for row, column, name, table in (
        (0, 0, "Q", query), (0, 3, "K", key), (0, 6, "V", value),
        (6, 0, "scores", query @ key.T), (6, 5, "weights", weights),
    ):  # fmt: skip
        grid[row, column] = name
        grid[row + 1 : row + 4, column : column + table.shape[1]] = table
    sheet = SimpleNamespace(title="Sheet", iter_rows=lambda values_only: grid.tolist())
    book = SimpleNamespace(load_workbook=lambda *given, **named: SimpleNamespace(worksheets=[sheet]))
    monkeypatch.setitem(sys.modules, "openpyxl", book)
    (tmp_path / "notes.xlsx").write_bytes(b"")
    return check(tmp_path / "notes.xlsx")


def test_tables_beside_each_other_in_a_workbook(monkeypatch, tmp_path):
    weights = np.full((3, 3), 0.333)
    assert side_by_side(monkeypatch, tmp_path, weights).points == (18, 18)
    result = side_by_side(monkeypatch, tmp_path, weights + np.diag([0, 0.4, 0]))
    [cell] = [cell for cell in result.data()["cells"] if cell["verdict"] == "wrong"]
    assert (cell["table"], cell["row"], cell["column"]) == ("weights", "x_2", "x_2")


def test_empty_cells_of_a_workbook_do_not_count(monkeypatch, tmp_path):
    monkeypatch.setattr(notes, "_MAX_SHEET_CELLS", 50)
    assert side_by_side(monkeypatch, tmp_path, np.full((3, 3), 0.333)).points == (18, 18)
    monkeypatch.setattr(notes, "_MAX_SHEET_CELLS", 20)
    with pytest.raises(InvalidInput, match="more than 20 cells"):
        side_by_side(monkeypatch, tmp_path, np.full((3, 3), 0.333))


@pytest.mark.parametrize("line", ["- num_heads = 16", "d_k: 键向量的维度"])
def test_sentences_about_sizes_are_no_settings(line):
    assert check(read_text(f"{line}\n\n2·3 + 1 = 7\n")).passed


def test_many_rows_of_other_lengths_are_another_table():
    rows = "\n".join(",".join("1" * (3 + index % 2)) for index in range(8))
    result = check(read_text(f"X\n1,0\n0,1\n\nscores\n1,0\n0,1\n\nscaled\n{rows}\n", ".csv"))
    assert not any(row["table"] == "scaled" for row in result.data()["rows"])
    assert "8 × 3 or 4 cells instead of 2 × 2." in [unread["reason"] for unread in result.data()["unread"]]


def test_whole_numbers_of_a_program_are_not_cut_off_results():
    source = "X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])\ny = np.array([[0], [1], [1], [0]])"
    result = check(read_text(f"```python\n{source}\n```\n\n2·3 = 6\n"))
    assert not any(cell["table"] == "context" for cell in result.data()["cells"])
