"""`peasy data`."""

import subprocess
import sys


def test_list_and_card(peasy):
    assert "stories" in peasy("data").out
    shown = peasy("data", "copy:4", "--set", "num_train=30", "--seed", "2")
    assert shown.code == 0
    assert "30" in shown.out
    result = peasy("data", "copy:4", "--set", "num_train=30", "--seed", "2", "--json").json["result"]
    assert result["notes"]["length"] == "4"
    assert result["hash"][:16] in shown.out


def test_files_and_pairs_of_files(peasy, tmp_path):
    (tmp_path / "a.en").write_text("cat\ndog\n")
    (tmp_path / "a.fr").write_text("chat\nchien\n")
    assert peasy("data", "a.en", "a.fr", "--json").json["result"]["kind"] == "pairs"
    (tmp_path / "names.txt").write_text("emma\nolivia\nava\n")
    assert peasy("data", "names.txt", "--set", "lines=true", "--json").json["result"]["examples"][0] == "emma"


def test_columns_of_a_table_can_be_named(peasy, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"english": "cat", "french": "chat"}\n' * 3)
    ran = peasy("data", "a.jsonl", "--set", "source=french", "--set", "target=english", "--json")
    assert ran.code == 0, ran.out
    assert ran.json["result"]["examples"][0]["source"] == "chat"


def test_invalid_rows_are_listed_and_strict_rejects_them(peasy, tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\nbad\nc\td\n")
    assert "a.tsv:2" in peasy("data", "a.tsv").out
    rejected = peasy("data", "a.tsv", "--strict")
    assert rejected.code == 4
    assert "a.tsv:2" in rejected.err


def test_errors_have_hints(peasy, tmp_path):
    missing = peasy("data", "storys")
    assert missing.code == 3
    assert "Did you mean stories?" in missing.err
    (tmp_path / "latin.txt").write_bytes("déjà vu, souvent et longtemps".encode("latin-1"))
    rejected = peasy("data", "latin.txt")
    assert rejected.code == 4
    assert "at byte 1" in rejected.err
    misspelt = peasy("data", "copy", "--set", "lenght=4")
    assert misspelt.code == 4
    assert "Did you mean length?" in misspelt.err


def test_works_without_torch():
    """The card is shown even if torch cannot be imported."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from peasy.cli.app import run\n"
        "sys.exit(run(['data', 'recall', '--set', 'num_train=10']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "16 words" in done.stdout
