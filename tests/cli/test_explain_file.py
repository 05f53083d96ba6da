"""`peasy explain FILE`: whatever the file holds, one clear error or a right result."""

import json
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", 4),
        ("title = 'a'", 4),
        ("title = 'a'\ntokens = ['a']\nx = [[nan]]", 4),
        ("title = 'a'\ntokens = ['a', 'b']\nx = [[1, 2], [3]]", 4),
        ("title = 'a'\ntokens = ['a']\nx = [[1]]\nw_q = [[1], [2]]", 4),
        ("title = 'a'\ntokens = ['a']\nx = [['1']]", 4),
        ("title = 'a'\ntokens = ['a']\nhedas = 2", 4),
        ('title = "a"\ntokens = ["\\u001B[31m"]\nx = [[1]]', 0),
    ],
)
def test_one_clear_error_or_a_right_result(peasy, content, code):
    Path("mine.toml").write_text(content, encoding="utf-8")
    told = peasy("explain", "mine.toml")
    assert told.code == code
    assert "Traceback" not in told.err + told.out
    assert "\x1b" not in told.out


def test_ten_thousand_tokens_are_refused(peasy):
    Path("long.json").write_text(json.dumps({"title": "long", "tokens": ["a"] * 10_000, "x": [[1.0]] * 10_000}))
    told = peasy("explain", "long.json")
    assert told.code == 4
    assert "10,000 queries" in told.err
