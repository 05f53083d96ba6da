"""`peasy experiment`."""

import json

from peasy.cli.app import run


def test_list_of_experiments(capsys):
    assert run(["experiment"]) == 0
    assert "why-root-dk" in capsys.readouterr().out


def test_json_has_verdict_and_numbers(capsys):
    assert run(["experiment", "matrix-form", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["holds"] is True
    assert "fused kernel" in result["numbers"]


def test_typo(capsys):
    assert run(["experiment", "matrix-from"]) == 3
    assert "matrix-form" in capsys.readouterr().err


def test_verdict_is_printed_when_saving_to_a_file(capsys, tmp_path):
    assert run(["experiment", "matrix-form", "--out", str(tmp_path / "same.md")]) == 0
    err = capsys.readouterr().err
    assert "✓ supported: All methods give the same numbers" in err
    assert run(["experiment", "matrix-form", "-q", "--out", str(tmp_path / "same.md")]) == 0
    assert "All methods" not in capsys.readouterr().err
