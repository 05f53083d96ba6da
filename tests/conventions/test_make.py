"""The two commands of the first screen: installed once, at exact versions, and honest about what they leave out."""

import dataclasses
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib

import pytest


@pytest.fixture
def clone(tmp_path, root):
    """A clone in which everything was installed a minute ago."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(root / name, tmp_path)
        os.utime(tmp_path / name, (time.time() - 120,) * 2)
    (tmp_path / ".venv").mkdir()
    for stamp in (".all", ".dev"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


def would_run(folder, target: str) -> str:
    return subprocess.run(["make", "-n", target], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["demo", "test", "check"])
def test_a_second_make_installs_nothing(clone, target):
    assert "pip install" not in would_run(clone, target)


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_what_is_needed_installs_again(clone, changed):
    os.utime(clone / changed, (time.time() + 60,) * 2)
    assert "pip install" in would_run(clone, "demo")
    assert would_run(clone, "test").count("pip install") == 2


def test_check_is_everything(clone):
    line = would_run(clone, "check")
    for part in ("ruff format --check", "ruff check", "mypy", "lint-imports", "generate.py --check", "pytest"):
        assert part in line


def test_the_integration_runs_check(root):
    script = root / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    assert "make check" in script.read_text()


def test_the_readme_opens_with_both_commands(root):
    first_screen = "\n".join((root / "README.md").read_text(encoding="utf-8").splitlines()[:12])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_has_its_exact_version(root):
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (root / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {_canonical(name): version for name, version in pinned.items()}
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {_canonical(re.match(r"[\w.-]+", line)[0]) for line in asked} - {"peasy"}
    assert not names - set(pinned)
    assert pinned["torch"] == "2.13.0"


def test_what_peasy_needs_at_run_time_has_a_floor_and_a_ceiling(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name not in ("all", "dev")}
    lines = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]
    assert not [line for line in lines if not re.fullmatch(r"[\w.-]+>=[\d.]+,<[\d.]+", line)]
    assert not [line for line in project["dependencies"] if line.startswith("torch")]


@pytest.fixture
def system(root, monkeypatch):
    spec = importlib.util.spec_from_file_location("system_needs", root / "tests" / "system.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "system_needs", module)  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lacking(system, monkeypatch):
    """Make the machine one that has only these programs."""

    def only(*programs: str) -> None:
        has = {need.program: "/usr/bin/x" if need.program in programs else None for need in system.NEEDS}
        needs = [dataclasses.replace(need, find=lambda p=need.program: has[p]) for need in system.NEEDS]
        monkeypatch.setattr(system, "NEEDS", needs)

    return only


def test_what_is_left_out_is_said_in_the_last_lines(system, lacking, capsys):
    lacking("pdflatex")
    system.left_out()
    out = capsys.readouterr().out
    assert "Left out: the tests of pages" in out
    assert "apt-get install chromium" in out
    assert "LaTeX" not in out


def test_where_nothing_is_left_out_nothing_is_said(system, lacking, capsys):
    lacking("Chromium", "pdflatex")
    system.left_out()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("has", "user", "apt", "installed"),
    [
        ((), 0, "/usr/bin/apt-get", {"chromium", "texlive-latex-base"}),
        (("pdflatex",), 0, "/usr/bin/apt-get", {"chromium"}),
        (("Chromium", "pdflatex"), 0, "/usr/bin/apt-get", set()),
        ((), 1000, "/usr/bin/apt-get", set()),
        ((), 0, None, set()),
    ],
)
def test_programs_are_installed_only_where_they_may_be(system, lacking, monkeypatch, has, user, apt, installed):
    ran = []
    lacking(*has)
    monkeypatch.setattr(system.os, "geteuid", lambda: user)
    monkeypatch.setattr(system.shutil, "which", lambda name: apt)
    monkeypatch.setattr(
        system.subprocess, "run", lambda command, **_: ran.extend(command) or subprocess.CompletedProcess(command, 0)
    )
    system.install()
    assert {"chromium", "texlive-latex-base"} & set(ran) == installed
