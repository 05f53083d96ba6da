"""A program's path: every verb speaks JSON, fits 80 columns and leaves with a code that means something."""

import json
import shlex

import pytest

from peasy.cli.app import build_cli
from peasy.cli.command_table import COMMANDS

READY = {
    "demo": [],
    "examples": [],
    "doctor": [],
    "version": [],
    "explain": ["journey"],
    "check": ["003-i-love-ai"],
    "exercise": ["--seed", "5"],
    "experiment": [],
    "models": [],
    "runs": [],
    "data": [],
}
WITH_A_MODEL = {"tokenize", "generate", "chat", "translate", "embed", "look", "prove", "import", "export"}
THAT_TAKE_TIME = {"train", "evaluate", "compare", "plan", "bench", "serve", "studio"}
"""These walk the same path in tests of their own, in tests/cli: they speak in events, or of seconds that differ."""


def test_every_verb_is_here():
    assert {*READY, *WITH_A_MODEL, *THAT_TAKE_TIME} == {verb.name for verb in COMMANDS}


@pytest.mark.parametrize("verb", READY)
def test_json_is_one_object_of_the_promised_form(peasy, verb):
    ran = peasy(verb, *READY[verb], "--json")
    told = json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert list(told) == ["ok", "command", "schema", "result", "files", "next"]
    assert (told["ok"], told["command"], told["schema"]) == (True, verb, 1)
    assert isinstance(told["result"], dict)
    assert ran.err == ""


@pytest.mark.parametrize("verb", READY)
def test_eighty_columns_without_colours(peasy, verb):
    from rich.cells import cell_len

    out = peasy(verb, *READY[verb]).out
    assert out.strip()
    assert "\x1b" not in out
    assert max(cell_len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("verb", READY)
def test_next_commands_are_commands(peasy, verb):
    """What a verb advises to type can be typed."""
    for line in peasy(verb, *READY[verb], "--json").json["next"]:
        name, *words = shlex.split(line)
        assert name == "peasy"
        build_cli(words[0]).parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("verb", READY)
def test_failure_speaks_json_too(peasy, verb):
    ran = peasy(verb, *READY[verb], "--json", "--no-such-flag")
    assert (ran.code, ran.json["ok"], ran.json["exit"]) == (2, False, 2)
    assert ran.json["error"]["hint"]


@pytest.mark.parametrize("verb", READY)
def test_the_same_command_says_the_same(peasy, verb):
    once, again = peasy(verb, *READY[verb]), peasy(verb, *READY[verb])
    assert once.out
    assert once == again
