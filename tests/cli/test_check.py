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
    ran = peasy("check", notes(NOTES.replace("| a | 2 |", "| a | 4/3 |").format("1.7")), "--json")
    assert [cell["verdict"] for cell in ran.json["result"]["cells"]] == ["truncated"]
    assert ran.code == 0


def test_reasons_are_printed(peasy, notes):
    ran = peasy("check", notes(NOTES.format("5")))
    assert "2·2 = 4, not 5." in ran.out


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("a.md", "", 4), ("a.toml", "x = ", 4), ("a.tex", "no table", 4), ("a.pdf", "%", 4)],
)
def test_unreadable_file_is_an_error_without_traceback(peasy, notes, name, content, code):
    ran = peasy("check", notes(content, name))
    assert ran.code == code
    assert ran.err.startswith("✗ ")
    assert "Traceback" not in ran.err + ran.out


def test_missing_file_is_not_found(peasy, tmp_path):
    assert peasy("check", str(tmp_path / "none.md")).code == 3


def test_what_was_not_read_has_exit_code_9(peasy, notes):
    ran = peasy("check", notes(NOTES.format("4") + "\n**holidays**\n\n| | 0 |\n|-|-|\n| a | 7 |\n"), "--json")
    assert ran.code == 9
    assert ran.json["result"]["passed"] is None
    assert [unread["table"] for unread in ran.json["result"]["unread"]] == ["holidays"]
    assert peasy("check", notes(NOTES.format("five"), "b.md")).code == 9


def test_many_files_and_folders(peasy, notes, tmp_path):
    good, bad = notes(NOTES.format("4")), notes(NOTES.format("5"), "bad.md")
    ran = peasy("check", good, bad, "--json")
    assert ran.code == 8
    assert [file["passed"] for file in ran.json["result"]["files"]] == [True, False]
    (tmp_path / "broken.toml").write_text("x = ", encoding="utf-8")
    folder = peasy("check", str(tmp_path))
    assert folder.code == 8
    assert "3 files: 1 without mistakes, 1 with mistakes, 0 not read in full, 1 not readable." in " ".join(
        folder.out.split()
    )


def test_two_solutions_are_compared(peasy, notes):
    ran = peasy("check", notes(NOTES.format("-4")), "--expected", notes(NOTES.format("4"), "b.md"), "--json")
    assert ran.code == 8
    assert "sign is wrong" in str(ran.json["result"]["tables"])
