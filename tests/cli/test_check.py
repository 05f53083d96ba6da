"""`peasy check`."""

import pytest

NOTES = "**X**\n\n| | 0 |\n|---|---|\n| a | 2 |\n\n**scores**\n\n| | a |\n|---|---|\n| a | {} |\n"


@pytest.fixture
def notes(tmp_path):
    def put(content, name="notes.md"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return put


def test_right_notes_pass(peasy, notes):
    told = peasy("check", notes(NOTES.format("4")), "--json")
    assert told.code == 0
    assert told.json["ok"] is True
    assert told.json["result"]["passed"] is True


@pytest.mark.parametrize("written", ["5", "nothing like it: 3"])
def test_wrong_notes_are_a_result_with_its_own_exit_code(peasy, notes, written):
    told = peasy("check", notes(NOTES.format(written.split()[-1])), "--json")
    assert told.code == 8
    assert told.json["ok"] is True
    assert told.json["result"]["passed"] is False


def test_cut_off_numbers_pass(peasy, notes):
    told = peasy("check", notes(NOTES.replace("| a | 2 |", "| a | 1.3 |").format("1.6")), "--json")
    assert [cell["verdict"] for cell in told.json["result"]["cells"]] == ["cut"]
    assert told.code == 0


def test_every_reason_is_printed(peasy, notes):
    told = peasy("check", notes(NOTES.format("5")))
    assert "2·2 = 4, not 5." in told.out


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("a.md", "", 4), ("a.csv", "X\nNaN\n", 4), ("a.toml", "x = ", 4), ("a.tex", "no table", 4), ("a.pdf", "%", 4)],
)
def test_what_cannot_be_read_is_said_without_a_traceback(peasy, notes, name, content, code):
    told = peasy("check", notes(content, name))
    assert told.code == code
    assert told.err.startswith("✗ ")
    assert "Traceback" not in told.err + told.out


def test_a_missing_file_is_not_found(peasy, tmp_path):
    assert peasy("check", str(tmp_path / "none.md")).code == 3
