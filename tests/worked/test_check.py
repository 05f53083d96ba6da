"""Checker of hand-written tables: cells are judged at their own decimals, and a mistake is counted once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.errors import InvalidInput
from peasy.worked import load_example, read_example, solve
from peasy.worked.checking import check
from peasy.worked.checking import verdict as check_verdict
from peasy.worked.example import Example, WrittenTable, library_files

DERIVED = ("query", "key", "value", "scores", "scaled", "masked", "weights", "context", "concat", "output")
LOVE = {
    "title": "I love AI",
    "tokens": ["I", "love", "AI"],
    "x": [[1, 0], [0, 1], [1, 1]],
    "w_q": [[1, 0], [1, 1]],
    "w_k": [[0, 1], [1, 0]],
    "w_v": [[1, 2], [0, 1]],
}


def wrote(*tables, **settings) -> Example:
    """I love AI with these tables: (name, cells) or (name, cells, more)."""
    written = [{"table": name, "cells": cells, **dict(*more)} for name, cells, *more in tables]
    return read_example(LOVE | settings | {"written": written})


def verdicts(checked, table=None):
    return [cell.verdict for cell in checked.cells if table in (None, cell.table)]


def fully_written(example: Example, decimals: int) -> Example:
    """Return the example with every derived table written at `decimals`."""
    tables = []
    for step in solve(example).steps:
        given = step.name == "weights" and example.weights is not None
        if step.base in DERIVED and not given and not (example.q and step.name == "query"):
            cells = tuple(tuple(_written(number, decimals) for number in row) for row in step.values)
            tables.append(WrittenTable(step.name, cells))
    return replace(example, written=tuple(tables), variants=())


def _written(number: float, decimals: int) -> str:
    return "x" if number == -np.inf else f"{number:.{decimals}f}"


def changed(example: Example, table: int, row: int, column: int, text: str) -> Example:
    written = list(example.written)
    cells = [list(cell_row) for cell_row in written[table].cells]
    cells[row][column] = text
    written[table] = replace(written[table], cells=tuple(map(tuple, cells)))
    return replace(example, written=tuple(written))


SMALL = [name for name in library_files() if len(load_example(name).tokens) <= 6]
HEADED = {
    "title": "two heads",
    "tokens": ["I", "love", "AI"],
    "heads": 2,
    **{k: LOVE[k] for k in ("x", "w_q", "w_k", "w_v")},
}
OTHERS = {
    "two heads": HEADED | {"w_o": [[1, 2], [0, 1]]},
    "causal": LOVE | {"causal": True},
    "source": LOVE
    | {"tokens": ["I", "AI"], "x": [[1, 0], [1, 1]], "source_tokens": ["love", "AI"], "source_x": [[0, 1], [1, 1]]},
    "by sum": LOVE | {"scoring": "dot", "normalise": "sum"},
    "cosine": LOVE | {"scoring": "cosine", "normalise": "none"},
    "biased": LOVE | {"bias": [[0.5, "-inf", 0], [0, 0, 0], [1, 0, 0]]},
    "scaled": LOVE | {"scale": 0.25, "window": 2},
    "given q k v": {
        "title": "t",
        "tokens": ["a", "b"],
        "q": [[1, 2], [0, 1]],
        "k": [[1, 1], [2, 0]],
        "v": [[3.0], [4]],
    },
}


def example_of(name: str) -> Example:
    return read_example(OTHERS[name]) if name in OTHERS else load_example(name)


@pytest.mark.parametrize("decimals", [2, 4])
@pytest.mark.parametrize("name", [*SMALL, *OTHERS])
def test_computed_tables_pass(name, decimals):
    example = fully_written(example_of(name), decimals)
    checked = check(example)
    assert not checked.has_mistakes, [cell for cell in checked.cells if cell.verdict != "right"] + list(checked.rows)
    assert checked.passed or not example.written
    assert checked.count("right") == sum(table.count_cells for table in map(_Counted, example.written))


class _Counted:
    def __init__(self, table: WrittenTable) -> None:
        self.count_cells = sum(map(len, table.cells))


@pytest.mark.parametrize("name", [*(name for name in SMALL if len(load_example(name).tokens) <= 3), *OTHERS])
def test_one_changed_cell_is_the_only_one_reported(name):
    example = fully_written(example_of(name), 3)
    for at, table in enumerate(example.written):
        for row, cells in enumerate(table.cells):
            for column, text in enumerate(cells):
                mistake = "7.5" if text == "x" else f"{float(text) + 0.9:.3f}"
                checked = check(changed(example, at, row, column, mistake))
                wrong = [cell for cell in checked.cells if cell.verdict not in ("right", "truncated")]
                assert len(wrong) == 1, (table.table, row, column, wrong)
                assert wrong[0].verdict == "wrong"
                assert wrong[0].written == mistake
                assert not checked.passed


@pytest.mark.parametrize(
    ("table", "row", "column"), [("query", 1, 0), ("key", 2, 1), ("value", 0, 1), ("scores", 1, 2), ("scaled", 0, 1)]
)
def test_cells_computed_from_a_mistake_follow_it(table, row, column):
    example = read_example(LOVE)
    exact = {step.name: step.values for step in solve(example).steps}
    spoilt = exact[table].copy()
    spoilt[row, column] += 2
    after = _worked_on(exact, table, spoilt)
    written = tuple(
        WrittenTable(name, tuple(tuple(f"{number:.4f}" for number in row) for row in values))
        for name, values in after.items()
    )
    checked = check(replace(example, written=written))
    wrong = [cell for cell in checked.cells if cell.verdict == "wrong"]
    assert [(cell.row, cell.column) for cell in wrong] == [(example.tokens[row], _label(example, table, column))]
    assert "follows" in verdicts(checked)
    assert all(cell.verdict in ("right", "follows") for cell in checked.cells if cell not in wrong)
    follower = next(cell for cell in checked.cells if cell.verdict == "follows")
    assert f"consistent with the mistake in {wrong[0].table}" in follower.reason


def _label(example, table, column):
    return example.tokens[column] if table in ("scores", "scaled") else str(column)


def _worked_on(exact, table, spoilt):
    """Return all tables from `table` on, computed with plain NumPy from the spoilt one."""
    now = dict(exact) | {table: spoilt}
    if table not in ("scores", "scaled"):
        now["scores"] = now["query"] @ now["key"].T
    if table != "scaled":
        now["scaled"] = now["scores"] / np.sqrt(2)
    powers = np.exp(now["scaled"])
    now["weights"] = powers / powers.sum(axis=1, keepdims=True)
    now["context"] = now["weights"] @ now["value"]
    order = ("query", "key", "value", "scores", "scaled", "weights", "context")
    return {name: now[name] for name in order if name in now}


def test_computing_from_the_rounded_earlier_table_is_right_too():
    """1 / 5.0562 = 0.1978; with the written powers 1 / 5.06 = 0.1976, and both are right."""
    powers = {"table": "powers", "cells": [["1", "2.03", "2.03"]], "rows": ["I"]}
    for weight in ("0.1978", "0.1976"):
        table = {"table": "weights", "cells": [[weight, "", ""]], "rows": ["I"]}
        assert verdicts(check(read_example(LOVE | {"written": [powers, table]})), "weights") == ["right"]
    alone = {"table": "weights", "cells": [["0.1976", "", ""]], "rows": ["I"]}
    assert verdicts(check(read_example(LOVE | {"written": [alone]}))) == ["wrong"]


def test_decimals_are_those_of_the_row_or_table():
    """One decimal less than the others is a shorter number; a whole number among decimals means that number."""
    checked = check(wrote(("scaled", [["0", "0.7", "0.71"], ["0.7071", "1", "1.41"], ["0.71", "1.4", "2.2"]])))
    assert verdicts(checked) == ["right"] * 4 + ["wrong"] + ["right"] * 3 + ["wrong"]
    four = [["0", "0.7071", "0.7071"], ["0.7071", "1", "1.4142"], ["0.7", "1.4142", "2.1213"]]
    assert [cell.written for cell in check(wrote(("scaled", four))).cells if cell.verdict == "wrong"] == ["1", "0.7"]


def test_truncated_numbers_pass_with_a_remark():
    checked = check(wrote(("weights", [["0.197", "0.401", "0.401"]], {"rows": ["I"]})))
    assert verdicts(checked) == ["truncated", "right", "right"]
    assert checked.passed
    assert checked.cells[0].reason.endswith("= 0.1978: cut off instead of rounded, which gives 0.198.")


def test_follows_needs_the_mistaken_table(monkeypatch):
    """Inverse: without the mistaken reading, cells that follow it are wrong."""
    tables = (
        ("scores", [["0", "1", "1"], ["1", "1", "3"], ["1", "2", "3"]]),
        ("scaled", [["0.71", "0.71", "2.12"]], {"rows": ["love"]}),
    )
    assert verdicts(check(wrote(*tables)), "scaled") == ["right", "right", "follows"]
    monkeypatch.setattr("peasy.worked.checking.checker.add_written", lambda readings, *_: readings)
    assert verdicts(check(wrote(*tables)), "scaled") == ["right", "right", "wrong"]


def test_without_the_truncation_rule_a_truncated_number_is_wrong(monkeypatch):
    monkeypatch.setattr(check_verdict.WrittenNumber, "may_be_cut", lambda *given: False)
    assert verdicts(check(wrote(("weights", [["0.197", "0.401", "0.401"]], {"rows": ["I"]}))))[0] == "wrong"


def test_blank_cells_are_counted_and_are_not_mistakes():
    checked = check(wrote(("scores", [["0", "", "__"], ["", "", ""], ["1", "2", "3"]])))
    assert checked.passed
    assert checked.count("blank") == 5
    assert checked.count("right") == 4


def test_later_tables_are_checked_beside_blanks():
    checked = check(
        wrote(
            ("scores", [["0", "", ""], ["1", "1", "3"], ["", "", ""]]),
            ("scaled", [["0", "0.71", "0.71"], ["0.71", "0.71", "2.12"]]),
        )
    )
    assert verdicts(checked, "scaled") == ["right"] * 5 + ["follows"]


@pytest.mark.parametrize(
    ("cells", "finding"),
    [
        ([["0.38", "0.4", "0.9"]], "1.68"),
        ([["0.38", "0.4", "0.24"]], "1.02"),
        ([["1", "1", "0"]], "= 2,"),
        ([["0.5", "0.6", "x"]], "1.1"),
        ([["1/3", "1/3", "1/4"]], "0.9167"),
    ],
)
def test_given_weights_must_sum_to_one(cells, finding):
    checked = check(given_weights(cells))
    assert [row.finding for row in checked.rows] == ["sum"]
    assert finding in checked.rows[0].reason
    assert not checked.cells
    assert not checked.passed


@pytest.mark.parametrize(
    "cells",
    [
        [["0.33", "0.33", "0.33"]],
        [["0.36", "0.40", "0.24"]],
        [["1", "0", "0"]],
        [["1/3", "1/3", "1/3"]],
        [["33%", "33%", "33%"]],
    ],
)
def test_sums_within_rounding_error_pass(cells):
    checked = check(given_weights(cells))
    assert not checked.has_mistakes
    assert checked.passed is None, "nothing could be calculated"


def given_weights(cells):
    written = [{"table": "weights", "cells": cells, "rows": ["Pizza"]}]
    return read_example({"title": "t", "tokens": ["Pizza", "is", "awesome"], "written": written})


def test_context_from_weights_that_do_not_sum_to_one_follows_them():
    example = given_weights([["0.38", "0.4", "0.24"]])
    more = (WrittenTable("V", (("0.6",), ("-0.35",), ("3.86",))), WrittenTable("context", (("1.0",),), ("Pizza",)))
    cell = check(replace(example, written=(*example.written, *more))).cells[0]
    assert (cell.verdict, cell.expected) == ("follows", None)


@pytest.mark.parametrize(
    ("written", "finding"),
    [("3.86", None), ("-0.35", None), ("4.1", "outside"), ("1.0", None), ("3.8", None)],
)
def test_range_of_a_weighted_sum(written, finding):
    tables = [
        {"table": "V", "cells": [["0.6"], ["-0.35"], ["3.86"]]},
        {"table": "context", "cells": [[written]], "rows": ["a"]},
    ]
    checked = check(read_example({"title": "t", "tokens": ["a", "b", "c"], "written": tables}))
    assert [row.finding for row in checked.rows] == ([finding] if finding else [])


def test_first_causal_token_may_equal_its_own_value():
    tables = [{"table": "V", "cells": [["1"], ["3"]]}, {"table": "context", "cells": [["1"], ["3"]]}]
    checked = check(read_example({"title": "t", "tokens": ["a", "b"], "causal": True, "written": tables}))
    assert [remark.partition(":")[0] for remark in checked.remarks] == ["context, row b"]


def test_rows_of_a_wrong_length_show_the_right_row():
    checked = check(wrote(("scores", [["0", "1", "1"], ["1", "1"], ["1", "2", "3", "4"]])))
    assert [(row.row, row.finding) for row in checked.rows] == [("love", "length"), ("AI", "length")]
    assert checked.rows[0].reason == "2 cells instead of 3: 1 1 2."
    assert verdicts(checked) == ["right"] * 3
    assert checked.tables[0].written[1][:2] == ("1", "1")


def test_extra_row_is_found():
    checked = check(wrote(("scores", [["0", "1", "1"], ["1", "1", "2"], ["1", "2", "3"], ["1", "2", "3"]])))
    assert [row.finding for row in checked.rows] == ["extra"]


@pytest.mark.parametrize("row", [["0.5", "0.5"], ["0.5", "0.5", "x"], ["0.5", "0.5", "0"], ["0.5", "0.5", "0.00"]])
def test_masked_cells_may_be_omitted_crossed_or_zero(row):
    assert check(wrote(("weights", [row], {"rows": ["love"]}), causal=True)).passed


def test_unmasked_cells_must_not_be_crossed_out():
    checked = check(wrote(("weights", [["1", "x", "x"], ["x", "1.0", "x"]]), causal=True))
    assert verdicts(checked) == ["right", "right", "right", "wrong", "wrong", "right"]


@pytest.mark.parametrize("hidden", ["-inf", "-1e9", "x", "−∞"])
def test_minus_infinity_in_many_notations(hidden):
    assert check(wrote(("masked", [["0", hidden, hidden]], {"rows": ["I"]}), causal=True)).passed


def test_rows_and_columns_may_be_reordered():
    table = ("scores", [["2", "1"], ["1", "0"]], {"rows": ["love", "I"], "columns": ["AI", "I"]})
    assert check(wrote(table)).passed


def test_repeated_tokens_are_matched_in_order():
    given = {"title": "t", "tokens": ["the", "a", "the"], "x": [[1], [2], [3]], "scoring": "dot"}
    table = {
        "table": "scores",
        "rows": ["the", "a", "the"],
        "cells": [["1", "2", "3"], ["2", "4", "6"], ["3", "6", "9"]],
    }
    assert check(read_example(given | {"written": [table]})).passed


def test_powers_and_sums_of_a_hand_calculated_softmax():
    tables = (
        ("powers", [["1", "2.03", "2.03"]], {"rows": ["I"]}),
        ("sums", [["5.06"]], {"rows": ["I"]}),
        ("weights", [["0.1976", "0.4012", "0.4012"]], {"rows": ["I"]}),
    )
    assert check(wrote(*tables)).passed
    assert not check(wrote(tables[2])).passed, "only from the rounded powers are these right"


def test_symbolic_weighted_sums():
    weights = {"table": "weights", "cells": [["1.0", "x"], ["0.4", "0.6"]]}
    given = {"title": "t", "tokens": ["Easy", "peasy"], "causal": True}

    def shares(*rows):
        return check(
            read_example(given | {"written": [weights, {"table": "context", "cells": [[row] for row in rows]}]})
        )

    assert shares("1.0*v_0", "0.4*v_0 + 0.6*v_1").passed
    assert shares("1 Easy", "0.4 easy + 0.6 peasy").passed
    assert shares("v_1", "0.4*v_1 + 0.6*v_2").passed, "counting may start at 1"
    assert verdicts(shares("1.0*v_0", "0.5*v_0 + 0.6*v_1"))[-1] == "wrong"
    assert [row.finding for row in shares("1.0*v_0", "0.4*v_0").rows] == ["missing"]


def test_mismatched_shapes_are_reported():
    tables = [("Q", [["1", "2"]]), ("K", [["1"]]), ("scores", [["1"]])]
    written = [{"table": name, "cells": cells} for name, cells in tables]
    checked = check(read_example({"title": "t", "tokens": ["a"], "written": written}))
    assert checked.passed is None
    assert "inner dimensions should match" in checked.unread[0].reason


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"table": "scoers", "cells": [["1"]]}, "no table"),
        ({"table": "scores", "cells": []}, "empty"),
        ({"table": "scores", "cells": [[]]}, "empty"),
        ({"table": "scores", "cells": [["nan", "1", "1"]]}, "cannot be read"),
        ({"table": "scores", "cells": [["1", "1", "1"]], "rows": ["loev"]}, None),
        ({"table": "scores", "cells": [["1", "1", "1"]] * 2, "rows": ["I", "loev"]}, "not one of the tokens"),
        ({"table": "scores", "cells": [["1", "1", "1"]], "rows": ["I", "love"]}, "names 2"),
        ({"table": "scores", "cells": [["1", "1", "1"]] * 2, "rows": ["I", "I"]}, "two rows for I"),
        ({"table": "X", "cells": [["1", "2"], ["1"]]}, "different lengths"),
        ({"table": "X", "cells": [["abc", "2"]]}, "cannot be read"),
        ({"table": "weights", "cells": [["a*b", "2", "3"]]}, "cannot be compared"),
        ({"table": "scores head 2", "cells": [["1", "1", "1"]]}, "names head 2"),
        ({"table": "context", "cells": [["0.4*y_9"]]}, None),
    ],
)  # fmt: skip
def test_one_unreadable_table_is_listed_and_stops_nothing(table, message):
    good = {"table": "Q", "cells": [["1", "0"], ["1", "1"], ["2", "7"]]}
    checked = check(read_example(LOVE | {"written": [table, good]}))
    assert [cell.written for cell in checked.cells if cell.table == "Q" and cell.verdict == "wrong"] == ["7"]
    assert [unread.reason for unread in checked.unread if message and message in unread.reason] or not message
    alone = check(read_example(LOVE | {"written": [table]}))
    assert alone.passed is not True or message is None


def test_overflow_is_listed():
    given = {"title": "t", "tokens": ["a"], "x": [[1e200]], "written": [{"table": "scores", "cells": [["1"]]}]}
    checked = check(read_example(given))
    assert checked.passed is None
    assert "overflow" in checked.unread[0].reason


def test_overflowing_powers_do_not_affect_the_weights():
    written = [{"table": "weights", "cells": [["1", "0"], ["0", "1"]]}]
    given = {"title": "t", "tokens": ["a", "b"], "x": [[40], [-40]], "scoring": "dot", "written": written}
    assert check(read_example(given)).passed


def test_too_large_examples_are_rejected_before_computing():
    tokens = [f"t{index}" for index in range(10_000)]
    example = read_example(
        {"title": "t", "tokens": tokens, "x": [[1.0]] * 10_000, "written": [{"table": "Q", "cells": [["1"]]}]}
    )
    with pytest.raises(InvalidInput, match="10,000 queries"):
        check(example)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_small_computed_example_passes(data):
    n, d, decimals = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    matrix = st.integers(-3, 3)

    def draw(rows, columns):
        return [[data.draw(matrix) for _ in range(columns)] for _ in range(rows)]

    given = {
        "title": "t", "tokens": [f"t{i}" for i in range(n)], "x": draw(n, d), "w_q": draw(d, 2), "w_k": draw(d, 2),
        "w_v": draw(d, 2), "causal": data.draw(st.booleans()),
        "scoring": data.draw(st.sampled_from(["dot", "cosine", "scaled-dot"])),
    }  # fmt: skip
    assert check(fully_written(read_example(given), decimals)).passed


@pytest.mark.parametrize("table", ["scores", "scaled", "masked"])
@pytest.mark.parametrize("sign", ["x", "-inf", "−∞", r"-\infty", r"$-\infty$"])
def test_masked_cells_of_a_given_table_have_weight_zero(table, sign):
    written = [{"table": table, "cells": [["1", "2"], ["3", sign]]}]
    written += [{"table": "weights", "cells": [["0.27", "0.73"], ["1", "0.2"]]}]
    notes = {"title": "t", "tokens": ["a", "b"], "scoring": "dot", "written": written}
    assert verdicts(check(read_example(notes)), "weights") == ["right", "right", "right", "wrong"]
