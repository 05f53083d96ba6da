"""Published worked examples: no correct number is called wrong, and the wrong ones are found."""

import tomllib
from pathlib import Path

import pytest

from peasy.commands.check import check
from peasy.worked.tables.notes import _expand_written, read_text

EXAMPLES = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))["examples"]


def checked(example):
    if "text" in example:
        return check(read_text(example["text"], example["suffix"], example["title"]))
    return check({"title": example["title"]} | _expand_written(example["example"]))


def test_there_are_twenty():
    assert len(EXAMPLES) >= 20
    assert all(example["source"] for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=[example["title"] for example in EXAMPLES])
def test_verdicts_of_published_numbers(example):
    result = checked(example)
    cells = [cell for part in result.parts for cell in part.cells]
    wrong = [
        (cell.table, cell.row, cell.column, cell.written, cell.reason) for cell in cells if cell.verdict == "wrong"
    ]
    assert len(wrong) == example.get("wrong", 0), wrong
    assert len(cells) == example["cells"]
    assert not [row for part in result.parts for row in part.rows] or wrong
    assert (result.passed is True) == (not wrong), [unread for part in result.parts for unread in part.unread]
