"""Hints name commands and flags that exist: advice must not be a dead end."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import peasy
from peasy.cli.app import run
from peasy.cli.command_table import COMMANDS, find_command

SOURCE = Path(peasy.__file__).parent
COMMAND = re.compile(r"\bpeasy ((?!\w+\.)[a-z][a-z0-9-]*)((?: (?:[^\s`\"';,.()]+|\"[^\"]*\"))*)")
WORDS_OF_PROSE = {
    "is", "has", "can", "cannot", "and", "or", "that", "supports", "does", "takes", "itself", "own", "reads", "from",
    "with", "to", "needs", "studio's", "as", "on", "in", "will", "keeps", "the", "for", "knows", "made", "shows",
    "never", "uses", "checkpoint", "computes",
}  # fmt: skip


def _strings(tree):
    """Yield the texts of a module, without docstrings; what is formatted in is X."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (docstrings | parts):
            yield node.value


def commands():
    """Return the command lines that the messages of peasy advise."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for text in _strings(ast.parse(path.read_text(encoding="utf-8"))):
            for name, rest in COMMAND.findall(text):
                if name not in WORDS_OF_PROSE and name != "X":
                    found.add(f"{name}{rest}".strip())
    return sorted(found)


@pytest.mark.parametrize("line", commands())
def test_advised_commands_and_flags_exist(line, capsys):
    words = shlex.split(line.replace("'", ""))
    command = find_command(words, COMMANDS)
    assert command is not None, line
    flags = [word for word in words if word.startswith("--") and word != "--help"]
    if flags:
        run([*command.path.split(), "--help"])
        shown = capsys.readouterr().out
        for flag in flags:
            assert flag.partition("=")[0] in shown, f"{line}: {words[0]} has no {flag}"
