"""Runs the documentation pages as tests: Python blocks, console blocks, and the files they create.

- ```python with >>> is a doctest, any other ```python block is run; a page is one Python session
- ```console: each `$ ...` line is run in the page's own folder, its output compared with the lines below it, where
  `...` matches anything; a last line `# exit 4` is the exit code when it is not 0
- ```toml file=notes.toml (or any language): the block is written to that file first
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from peasy.cli.app import run

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tour").rglob("*.md"))]
FENCE = re.compile(
    r"^```(?P<language>\w+)(?: +file=(?P<file>\S+))?[^\n]*\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)
SHELL = re.compile(r"[|<>&;$`]")


@dataclass(frozen=True)
class Block:
    language: str
    file: str | None
    body: str
    where: str


@dataclass(frozen=True)
class Command:
    line: str
    expected: str
    exit_code: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["file"], m["body"], f"{page.name}:{text.count(chr(10), 0, m.start()) + 1}")
        for m in FENCE.finditer(text)
    ]


def commands(body: str) -> list[Command]:
    found = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        exit_line = re.search(r"^# exit (\d+)\n?\Z", output, flags=re.MULTILINE)
        expected = output[: exit_line.start()] if exit_line else output
        found.append(Command(line, expected, int(exit_line[1]) if exit_line else 0))
    return found


def follow(page: Path) -> None:
    session: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.file:
            Path(block.file).write_text(block.body, encoding="utf-8")
        elif block.language == "python":
            _run_python(block, session)
        elif block.language == "console":
            for command in commands(block.body):
                _run_command(command, block.where)


def _run_python(block: Block, session: dict[str, object]) -> None:
    if ">>>" not in block.body:
        exec(compile(block.body, block.where, "exec"), session)
        return
    example = doctest.DocTestParser().get_doctest(block.body, session, block.where, block.where, 0)
    report = io.StringIO()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, _ = doctest.DocTestRunner(optionflags=flags).run(example, out=report.write, clear_globs=False)
    session.update(example.globs)
    assert not failed, f"{block.where}\n{report.getvalue()}"


def _run_command(command: Command, where: str) -> None:
    code, out, both = _in_shell(command.line) if SHELL.search(_unquoted(command.line)) else _in_process(command.line)
    location = f"{where}: $ {command.line}"
    assert code == command.exit_code, f"{location}\nexit {code}, not {command.exit_code}\n{both}"
    if command.expected.strip():
        assert _agrees(command.expected, out) or _agrees(command.expected, both), f"{location}\nprinted\n{both}"


def _unquoted(line: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"$`]*\"", "", line)


def _in_process(line: str) -> tuple[int, str, str]:
    words = shlex.split(line)
    assert words[0] == "peasy", f"{line}: only peasy commands and pipes can be run here"
    out, both = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(_Tee(out, both)), contextlib.redirect_stderr(both):
        code = run(words[1:])
    return code, out.getvalue(), both.getvalue()


class _Tee(io.StringIO):
    def __init__(self, *others: io.StringIO) -> None:
        super().__init__()
        self._others = others

    def write(self, text: str) -> int:
        for other in self._others:
            other.write(text)
        return len(text)


def _in_shell(line: str) -> tuple[int, str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=os.environ | {"PATH": path})
    return done.returncode, done.stdout, done.stdout + done.stderr


def _agrees(expected: str, printed: str) -> bool:
    # A line of dots at either end may also match no line.
    wanted = re.sub(r"\A\.\.\.\n|\.\.\.\n\Z", "...", _tidy(expected))
    return doctest.OutputChecker().check_output(wanted, _tidy(printed), doctest.ELLIPSIS)


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_output_is_correct(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PEASY_HOME", str(tmp_path.with_name(f"{tmp_path.name}-home")))
    follow(page)


def _page(folder: Path, *lines: str) -> Path:
    page = folder / "page.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


@pytest.mark.parametrize(
    "lines",
    [
        ("```python", ">>> 1 + 1", "3", "```"),
        ("```python", "assert 1 + 1 == 3", "```"),
        ("```console", "$ peasy version", "peasy 99", "```"),
        ("```console", "$ peasy version", "...", "# exit 4", "```"),
        ("```console", "$ peasy versoin", "```"),
        ("```console", "$ peasy version | grep 99", "```"),
        ("```console", "$ rm -r somewhere", "```"),
    ],
)
def test_a_page_with_wrong_output_fails(lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        follow(_page(tmp_path, *lines))


def test_a_correct_page_passes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["```toml file=a.toml", "x = 1", "```", "```python", ">>> open('a.toml').read()", "'x = 1\\n'", "```"]
    lines += [
        "```console",
        "$ peasy version --json | head -c 5",
        '{"ok"',
        "$ peasy versoin",
        "✗ There is ...",
        "# exit 2",
    ]
    follow(_page(tmp_path, *lines, "```"))
