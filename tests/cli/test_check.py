"""`peasy check` from the terminal."""

import pytest

RIGHT = "**scaled**\n\n| | I | love | AI |\n|-|-|-|-|\n| love | 0.71 | 0.71 | 1.41 |\n\n"
RIGHT += "**weights**\n\n| | I | love | AI |\n|-|-|-|-|\n| love | 0.25 | 0.25 | 0.50 |\n"
WRONG = RIGHT.replace("0.50", "0.53")


@pytest.fixture
def notes(tmp_path):
    def write(text: str, name: str = "notes.md") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


def test_right_notes_pass(peasy, notes):
    ran = peasy("check", notes(RIGHT))
    assert ran.code == 0
    assert "✗ 1" not in ran.out


def test_a_wrong_cell_is_exit_8_and_named(peasy, notes):
    ran = peasy("check", notes(WRONG), "--json")
    assert ran.code == 8
    result = ran.json["result"]
    assert ran.json["ok"] is True
    assert result["passed"] is False
    wrong = [cell for cell in result["cells"] if cell["verdict"] == "wrong"]
    assert [(c["table"], c["row"], c["column"], c["written"]) for c in wrong] == [("weights", "love", "AI", "0.53")]
    assert wrong[0]["right"] == pytest.approx(0.5017, abs=1e-3)
    assert [row["table"] for row in result["rows"]] == ["weights"]
    assert set(wrong[0]) >= {"table", "row", "column", "written", "right", "verdict", "why"}
    assert set(result["rows"][0]) >= {"table", "row", "finding", "why"}


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("empty.md", "", 4),
        ("empty.toml", "", 4),
        ("prose.md", "No table here.\n", 4),
        ("broken.toml", "x = [[1, ", 4),
        ("odd.pdf", "%PDF", 4),
    ],
)
def test_a_file_that_cannot_be_checked_is_one_clear_error(peasy, notes, name, text, code):
    ran = peasy("check", notes(text, name))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("✗ ")
    assert "Traceback" not in ran.err


def test_no_such_file(peasy):
    assert peasy("check", "nowhere.md").code == 3
