"""Slips that explain whole rows are named, and cells computed from them are not counted again."""

import numpy as np
import pytest

from peasy.worked import load_example, read_example, solve
from peasy.worked.checking import check, checker

TEA = {
    "tokens": ["tea", "bread", "blue"],
    "x": [[0, 1], [1, 1], [2, 2]],
    "w_q": [[1, 1], [1, 0]],
    "w_k": [[0, 2], [1, 0]],
    "w_v": [[1, -1], [1, 2]],
}


def shares(scores, axis=-1):
    powers = np.exp(scores)
    return powers / powers.sum(axis=axis, keepdims=True)


SLIPS = {
    "not scaled": lambda scores, scaled: shares(scores),
    "mask was not applied": lambda scores, scaled: shares(scaled),
    "over columns": lambda scores, scaled: shares(scaled, axis=0),
    "by their sum": lambda scores, scaled: scaled / scaled.sum(axis=-1, keepdims=True),
}


def handed_in(slip, **settings):
    """Return a solution computed with all digits and written with two decimals."""
    worked = solve(read_example(TEA | settings))
    weights = SLIPS[slip](worked.step("scores").values, worked.step("scaled").values)
    tables = {"weights": weights, "context": weights @ worked.step("value").values}
    written = [
        {"table": name, "cells": [[f"{number:.2f}" for number in row] for row in t]} for name, t in tables.items()
    ]
    return read_example(TEA | settings | {"written": written})


def wrong_tables(checked):
    return {cell.table for cell in checked.cells if cell.verdict == "wrong"}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_named_and_counted_once(slip):
    checked = check(handed_in(slip, causal=slip == "mask was not applied"))
    wrong = [cell for cell in checked.cells if cell.verdict == "wrong"]
    assert wrong
    assert not checked.passed
    assert all(slip in cell.reason for cell in wrong)
    assert wrong_tables(checked) == {"weights"}


def test_what_follows_an_unnamed_mistake_is_not_counted_again(monkeypatch):
    monkeypatch.setattr(checker.TableChecker, "find_slip", lambda *given: None)
    assert wrong_tables(check(handed_in("not scaled"))) == {"weights"}
    monkeypatch.setattr(checker, "add_written", lambda readings, *given: readings)
    assert wrong_tables(check(handed_in("not scaled"))) == {"weights", "context"}


@pytest.mark.parametrize("normalise", ["sum", "none"])
def test_slips_apply_only_to_softmax(normalise):
    assert "not scaled" not in " ".join(
        cell.reason for cell in check(handed_in("not scaled", normalise=normalise)).cells
    )


def test_a_single_wrong_number_is_not_a_slip():
    written = [{"table": "weights", "cells": [["0.20", "0.40", "0.41"]], "rows": ["I"]}]
    love = load_example("i-love-ai")
    notes = {"tokens": love.tokens, "x": love.x, "w_q": love.w_q, "w_k": love.w_k, "written": written}
    [wrong] = [cell for cell in check(read_example(notes)).cells if cell.verdict == "wrong"]
    assert wrong.reason.endswith("= 0.4011, not 0.41.")


def test_a_slip_in_queries_that_are_not_shown_is_named():
    worked = solve(read_example(TEA))
    scores = worked.values["x"] @ np.array(TEA["w_v"]) @ worked.values["key"].T
    weights = shares(scores / np.sqrt(2))
    written = [{"table": "weights", "cells": [[f"{number:.4f}" for number in row] for row in weights]}]
    wrong = [cell for cell in check(read_example(TEA | {"written": written})).cells if cell.verdict == "wrong"]
    assert wrong
    assert all("in query, query used W_V: e^" in cell.reason for cell in wrong)


def test_a_slip_of_one_number_after_an_earlier_mistake_is_named():
    worked = solve(read_example(TEA))
    value = worked.values["value"][:, ::-1]
    context = worked.values["weights"] @ value
    context[1, 0] *= 10
    written = [
        {"table": name, "cells": [[f"{number:.4f}" for number in row] for row in table]}
        for name, table in (("value", value), ("context", context))
    ]
    [wrong] = [
        cell for cell in check(read_example(TEA | {"written": written})).cells
        if cell.verdict == "wrong" and cell.table == "context"
    ]  # fmt: skip
    assert "consistent with the mistake in V, but the decimal point is one place too far right" in wrong.reason
