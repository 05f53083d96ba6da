"""`peasy exercise`."""

from pathlib import Path

import pytest


def test_worksheet_depends_only_on_the_seed(peasy):
    first = peasy("exercise", "--seed", "5").out
    assert first == peasy("exercise", "--seed", "5").out
    assert first != peasy("exercise", "--seed", "6").out


def test_seed_is_printed(peasy):
    ran = peasy("exercise", "--json")
    assert "seed" in ran.out
    shown = peasy("exercise", "--seed", "41")
    assert "41" in shown.out + shown.err


@pytest.mark.parametrize("topic", ["plain", "masked", "cosine", "two-heads", "contexts"])
def test_answer_key_passes_and_a_changed_one_fails(peasy, topic):
    assert peasy("exercise", "--seed", "5", "--topic", topic, "--out", "sheet.md").code == 0
    assert peasy("check", "sheet.md").code == 0
    assert peasy("check", "sheet-key.md").code == 0
    lines = Path("sheet-key.md").read_text(encoding="utf-8").splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("|") and any(c.isdigit() for c in line))
    cells = lines[last].split("|")
    column = max(i for i, cell in enumerate(cells) if cell.strip() and i > 1)
    cells[column] = " 77.77 "
    lines[last] = "|".join(cells)
    Path("changed.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert peasy("check", "changed.md").code == 8


def test_invalid_size(peasy):
    ran = peasy("exercise", "--size", "threebytwo")
    assert ran.code in (2, 4)
    assert "3x2" in ran.err
