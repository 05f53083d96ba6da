"""`peasy doctor`: what works, and the fix for what does not."""

import importlib

import pytest

from peasy.cli import doctor


def test_a_sound_machine_passes(peasy):
    ran = peasy("doctor", "--json")
    assert ran.code == 0
    assert ran.json["result"]["passed"] is True
    parts = {finding["part"] for finding in ran.json["result"]["findings"]}
    assert {"python", "numpy", "torch", "chromium", "settings folder", "network"} <= parts


@pytest.fixture
def without(monkeypatch):
    def hide(name: str, error: type[Exception] = ModuleNotFoundError):
        real = importlib.import_module

        def find(asked: str):
            if asked == name:
                raise error(f"No module named {name!r}")
            return real(asked)

        monkeypatch.setattr(doctor, "import_module", find)

    return hide


def test_a_missing_extra_is_no_illness_but_has_its_line(peasy, without):
    without("torch")
    ran = peasy("doctor")
    assert ran.code == 0
    assert "–  torch             not installed" in ran.out
    assert 'pip install "peasy[models]"' in ran.out


@pytest.mark.parametrize(("error", "seen"), [(ModuleNotFoundError, "not installed"), (OSError, "broken: OSError")])
def test_a_missing_or_broken_need_fails_with_its_fix(peasy, without, error, seen):
    without("numpy", error)
    ran = peasy("doctor", "--json")
    assert ran.code == 8
    finding = next(each for each in ran.json["result"]["findings"] if each["part"] == "numpy")
    assert finding["seen"].startswith(seen)
    assert finding["fix"].startswith("pip install peasy")
    assert finding["fix"] in ran.json["next"]


def test_a_folder_that_cannot_be_written(peasy, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert "chmod u+w" in peasy("doctor").out


def test_no_chromium_says_how_to_get_it(peasy, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert "apt-get install chromium" in " ".join(peasy("doctor").out.split())
