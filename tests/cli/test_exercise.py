"""`peasy exercise` from the terminal."""

from pathlib import Path

import pytest


def test_a_seed_makes_the_same_sheet_and_another_seed_another(peasy):
    first = peasy("exercise", "--seed", "5").out
    assert first == peasy("exercise", "--seed", "5").out
    assert first != peasy("exercise", "--seed", "6").out


def test_the_seed_is_always_printed(peasy):
    ran = peasy("exercise", "--json")
    assert "seed" in ran.out
    shown = peasy("exercise", "--seed", "41")
    assert "41" in shown.out + shown.err


@pytest.mark.parametrize("topic", ["plain", "masked", "cosine", "two-heads", "contexts"])
def test_the_key_is_right_and_a_spoilt_key_is_not(peasy, topic):
    assert peasy("exercise", "--seed", "5", "--topic", topic, "--out", "sheet.md").code == 0
    assert peasy("check", "sheet.md").code == 0
    assert peasy("check", "sheet-key.md").code == 0
    lines = Path("sheet-key.md").read_text(encoding="utf-8").splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("|") and any(c.isdigit() for c in line))
    cells = lines[last].split("|")
    place = max(i for i, cell in enumerate(cells) if cell.strip() and i > 1)
    cells[place] = " 77.77 "
    lines[last] = "|".join(cells)
    Path("spoilt.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert peasy("check", "spoilt.md").code == 8


def test_a_size_that_is_none(peasy):
    ran = peasy("exercise", "--size", "threebytwo")
    assert ran.code in (2, 4)
    assert "3x2" in ran.err
