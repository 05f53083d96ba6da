"""A student's session: from `peasy` without arguments to the arithmetic of one number, with typing mistakes."""

from pathlib import Path

import pytest

WEIGHTS = [[0.1978, 0.4011, 0.4011], [0.2483, 0.2483, 0.5035], [0.1400, 0.2840, 0.5760]]


def steps(ran) -> dict:
    return {step["name"]: step for step in ran.json["result"]["steps"]}


def test_from_the_first_command_to_one_number(peasy):
    assert "peasy demo" in peasy().out
    assert peasy("demo").code == 0

    names = peasy("examples", "--json")
    assert names.code == 0
    assert "i-love-ai" in names.out

    ran = peasy("explain", "i-love-ai", "--json")
    assert ran.json["result"]["tokens"] == ["I", "love", "AI"]
    found = steps(ran)
    assert [name for name in found if name in ("scores", "scaled", "weights", "context")] == [
        "scores", "scaled", "weights", "context",
    ]  # fmt: skip
    assert set(found["weights"]) >= {"name", "tex", "description", "rows", "columns", "values"}
    for row, known in zip(found["weights"]["values"], WEIGHTS, strict=True):
        assert row == pytest.approx(known, abs=1e-4)

    story = peasy("explain", "i-love-ai", "--query", "love").out
    assert "50" in story
    assert "%" in story

    page = peasy("explain", "i-love-ai", "--out", "love.html")
    assert page.code == 0
    assert "love" in Path("love.html").read_text(encoding="utf-8")


def test_the_same_word_has_the_same_vector(peasy):
    one = steps(peasy("explain", "the cat saw the dog", "--json"))
    x = next(iter(one.values()))["values"]
    assert x[0] == x[3]
    assert x[0] != x[1]


def test_a_sentence_from_stdin(peasy):
    assert peasy("explain", "-", "--json", stdin="I love AI\n").json["result"]["tokens"] == ["I", "love", "AI"]


def test_typing_mistakes(peasy):
    ran = peasy("explain", "i-love-ia")
    assert ran.code == 3
    assert "Did you mean i-love-ai?" in ran.err
    assert peasy("explain", "i-love-ai", "--qurey", "love").code == 2
    assert peasy("explain", "i-love-ai", "--query", "hate").code in (2, 3, 4)
    assert peasy("explain", "").code in (2, 3, 4)
    assert peasy("explain", "nowhere.toml").code == 3
    Path("empty.toml").touch()
    assert peasy("explain", "empty.toml").code == 4


def test_hostile_words_are_escaped(peasy):
    ran = peasy("explain", "<script>alert(1)</script> \\input{x} [red]bold[/red] \x1b[31m", "--out", "page.html")
    assert ran.code == 0
    assert "<script>alert" not in Path("page.html").read_text(encoding="utf-8")
    shown = peasy("explain", "a [red]bold[/red] \x1b[31m word")
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert "[red]bold[/red]" in shown.out
