"""`peasy help`: the same text as `--help`."""

import pytest


@pytest.mark.parametrize("words", [[], ["generate"], ["runs"], ["runs", "diff"], ["models", "rm"]])
def test_same_text_as_the_flag(peasy, words):
    ran = peasy("help", *words)
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out == peasy(*words, "--help").out


def test_json(peasy):
    result = peasy("help", "runs", "diff", "--json").json["result"]
    assert result["command"] == "runs diff"
    assert "peasy runs diff quiet-fox brave-owl" in result["help"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["genrate"], "Did you mean generate?"),
        (["runs", "dif"], "Did you mean diff?"),
        (["runs", "diff", "more"], "runs diff has no subcommands"),
        (["generate", "more"], "generate has no subcommands"),
    ],
)
def test_unknown_command(peasy, words, message):
    ran = peasy("help", *words)
    assert ran.code == 2
    assert message in ran.err
