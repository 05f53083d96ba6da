"""`peasy explain FILE`: invalid files give one clear error."""

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
def test_clear_error_or_result(peasy, content, code):
    Path("mine.toml").write_text(content, encoding="utf-8")
    ran = peasy("explain", "mine.toml")
    assert ran.code == code
    assert "Traceback" not in ran.err + ran.out
    assert "\x1b" not in ran.out


def test_too_many_tokens(peasy):
    Path("long.json").write_text(json.dumps({"title": "long", "tokens": ["a"] * 10_000, "x": [[1.0]] * 10_000}))
    ran = peasy("explain", "long.json")
    assert ran.code == 4
    assert "10,000 queries" in ran.err
