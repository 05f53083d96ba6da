"""`exercise`: worksheet and answer key, both verified by `check`."""

import re

import pytest

import peasy
from peasy.worked.exercise import TOPICS


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("suffix", ["md", "tex"])
@pytest.mark.parametrize(("size", "seed"), [("3x2", 5), ("2x2", 1), ("4x4", 2), ("3x2", 11)])
def test_an_empty_sheet_and_the_key_pass_check(tmp_path, topic, suffix, size, seed):
    sheet = peasy.exercise(size, seed, topic)
    empty, key = sheet.save(tmp_path / f"sheet.{suffix}"), sheet.save_key(tmp_path / f"key.{suffix}")
    assert peasy.check(empty).passed
    checked = peasy.check(key)
    assert checked.passed, checked.text()
    tables = {(cell["table"]) for cell in checked.data()["cells"] if cell["verdict"] == "right"}
    assert tables >= set(sheet.data()["to_compute"]), "every requested table is checked"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_wrong_answer_is_found(tmp_path, topic):
    key = peasy.exercise("3x2", 5, topic).save_key(tmp_path / "key.md")
    lines = key.read_text(encoding="utf-8").splitlines()
    last = max(index for index, line in enumerate(lines) if re.match(r"\| \w+ \|", line))
    first, *cells = lines[last].strip("| ").split(" | ")
    lines[last] = f"| {first} | {float(cells[0]) + 1:.2f} | {' | '.join(cells[1:])} |"
    key.write_text("\n".join(lines), encoding="utf-8")
    assert not peasy.check(key).passed


def test_sheet_and_key_in_all_formats(tmp_path):
    sheet = peasy.exercise("3x2", 5)
    for suffix in ("md", "tex", "html", "json"):
        assert sheet.save(tmp_path / f"sheet.{suffix}").stat().st_size > 200
        assert sheet.save_key(tmp_path / f"key.{suffix}").stat().st_size > 200
    assert "answers" in sheet.data()
    answer = f"{sheet.exercise.worked.step('weights').values[0, 0]:.2f}"
    assert answer in sheet.key().markdown()
    assert answer not in sheet.markdown()
