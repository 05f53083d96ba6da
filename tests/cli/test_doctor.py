"""`peasy doctor`: installation checks and fixes."""

import importlib
import re

import pytest

from peasy.cli import doctor


def test_complete_installation_passes(peasy):
    ran = peasy("doctor", "--json")
    assert ran.code == 0
    assert ran.json["result"]["passed"] is True
    parts = {check["name"] for check in ran.json["result"]["checks"]}
    assert {"python", "numpy", "torch", "chromium", "settings folder", "network"} <= parts


@pytest.fixture
def without(monkeypatch):
    def hide(name: str, error: type[Exception] = ModuleNotFoundError):
        real = importlib.import_module

        def import_module(module: str):
            if module == name:
                raise error(f"No module named {name!r}")
            return real(module)

        monkeypatch.setattr(doctor, "import_module", import_module)

    return hide


def test_missing_extra_is_no_failure_but_has_a_fix(peasy, without):
    without("torch")
    ran = peasy("doctor")
    assert ran.code == 0
    assert re.search("–  torch +not installed", ran.out)
    assert 'pip install "peasy-attention[models]"' in " ".join(ran.out.split())


@pytest.mark.parametrize(("error", "details"), [(ModuleNotFoundError, "not installed"), (OSError, "broken: OSError")])
def test_missing_or_broken_dependency_fails_with_a_fix(peasy, without, error, details):
    without("numpy", error)
    ran = peasy("doctor", "--json")
    assert ran.code == 8
    check = next(item for item in ran.json["result"]["checks"] if item["name"] == "numpy")
    assert check["details"].startswith(details)
    assert check["fix"].startswith("pip install peasy-attention")
    assert check["fix"] in ran.json["next"]


def test_read_only_folder(peasy, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert "chmod u+w" in peasy("doctor").out


def test_missing_chromium_has_a_fix(peasy, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert "apt-get install chromium" in " ".join(peasy("doctor").out.split())
