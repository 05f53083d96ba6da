"""`make demo` and `make test`: install once, at exact versions, and report which tests were left out."""

import dataclasses
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
import tomllib

import pytest


@pytest.fixture
def clone(tmp_path, root):
    """Clone with an up-to-date .venv, installed a minute ago."""
    (tmp_path / "tests").mkdir()
    shutil.copy(root / "tests" / "check.py", tmp_path / "tests")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(root / name, tmp_path)
        os.utime(tmp_path / name, (time.time() - 120,) * 2)
    (tmp_path / ".venv").mkdir()
    for stamp in (".all", ".dev"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


def dry_run(folder, target: str) -> str:
    return subprocess.run(["make", "-n", target], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["demo", "test", "check"])
def test_a_second_make_installs_nothing(clone, target):
    assert "pip install" not in dry_run(clone, target)


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_again(clone, changed):
    os.utime(clone / changed, (time.time() + 60,) * 2)
    assert "pip install" in dry_run(clone, "demo")
    assert dry_run(clone, "test").count("pip install") == 2


def test_check_runs_every_step(clone):
    commands = dry_run(clone, "check")
    assert "tests/check.py" in commands
    assert "-m pytest" in commands
    steps = "\n".join(runpy.run_path(str(clone / "tests" / "check.py"))["STEPS"])
    for step in ("ruff format --check", "ruff check", "-m mypy\n", "lint_imports", "generate.py --check", "mkdocs"):
        assert step in steps
    for system in ("win32", "darwin", "linux"):
        assert f"mypy --platform {system}" in steps


def test_targets_are_python_calls(root):
    """Every target but `clean` works without make: its commands are calls of Python."""
    recipes = re.findall(r"^\t(.+)$", (root / "Makefile").read_text(), re.MULTILINE)
    programs = {line.lstrip("@").split()[0] for line in recipes}
    assert not [line for line in recipes if re.search(r"\$\(BIN\)/(?!python|pip|peasy studio)", line)]
    assert "$(BIN)/python" in programs


def test_continuous_integration_runs_make_check(root):
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


def test_every_dependency_is_pinned(root):
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (root / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {_canonical(name): version for name, version in pinned.items()}
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    names = {_canonical(re.match(r"[\w.-]+", line)[0]) for line in requirements} - {"peasy-attention"}
    assert not names - set(pinned)
    assert pinned["torch"] == "2.13.0"


def test_runtime_dependencies_have_lower_and_upper_bounds(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name not in ("all", "dev")}
    lines = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]
    lines = [line for line in lines if not line.startswith("peasy-attention[")]  # an extra that brings another
    assert not [line for line in lines if not re.fullmatch(r"[\w.-]+>=[\d.]+,<[\d.]+", line)]
    assert not [line for line in project["dependencies"] if line.startswith("torch")]


@pytest.fixture
def system(root, monkeypatch):
    spec = importlib.util.spec_from_file_location("tests_system", root / "tests" / "system.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tests_system", module)  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def installed_programs(system, monkeypatch):
    """Pretend that only these programs are installed."""

    def only(*programs: str) -> None:
        programs_found = [
            dataclasses.replace(program, find=lambda name=program.name: "/usr/bin/x" if name in programs else None)
            for program in system.REQUIRED_PROGRAMS
        ]
        monkeypatch.setattr(system, "REQUIRED_PROGRAMS", programs_found)

    return only


def test_skipped_tests_are_reported_at_the_end(system, installed_programs, capsys):
    installed_programs("pdflatex")
    system.report_left_out()
    out = capsys.readouterr().out
    assert "Left out: the tests of pages" in out
    assert "apt-get install chromium" in out
    assert "LaTeX" not in out


def test_nothing_is_reported_if_nothing_is_skipped(system, installed_programs, capsys):
    installed_programs("Chromium", "pdflatex")
    system.report_left_out()
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
def test_programs_are_installed_only_with_permission(
    system, installed_programs, monkeypatch, has, user, apt, installed
):
    ran = []
    installed_programs(*has)
    monkeypatch.setattr(system.os, "geteuid", lambda: user)
    monkeypatch.setattr(system.shutil, "which", lambda name: apt)
    monkeypatch.setattr(
        system.subprocess, "run", lambda command, **_: ran.extend(command) or subprocess.CompletedProcess(command, 0)
    )
    system.install()
    assert {"chromium", "texlive-latex-base"} & set(ran) == installed


def test_requirements_have_hashes_and_the_tested_versions(root):
    text = (root / "requirements.txt").read_text()
    entries = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE))
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (root / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {_canonical(name): version for name, version in pinned.items()}
    elsewhere = {"httpx2-jsfetch"}  # only for Python in a browser
    assert {name: pinned.get(_canonical(name)) for name in entries if name not in elsewhere} == {
        name: version for name, version in entries.items() if name not in elsewhere
    }
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    chosen = re.findall(r"[a-z]+", extras["all"][0].partition("[")[2])
    needed = {
        _canonical(re.match(r"[\w.-]+", line)[0])
        for line in [*project["dependencies"], *(one for extra in chosen for one in extras[extra])]
    }
    assert needed - {_canonical(name) for name in entries} == {"torch", "peasy-attention"}
    blocks = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text
