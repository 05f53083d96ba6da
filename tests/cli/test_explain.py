"""`peasy explain`; the numbers are tested in tests/worked."""

import json
from pathlib import Path

import pytest


def values(ran, step: str) -> list[list[float]]:
    return next(item["values"] for item in ran.json["result"]["steps"] if item["name"] == step)


def test_steps_are_in_order(peasy):
    result = peasy("explain", "i-love-ai", "--json").json["result"]
    assert result["tokens"] == ["I", "love", "AI"]
    names = [step["name"] for step in result["steps"]]
    assert [name for name in names if name in ("scores", "scaled", "weights", "context")] == [
        "scores",
        "scaled",
        "weights",
        "context",
    ]
    for step in result["steps"]:
        assert set(step) >= {"name", "tex", "description", "rows", "columns", "values"}
        assert len(step["values"]) == len(step["rows"])


def test_no_scores_if_weights_are_given(peasy):
    names = [step["name"] for step in peasy("explain", "easy-peasy", "--json").json["result"]["steps"]]
    assert "weights" in names
    assert "scores" not in names


def test_flags_change_the_numbers(peasy):
    plain = values(peasy("explain", "i-love-ai", "--json"), "weights")
    causal = values(peasy("explain", "i-love-ai", "--json", "--causal"), "weights")
    assert causal[0] == [1, 0, 0]
    assert causal[2] == plain[2]
    cosine = values(peasy("explain", "i-love-ai", "--json", "--scoring", "cosine"), "scores")
    assert max(max(row) for row in cosine) <= 1 + 1e-12
    by_sum = values(peasy("explain", "i-love-ai", "--json", "--normalise", "sum"), "weights")
    assert by_sum[0] == pytest.approx([0, 0.5, 0.5])


def test_decimals(peasy):
    assert "0.4011" not in peasy("explain", "i-love-ai", "--decimals", "2").out
    assert "0.40" in peasy("explain", "i-love-ai", "--decimals", "2").out


def test_cell_and_query(peasy):
    assert "2.0281 / 5.0562 = 0.4011" in peasy("explain", "i-love-ai", "--cell", "weights,I,love").out
    assert (
        peasy("explain", "i-love-ai", "--cell", "weights,0,1").out
        == peasy("explain", "i-love-ai", "--cell", "weights,I,love").out
    )
    assert "50.3 %" in peasy("explain", "i-love-ai", "--query", "love").out


def test_symbolic(peasy):
    assert "0.4*v_0 + 0.6*v_1" in peasy("explain", "easy-peasy", "--symbolic").out


@pytest.mark.parametrize("suffix", ["html", "svg", "tex", "md", "csv", "json", "png", "pdf"])
def test_every_output_format(peasy, suffix):
    ran = peasy("explain", "i-love-ai", "--out", f"love.{suffix}")
    assert ran.code == 0
    assert Path(f"love.{suffix}").stat().st_size > 100
    if suffix == "json":
        assert json.loads(Path("love.json").read_text(encoding="utf-8"))["tokens"] == ["I", "love", "AI"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["jurney"], 3, "Did you mean journey?"),
        (["nowhere.toml"], 3, "nowhere.toml"),
        (["i-love-ai", "--cell", "weights,I,hate"], None, "hate"),
        (["i-love-ai", "--cell", "weihgts,I,love"], None, "weights"),
        (["i-love-ai", "--heads", "3"], 4, "3"),
        (["i-love-ai", "--scoring", "cosin"], 2, "cosine"),
        (["i-love-ai", "--decimals", "-1"], None, "decimals"),
    ],
)
def test_errors(peasy, words, code, message):
    ran = peasy("explain", *words)
    assert ran.code == code if code else ran.code in (2, 3, 4)
    assert message in ran.err
    assert ran.err.startswith("✗ ")
    assert ran.out == ""


def test_mismatched_shapes(peasy):
    Path("mine.toml").write_text(
        'title = "mine"\ntokens = ["a", "b"]\nq = [[1, 2], [3, 4]]\nk = [[1, 2, 3], [4, 5, 6]]\nv = [[1], [2]]\n'
    )
    ran = peasy("explain", "mine.toml")
    assert ran.code == 4
    assert "inner dimensions should match" in ran.err
