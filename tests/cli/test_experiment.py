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


def test_the_verdict_is_told_although_the_page_goes_to_a_file(capsys, tmp_path):
    assert run(["experiment", "matrix-form", "--out", str(tmp_path / "same.md")]) == 0
    err = capsys.readouterr().err
    assert "✓ All roads give the same numbers" in err
    assert run(["experiment", "matrix-form", "-q", "--out", str(tmp_path / "same.md")]) == 0
    assert "roads" not in capsys.readouterr().err
