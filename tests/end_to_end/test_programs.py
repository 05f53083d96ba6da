"""Commands called by a program: JSON output, 80 columns, exit codes, the same output twice."""

import json
import shlex

import pytest

from peasy.cli.app import build_cli
from peasy.cli.command_table import COMMANDS

QUICK = {
    "demo": [],
    "examples": [],
    "doctor": [],
    "version": [],
    "explain": ["journey"],
    "check": ["notes-i-love-ai"],
    "exercise": ["--seed", "5"],
    "experiment": [],
    "models": [],
    "runs": [],
    "cache": [],
    "data": [],
    "help": ["explain"],
}
NEED_A_MODEL = {"tokenize", "generate", "chat", "translate", "embed", "classify", "look", "prove", "import", "export"}
LONG_RUNNING = {"train", "evaluate", "compare", "plan", "bench", "serve", "studio"}
"""Tested in the same way in tests/cli: their output is a stream of events, or contains times."""


def test_every_command_is_listed():
    assert {*QUICK, *NEED_A_MODEL, *LONG_RUNNING} == {command.name for command in COMMANDS}


@pytest.mark.parametrize("command", QUICK)
def test_json_is_one_object_of_the_documented_form(peasy, command):
    result = peasy(command, *QUICK[command], "--json")
    envelope = json.loads(result.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert list(envelope) == ["ok", "command", "schema", "result", "files", "next"]
    assert (envelope["ok"], envelope["command"], envelope["schema"]) == (True, command, 1)
    assert isinstance(envelope["result"], dict)
    assert result.err == ""


@pytest.mark.parametrize("command", QUICK)
def test_eighty_columns_without_colours(peasy, command):
    from rich.cells import cell_len

    out = peasy(command, *QUICK[command]).out
    assert out.strip()
    assert "\x1b" not in out
    assert max(cell_len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("command", QUICK)
def test_suggested_commands_parse(peasy, command):
    """Suggested commands parse."""
    for line in peasy(command, *QUICK[command], "--json").json["next"]:
        name, *words = shlex.split(line)
        assert name == "peasy"
        build_cli(words[0]).parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("command", QUICK)
def test_errors_are_json_too(peasy, command):
    result = peasy(command, *QUICK[command], "--json", "--no-such-flag")
    assert (result.code, result.json["ok"], result.json["exit"]) == (2, False, 2)
    assert result.json["error"]["hint"]


@pytest.mark.parametrize("command", QUICK)
def test_output_is_deterministic(peasy, command, monkeypatch):
    monkeypatch.setattr("peasy.cli.doctor.available_ram", lambda: 2**33)  # other programs change it
    once, again = peasy(command, *QUICK[command]), peasy(command, *QUICK[command])
    assert once.out
    assert once == again
