"""`peasy check`."""

import pytest

NOTES = "**X**\n\n| | 0 |\n|---|---|\n| a | 2 |\n\n**scores**\n\n| | a |\n|---|---|\n| a | {} |\n"


@pytest.fixture
def notes(tmp_path):
    def write(content, name="notes.md"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return write


def test_right_tables_pass(peasy, notes):
    ran = peasy("check", notes(NOTES.format("4")), "--json")
    assert ran.code == 0
    assert ran.json["ok"] is True
    assert ran.json["result"]["passed"] is True


@pytest.mark.parametrize("written", ["5", "nothing like it: 3"])
def test_wrong_tables_have_exit_code_8(peasy, notes, written):
    ran = peasy("check", notes(NOTES.format(written.split()[-1])), "--json")
    assert ran.code == 8
    assert ran.json["ok"] is True
    assert ran.json["result"]["passed"] is False


def test_truncated_numbers_pass(peasy, notes):
    ran = peasy("check", notes(NOTES.replace("| a | 2 |", "| a | 1.3 |").format("1.6")), "--json")
    assert [cell["verdict"] for cell in ran.json["result"]["cells"]] == ["truncated"]
    assert ran.code == 0


def test_reasons_are_printed(peasy, notes):
    ran = peasy("check", notes(NOTES.format("5")))
    assert "2·2 = 4, not 5." in ran.out


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("a.md", "", 4), ("a.csv", "X\nNaN\n", 4), ("a.toml", "x = ", 4), ("a.tex", "no table", 4), ("a.pdf", "%", 4)],
)
def test_unreadable_file_is_an_error_without_traceback(peasy, notes, name, content, code):
    ran = peasy("check", notes(content, name))
    assert ran.code == code
    assert ran.err.startswith("✗ ")
    assert "Traceback" not in ran.err + ran.out


def test_missing_file_is_not_found(peasy, tmp_path):
    assert peasy("check", str(tmp_path / "none.md")).code == 3
