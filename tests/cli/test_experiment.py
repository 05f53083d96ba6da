"""`peasy experiment` through the door."""

import json

from peasy.cli.app import run


def test_without_a_name_all_are_listed(capsys):
    assert run(["experiment"]) == 0
    assert "why-root-dk" in capsys.readouterr().out


def test_json_carries_verdict_and_numbers(capsys):
    assert run(["experiment", "matrix-form", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["holds"] is True
    assert "fused kernel" in result["numbers"]


def test_typo(capsys):
    assert run(["experiment", "matrix-from"]) == 3
    assert "matrix-form" in capsys.readouterr().err
