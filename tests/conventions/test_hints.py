"""Hints are commands that work: all are collected from the code, filled with real values, parsed, and run if cheap."""

import ast
import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

import peasy
from peasy.cli.app import _command_first, _parse, build_cli, run
from peasy.cli.command import STDIN, Flags
from peasy.cli.command_table import COMMANDS, all_commands, find_command
from peasy.errors import UsageError

SOURCE = Path(peasy.__file__).parent
COMMAND = re.compile(r'(?<![.\w])peasy (?!\w+\.)([a-z][a-z0-9-]*(?: (?:"[^"\n]*"|[^\s`;,()"]+(?:,\d+)*))*)')
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!-)")
VERBS_OF_PROSE = {
    "is", "has", "can", "does", "itself", "reads", "to", "never", "uses", "checkpoint", "computes", "that",
}  # fmt: skip
"""Words after the name peasy in a sentence about it."""

SENTENCES = {"check on the file", "check takes a .toml"}
"""Sentences about a command that are no command lines."""

VALUES = {
    "FOLDER": "model", "FILE": "texts.txt", "PATH": "texts.txt", "NAME": "why-root-dk", "file.py:name": "own.py:attend",
    "defined": "attend", "file": "own.py", "files[0]": "notes.md", "path": "notes.md", "flags.out": "notes.md",
    "largest.name": "shards", "last": "--query pizza", "node": "d_W_Q", "seed": "3", "self.seed": "3",
    "self.steps": "10", "self.data": "stories", "self.kind": "gpt", "self.recipe()['model_kind']": "gpt",
    "self.name if is_named else self.folder": "mine", "run.name": "mine", "result.facts.models[0].run": "mine",
    "command.path": "look",
    "size_flag": "--size 3x2 ", "topic": "plain", "source": "i-love-ai", "worked.names[-1]": "context",
    "token if worked.tokens.count(token) == 1 else 0": "AI", "quote(record.tokens.text) if short else '- < text.txt'":
    '"The pizza"', "my-notes.md": "notes.md", "...": "stories",
}  # fmt: skip
"""Value of each placeholder and formatted expression of a hint; another expression is a model or a text."""

TEXTS = {"shown", "short", "texts[0][:60]", "name"}
MODELS = {"model", "name", "entry.name", "loaded.name", "quote(record.model)", "body.model[:100]"}
CHEAP = {
    "check", "data", "examples", "exercise", "experiment", "explain", "generate", "look", "models", "models show",
    "runs", "tokenize",
}  # fmt: skip
"""Commands that are also run; others train, serve, measure, need a network or delete something."""

NOT_RUN = {
    'explain "stories"', "data stories", "experiment why-root-dk", "look stories --history", "explain - < notes.md",
    "models mine",
    "explain i-love-ai --step gradients", 'explain i-love-ai --follow "d_W_Q[0,0]"',
}  # fmt: skip
"""Lines of these commands that take long, or need a run of your own, standard input or an example with gradients."""


def hint_texts(tree):
    """Yield the texts of a module, without docstrings; what is formatted in is its value, or a model or a text."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    formatted = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(_fill, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements | formatted:
            yield node.value


def _fill(part):
    if isinstance(part, ast.Constant):
        return str(part.value)
    expression = ast.unparse(part.value)
    return VALUES.get(expression) or (
        "stories" if expression in MODELS else "The pizza" if expression in TEXTS else "X"
    )


def command_lines(texts):
    """Return the command lines in these texts, each up to the end of its sentence."""
    found = set()
    for text in texts:
        for line in COMMAND.findall(text):
            line = re.split(r"[.:](?: |$)", line)[0] if not line.endswith("...") else line
            if line.split()[0] not in VERBS_OF_PROSE and line not in SENTENCES:
                line = line.replace("explain NAME", "explain i-love-ai")
                found.add(" ".join(VALUES.get(word, word) for word in line.split(" ")))
    return sorted(found)


def all_hints():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    return command_lines(text for tree in trees for text in hint_texts(tree))


def parse(line):
    """Parse a command line as `peasy` does: command, flags and types of values."""
    words = _command_first([STDIN if word == "-" else word for word in shlex.split(line.partition(" < ")[0])])
    assert find_command(words, COMMANDS) is not None, f"no command: {line}"
    if "--help" not in words:
        _parse(words, Flags())


def flags_of(command):
    """Return the flags of a command."""
    app = build_cli(*command.path.split())
    for word in command.path.split():
        app = app[word]
    return {name for argument in app.assemble_argument_collection() for name in argument.names} | {"--help"}


HINTS = all_hints()


@pytest.mark.parametrize("line", HINTS)
def test_advised_commands_parse(line, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("notes"))
    command = find_command(line.split(), COMMANDS)
    assert command is not None, line
    if not line[len(command.path) :].strip() or line.split()[-1].startswith("--"):  # the name of a command or flag
        with contextlib.suppress(UsageError):
            parse(line)
        words = [word for word in line.split() if word.startswith("--")]
        assert not set(words) - flags_of(command), line
    else:
        parse(line)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """Folder with the files that hints name."""
    folder = tmp_path_factory.mktemp("hints")
    (folder / "texts.txt").write_text("The pizza came out.\n\nIt tasted good.\n", encoding="utf-8")
    (folder / "own.py").write_text(
        "import peasy\n\n\ndef attend(Q, K, V):\n    return peasy.attention(Q, K, V).output\n"
    )
    run(["exercise", "--seed", "3", "--answer-key", "--out", str(folder / "notes.md"), "--quiet"])
    return folder


def is_cheap(line):
    command = find_command(line.split(), COMMANDS)
    return command is not None and command.path in CHEAP and line not in NOT_RUN


@pytest.mark.parametrize("line", [line for line in HINTS if is_cheap(line)])
def test_cheap_advised_commands_run(line, workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("PEASY_HOME", str(workplace / "home"))
    assert run([*shlex.split(line.partition(" < ")[0]), "--offline"]) == 0, capsys.readouterr().err


def test_wrong_hints_are_found():
    """The inverse: a missing command, a missing flag, a value of the wrong type, one argument too many."""
    text = (
        "See: peasy models. Or: peasy trian gpt --data x; peasy train gpt --stesp 5, peasy look stories X --layer one."
    )
    right, *wrong = command_lines([text, "peasy runs show a b"])
    assert right == "look stories X --layer one"
    for line in [right, *(line for line in wrong if line != "models")]:
        with pytest.raises((UsageError, AssertionError)):
            parse(line)


def test_flags_named_in_hints_exist():
    """Also those that a message names without their command."""
    known = {"--version", "--install-completion", "--force-reinstall"}.union(*map(flags_of, all_commands(COMMANDS)))
    for module in [SOURCE / "errors.py", *SOURCE.rglob("c*/*.py")]:
        for text in hint_texts(ast.parse(module.read_text(encoding="utf-8"))):
            assert not set(FLAG.findall(text)) - known - {"--stories"}, (module.name, text)  # a name was filled in
