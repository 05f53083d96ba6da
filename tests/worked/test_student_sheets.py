"""Student sheets with one mistake each, made by a script: it is found and named; what follows from it is not blamed."""

import numpy as np
import pytest

from peasy.commands.check import check
from peasy.worked.checking import checker
from peasy.worked.checking.readings import TableReading, add_written
from peasy.worked.tables import read_text

SEEDS = (3, 4)
ORDER = ("Q", "K", "V", "scores", "scaled", "masked", "weights", "context")


def softmax(scores, axis=-1, base=np.e):
    powers = base ** (scores - np.max(scores, axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def drawn(seed, causal):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (4, 3)).astype(float)
    w_q, w_k, w_v = (rng.integers(-1, 2, (3, 3)).astype(float) for _ in range(3))
    return {"X": x, "W_Q": w_q, "W_K": w_k, "W_V": w_v, "causal": causal}


def solved(given, **wrong):
    """All tables of a solution; `wrong` replaces the function of a table, and later tables go on from it."""
    t = {name: given[name] for name in ("X", "W_Q", "W_K", "W_V")}
    right = {
        "Q": lambda t: t["X"] @ t["W_Q"], "K": lambda t: t["X"] @ t["W_K"], "V": lambda t: t["X"] @ t["W_V"],
        "scores": lambda t: t["Q"] @ t["K"].T, "scaled": lambda t: t["scores"] / np.sqrt(3),
        "masked": lambda t: np.where(np.tri(4) > 0, t["scaled"], -np.inf) if given["causal"] else t["scaled"],
        "weights": lambda t: softmax(t["masked"]), "context": lambda t: t["weights"] @ t["V"],
    }  # fmt: skip
    for name in ORDER:
        t[name] = np.asarray(wrong.get(name, right[name])(t), float)
    return t


def swapped_rows(table):
    return table[[1, 0, 2, 3]]


def changed(table, row, column, value):
    table = table.copy()
    table[row, column] = value
    return table


def late_mask(t):
    return np.where(np.tri(4) > 0, softmax(t["scaled"]), 0)


MISTAKES = {
    "not scaled": ("scaled", lambda t: t["scores"], "not scaled"),
    "divided by d_k": ("scaled", lambda t: t["scores"] / 3, "divided by d_k"),
    "divided by the tokens": ("scaled", lambda t: t["scores"] / 4, "the number of tokens"),
    "divided by the root of the tokens": ("scaled", lambda t: t["scores"] / 2, "√ of the number of tokens"),
    "multiplied": ("scaled", lambda t: t["scores"] * np.sqrt(3), "multiplied by √d_k"),
    "whole quotient": ("scaled", lambda t: np.floor(t["scores"] / np.sqrt(3)), "whole number"),
    "root rounded": ("scaled", lambda t: t["scores"] / 1.7, "rounded too early"),
    "weights not scaled": ("weights", lambda t: softmax(t["scores"]), "not scaled"),
    "columns": ("weights", lambda t: softmax(t["masked"], axis=0), "over columns"),
    "twice": ("weights", lambda t: softmax(softmax(t["masked"])), "twice"),
    "no softmax": ("weights", lambda t: t["masked"], "softmax was not applied"),
    "divided by sums": ("weights", lambda t: t["masked"] / t["masked"].sum(1, keepdims=True), "without e^x"),
    "two to the power": ("weights", lambda t: softmax(t["masked"], base=2.0), "2^x"),
    "ten to the power": ("weights", lambda t: softmax(t["masked"], base=10.0), "10^x"),
    "powers only": ("weights", lambda t: np.exp(t["masked"]), "not divided by the sum"),
    "whole table": ("weights", lambda t: np.exp(t["masked"]) / np.exp(t["masked"]).sum(), "whole table"),
    "negative": ("weights", lambda t: softmax(-t["masked"]), "negative scores"),
    "W_Q transposed": ("Q", lambda t: t["X"] @ t["W_Q"].T, "transposed"),
    "wrong matrix": ("K", lambda t: t["X"] @ t["W_Q"], "used W_Q"),
    "K as V": ("V", lambda t: t["X"] @ t["W_K"], "used W_K"),
    "KQ": ("scores", lambda t: t["K"] @ t["Q"].T, "K·Qᵀ"),
    "QQ": ("scores", lambda t: t["Q"] @ t["Q"].T, "Q·Qᵀ"),
    "XX": ("scores", lambda t: t["X"] @ t["X"].T, "X·Xᵀ"),
    "rows swapped": ("scores", lambda t: swapped_rows(t["Q"] @ t["K"].T), "swapped"),
    "keys as values": ("context", lambda t: t["weights"] @ t["K"], "the keys instead of the values"),
    "inputs as values": ("context", lambda t: t["weights"] @ t["X"], "the inputs instead of the values"),
    "average": ("context", lambda t: np.tile(t["V"].mean(0), (4, 1)), "averaged"),
    "weights transposed": ("context", lambda t: t["weights"].T @ t["V"], "columns of the weights"),
    "sign": ("scores", lambda t: -(t["Q"] @ t["K"].T), "sign is wrong"),
    "percent": ("context", lambda t: 100 * (t["weights"] @ t["V"]), "percent"),
}
MASK_MISTAKES = {
    "no mask": ("weights", lambda t: softmax(t["scaled"]), "mask was not applied"),
    "transposed mask": ("masked", lambda t: np.where(np.tri(4).T > 0, t["scaled"], -np.inf), "transposed"),
    "zero as mask": ("masked", lambda t: np.where(np.tri(4) > 0, t["scaled"], 0.0), "set to 0"),
    "after softmax": ("weights", late_mask, "after the softmax"),
    "too wide": ("masked", lambda t: np.where(np.tri(4, k=1) > 0, t["scaled"], -np.inf), "one position too wide"),
}
SHEETS = [(name, *mistake, False, seed) for name, mistake in MISTAKES.items() for seed in SEEDS]
SHEETS += [(name, *mistake, True, seed) for name, mistake in MASK_MISTAKES.items() for seed in SEEDS]


def as_text(tables, causal, decimals, suffix):
    """Return a sheet as Markdown or CSV; the mask is a line of its own."""
    names = [name for name in ("X", "W_Q", "W_K", "W_V", *ORDER) if name != "masked" or causal]
    parts = [f"causal: {str(causal).lower()}" if suffix == ".md" else f"causal,{str(causal).lower()}"]
    for name in names:
        whole = name in ("X", "W_Q", "W_K", "W_V", "Q", "K", "V", "scores")
        rows = [
            ["x" if n == -np.inf else f"{n:.0f}" if whole else f"{n:.{decimals}f}" for n in row] for row in tables[name]
        ]
        if suffix == ".csv":
            parts.append("\n".join([name, *(",".join(row) for row in rows)]))
        else:
            lines = ["| " + " | ".join(row) + " |" for row in rows]
            parts.append("\n".join([f"**{name}**", "", "|" + " |" * len(rows[0]), "|" + "---|" * len(rows[0]), *lines]))
    return "\n\n".join(parts)


def sheet(mistake, causal, seed, decimals=3):
    table, wrong, _ = mistake
    given = drawn(seed, causal)
    tables = solved(given, **({table: wrong} if table else {}))
    return as_text(tables, causal, decimals, ".md" if seed % 2 else ".csv"), ".md" if seed % 2 else ".csv"


def test_there_are_at_least_sixty():
    assert len(SHEETS) + 8 >= 60


@pytest.mark.parametrize(("name", "table", "wrong", "phrase", "causal", "seed"), SHEETS)
def test_the_mistake_is_named_and_nothing_else_is_blamed(name, table, wrong, phrase, causal, seed):
    text, suffix = sheet((table, wrong, phrase), causal, seed)
    result = check(read_text(text, suffix))
    cells = [cell for part in result.parts for cell in part.cells if cell.verdict == "wrong"]
    assert cells, "the mistake was not found"
    assert {cell.table for cell in cells} == {table}, [(cell.table, cell.written, cell.reason) for cell in cells]
    named = sum(phrase in cell.reason for cell in cells)
    assert named >= 0.9 * len(cells), [cell.reason for cell in cells if phrase not in cell.reason][:3]
    assert result.passed is False


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("decimals", [1, 2, 4])
def test_a_right_sheet_passes(seed, causal, decimals):
    text, suffix = sheet((None, None, ""), causal, seed, decimals)
    result = check(read_text(text, suffix))
    assert result.passed, result.verdict


ONE_CELL = {
    "product left out": (lambda t: t["X"][0, 0] * t["W_Q"][0, 0], -1, "was left out"),
    "product with a wrong sign": (lambda t: t["X"][0, 0] * t["W_Q"][0, 0], -2, "wrong sign"),
    "product twice": (lambda t: t["X"][0, 0] * t["W_Q"][0, 0], 1, "added twice"),
}


@pytest.mark.parametrize("name", ONE_CELL)
def test_one_wrong_product_is_named(name):
    term, factor, phrase = ONE_CELL[name]
    given = drawn(1, False)
    given["X"][0], given["W_Q"][:, 0] = (3, 5, 7), (11, 13, 17)
    tables = solved(given, Q=lambda t: changed(t["X"] @ t["W_Q"], 0, 0, (t["X"] @ t["W_Q"])[0, 0] + factor * term(t)))
    result = check(read_text(as_text(tables, False, 3, ".md")))
    wrong = [cell for part in result.parts for cell in part.cells if cell.verdict == "wrong"]
    assert [(cell.table, cell.row, cell.column) for cell in wrong] == [("Q", "x_1", "0")]
    assert phrase in wrong[0].reason
    assert "3·11" in wrong[0].reason


def test_an_unnamed_mistake_is_followed(monkeypatch):
    """Scores divided by 2.5: no slip says so, yet the weights that go on from them are not wrong themselves."""
    text, suffix = sheet(("scaled", lambda t: t["scores"] / 2.5, ""), False, 1)
    cells = [cell for part in check(read_text(text, suffix)).parts for cell in part.cells]
    assert {cell.table for cell in cells if cell.verdict == "wrong"} == {"scaled"}
    assert sum(cell.verdict == "follows" for cell in cells) > 10
    monkeypatch.setattr(checker, "add_written", lambda *given: [r for r in add_written(*given) if r.clean])
    cells = [cell for part in check(read_text(text, suffix)).parts for cell in part.cells]
    assert "weights" in {cell.table for cell in cells if cell.verdict == "wrong"}


TWO = {
    "columns": ("weights", lambda t: softmax(t["masked"], axis=0), "over columns"),
    "twice": ("weights", lambda t: softmax(softmax(t["masked"])), "twice"),
    "keys as values": ("context", lambda t: t["weights"] @ t["K"], "the keys instead of the values"),
    "average": ("context", lambda t: np.tile(t["V"].mean(0), (4, 1)), "averaged"),
}


@pytest.mark.parametrize("name", TWO)
def test_a_second_mistake_is_named_on_the_numbers_of_the_first(name, monkeypatch):
    table, wrong, phrase = TWO[name]
    first = {"scores": lambda t: changed(t["Q"] @ t["K"].T, 1, 2, (t["Q"] @ t["K"].T)[1, 2] + 2)}
    text = as_text(solved(drawn(3, False), **first, **{table: wrong}), False, 3, ".md")
    cells = [cell for part in check(read_text(text)).parts for cell in part.cells if cell.verdict == "wrong"]
    assert {cell.table for cell in cells} == {"scores", table}
    assert sum(cell.table == "scores" for cell in cells) == 1
    assert all(phrase in cell.reason for cell in cells if cell.table == table)
    monkeypatch.setattr(TableReading, "points_before", lambda reading: {})
    monkeypatch.setattr(checker.TableChecker, "as_written", property(lambda _: {}, lambda *_: None), raising=False)
    cells = [cell for part in check(read_text(text)).parts for cell in part.cells if cell.table == table]
    assert name == "average" or not all(phrase in cell.reason for cell in cells if cell.verdict == "wrong")


def test_a_wrong_whole_number_is_exact_for_the_tables_after_it():
    """Half a unit of a sum of whole products would excuse any context in its row."""
    first = {"scores": lambda t: changed(t["Q"] @ t["K"].T, 1, 2, (t["Q"] @ t["K"].T)[1, 2] + 1)}
    tables = solved(drawn(3, False), **first)
    tables["context"] = changed(tables["context"], 1, 0, tables["context"][1, 0] + 0.05)
    cells = [cell for part in check(read_text(as_text(tables, False, 3, ".md"))).parts for cell in part.cells]
    assert [(cell.table, cell.row) for cell in cells if cell.verdict == "wrong"] == [
        ("scores", "x_2"),
        ("context", "x_2"),
    ]


ROUNDED = {
    "percent": ("context", lambda t: 100 * (t["weights"] @ t["V"]), "in percent", False),
    "keys": ("context", lambda t: t["weights"] @ t["K"], "the keys instead of the values", False),
    "powers": ("weights", lambda t: np.exp(t["masked"]), "not divided by the sum", False),
    "twice, masked keys too": ("weights", lambda t: softmax(softmax(t["masked"])), "softmax was applied twice", True),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_slips_of_authors_who_go_on_with_rounded_numbers(name):
    table, wrong, phrase, causal = ROUNDED[name]
    given = drawn(4, causal)
    rounded = {step: lambda t, step=step: np.round(right(given, t)[step], 2) for step in ("scaled", "weights")}
    tables = solved(given, **rounded | {table: lambda t: np.round(wrong(t), 2)})
    cells = [cell for part in check(read_text(as_text(tables, causal, 2, ".md"))).parts for cell in part.cells]
    mistakes = [cell for cell in cells if cell.verdict == "wrong"]
    assert {cell.table for cell in mistakes} == {table}
    assert all(phrase in cell.reason for cell in mistakes)


def right(given, t):
    """The right scaled scores and weights from the tables so far."""
    return {
        "scaled": t["scores"] / np.sqrt(3),
        "weights": softmax(t["masked"]) if "masked" in t else t["scores"],
    }
