"""`check`: one result, displayed, saved and returned as data."""

import json

import pytest

import peasy
from peasy.commands.check import CheckResult, check
from peasy.commands.exercise import exercise
from peasy.commands.explain import explain
from peasy.views.check import VERDICT_SIGNS
from peasy.worked import Example, load_example
from peasy.worked.checking import check as check_example

NOTES = {
    "title": "Mine",
    "tokens": ["I", "love", "AI"],
    "x": [[1, 0], [0, 1], [1, 1]],
    "scoring": "dot",
    "written": [{"table": "scores", "cells": [["1", "0", "1"], ["0", "1", "5"], ["", "1", "2"]]}],
}


def test_check_is_a_public_name():
    assert peasy.check.__wrapped__ is check
    assert isinstance(peasy.check(NOTES), CheckResult)


def test_data_are_plain_and_complete():
    data = json.loads(json.dumps(check(NOTES).data()))
    assert data["passed"] is False
    wrong = [cell for cell in data["cells"] if cell["verdict"] == "wrong"]
    assert [
        {key: cell[key] for key in ("table", "row", "column", "written", "expected", "reason")} for cell in wrong
    ] == [
        {
            "table": "scores",
            "row": "love",
            "column": "AI",
            "written": "5",
            "expected": 1.0,
            "reason": "0·1 + 1·1 = 1, not 5.",
        }
    ]
    assert {cell["verdict"] for cell in data["cells"]} <= {"right", "wrong", "follows", "truncated"}
    assert [(cell["row"], cell["column"]) for cell in data["blank"]] == [("AI", "I")]


def test_rows_name_table_row_finding_and_why():
    rows = check("lecture-journey").data()["rows"]
    assert [(row["table"], row["row"], row["finding"]) for row in rows] == [
        ("weights", "Your", "length"),
        ("weights", "Your", "sum"),
    ]
    assert all(row["reason"] for row in rows)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("notes-i-love-ai", "87 cells checked: 3 are wrong and 1 row does not hold."),
        (
            "lecture-journey",
            "12 cells checked: 1 is wrong, 2 are truncated instead of rounded and 1 row does not hold.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(name, sentence):
    assert check(name).verdict == sentence


def test_the_document_shows_every_table_with_its_marks():
    document = check(NOTES).document()
    (matrix,) = document.matrices()
    assert matrix.marks == {(1, 2)}
    assert matrix.values[1][2] == f"5 {VERDICT_SIGNS['wrong']}"
    assert matrix.values[2][0] == VERDICT_SIGNS["blank"]
    assert matrix.explain(1, 2).lines == ("wrong: 0·1 + 1·1 = 1, not 5.",)


def test_tables_taken_as_given_are_reported():
    result = check("lecture-easy-peasy")
    assert [table["table"] for table in result.data()["unverified"]] == []
    notes = {
        "title": "t",
        "tokens": ["a"],
        "written": [{"table": "V", "cells": [["1"]]}, {"table": "X", "cells": [["1"]]}],
    }
    assert [table["table"] for table in check(notes).data()["unverified"]] == ["V"]
    assert "V: taken as given, because its inputs are not in the file." in check(notes).text()


def test_a_table_with_a_missing_row_is_not_reported_as_taken():
    assert check("notes-i-love-ai").data()["unverified"] == []


def test_scores_without_d_k_report_what_is_missing():
    scores, weights = (
        {"table": "scores", "cells": [["1", "2"]] * 2},
        {"table": "weights", "cells": [["0.3", "0.7"]] * 2},
    )
    notes = {"title": "t", "tokens": ["a", "b"], "written": [scores, weights]}
    without_scoring, with_scoring = check(notes), check(notes | {"scoring": "dot"})
    assert "include Q or K, or a line such as scoring: dot" in " ".join(without_scoring.text().split())
    assert "include Q or K" not in with_scoring.text()
    assert len(with_scoring.data()["cells"]) == 4


def test_a_table_that_cannot_be_checked_is_not_called_right():
    result = check({"title": "t", "tokens": ["a", "b"], "written": [{"table": "scores", "cells": [["1", "2"]] * 2}]})
    assert result.verdict == "Nothing could be checked: no table can be calculated from another one."
    assert "✓" not in result.text()


def test_percentages_are_corrected_in_percent():
    notes = {"title": "t", "tokens": ["a", "b"], "scoring": "dot", "x": [[1, 0], [0, 1]]}
    result = check(notes | {"written": [{"table": "weights", "cells": [["73.1 %", "26,9%"], ["30 %", "73.1 %"]]}]})
    wrong = [cell for cell in result.data()["cells"] if cell["verdict"] == "wrong"]
    assert [cell["expected"] for cell in wrong] == [pytest.approx(0.2689, abs=1e-4)]
    assert "30 %     27 %" in result.text()


@pytest.mark.parametrize("suffix", ["md", "html", "tex", "csv", "json"])
def test_results_can_be_saved(suffix, tmp_path):
    path = check(NOTES).save(tmp_path / f"checked.{suffix}")
    assert "not 5" in path.read_text(encoding="utf-8")


def test_hostile_tokens_are_escaped():
    hostile = "<script>alert(1)</script>"
    notes = NOTES | {"tokens": [hostile, "love", "AI"], "title": hostile}
    assert hostile not in check(notes).html()


def test_paths_and_strings_are_accepted(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("**X**\n\n| | 0 |\n|-|-|\n| a | 2 |\n\n**scores**\n\n| | a |\n|-|-|\n| a | 4 |\n", encoding="utf-8")
    assert check(path).passed
    assert check(str(path)).passed
    assert check(path).verdict == "1 cell checked: all right."


def test_it_equals_the_check_of_the_worked_package():
    from peasy.worked import read_example

    assert check(NOTES).parts == (check_example(read_example(NOTES)),)


def marked(sheet, suffix, tmp_path):
    path = tmp_path / f"sheet.{suffix}"
    sheet.save(path)
    return check(path)


TOPICS = ["plain", "masked", "cosine", "two-heads", "contexts"]
SHEETS = [(topic, suffix) for topic in TOPICS for suffix in ("md", "tex", "csv")]


@pytest.mark.parametrize(("topic", "suffix"), SHEETS)
def test_worksheets_are_checked(topic, suffix, tmp_path):
    sheet = exercise("3x2", seed=7, topic=topic)
    to_compute = sum(step.values.size for step in sheet.exercise.solution)
    empty = marked(sheet, suffix, tmp_path)
    assert empty.passed
    assert len(empty.data()["blank"]) == to_compute
    key = marked(sheet.key(), suffix, tmp_path)
    assert key.passed, key.text()
    assert len(key.data()["cells"]) == to_compute


@pytest.mark.parametrize("topic", ["plain", "masked", "cosine", "two-heads"])
def test_a_wrong_answer_on_a_worksheet_is_found(topic, tmp_path):
    sheet = exercise("3x2", seed=7, topic=topic).key()
    path = sheet.save(tmp_path / "sheet.md")
    right = path.read_text(encoding="utf-8")
    start = right.index("|", right.index("scores**"))
    line = right[start:].splitlines()[2]
    path.write_text(right.replace(line, f"{line[: line.index('|', 2)]}| 77 | 77 | 77 |", 1), encoding="utf-8")
    wrong = [cell for cell in check(path).data()["cells"] if cell["verdict"] != "right"]
    assert {cell["written"] for cell in wrong} == {"77"}


EXPLAINED = [
    (name, suffix)
    for name in ("i-love-ai", "i-love-ai-two-heads", "i-love-ai-causal", "journey", "apple-orange")
    for suffix in ("md", "tex", "csv")
]


@pytest.mark.parametrize(("name", "suffix"), EXPLAINED)
def test_output_of_explain_passes(name, suffix, tmp_path):
    result = check(explain(name).save(tmp_path / f"explained.{suffix}"))
    assert result.passed is not False, result.text()
    assert result.passed or load_example(name).variants, "a variant has settings that the file does not give"
    assert len(result.data()["cells"]) > 40


def test_a_table_file_without_its_scoring_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(Example, "settings", ())
    assert not check(explain("journey").save(tmp_path / "explained.csv")).passed
