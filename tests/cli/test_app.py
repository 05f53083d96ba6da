"""Command line: output streams, JSON envelope, errors and exit codes."""

import errno
import json
import re
import signal
import subprocess
import sys
import time
from typing import get_args

import pytest

from peasy import errors
from peasy.cli.command import CommandOutput, DocumentResult, Flags, TextArg
from peasy.views.document import Document, Matrix, Paragraph


def test_without_a_command_it_lists_what_to_try(peasy):
    ran = peasy()
    assert ran.code == 0
    assert "peasy demo" in ran.out
    assert "rounded" not in ran.out, "there are no numbers on this page"
    assert ran.err == ""


def test_help_lists_every_command_with_examples_first(peasy):
    from peasy.cli.command_table import COMMANDS

    out = peasy("--help").out
    assert out.index("peasy explain i-love-ai") < out.index("╭")
    assert all(command.summary in " ".join(out.replace("│", " ").split()) for command in COMMANDS)


def test_version_flag(peasy):
    from peasy import __version__

    assert peasy("--version").out.strip() == peasy("-V").out.strip() == __version__


def test_help_has_short_parallel_summaries():
    """Every summary is one sentence that starts with a verb and fits on one line of 80 columns."""
    from peasy.cli.command_table import COMMANDS, all_commands

    summaries = [command.summary for command in all_commands(COMMANDS)]
    assert not [line for line in summaries if not (line[0].isupper() and line.endswith(".") and line.count(".") == 1)]
    assert not [line for line in summaries if line.split()[0].endswith("s") and line.split()[0] != "Compress"]
    assert max(len(line) for line in summaries) <= 64


def test_result_on_stdout_and_rest_on_stderr(peasy, register, answer):
    register(_answering(CommandOutput(answer.result, suggestions=["peasy greet Grace"])))
    ran = peasy("greet")
    assert ran.out == "Greeting\n\nHello Ada.\n"
    assert ran.err == "\nNext:\n  peasy greet Grace\n"
    assert peasy("greet", "-q").err == ""


def test_json_envelope(peasy, register, answer):
    register(_answering(CommandOutput(answer.result, suggestions=["peasy greet Grace"], files=["a.txt"])))
    ran = peasy("greet", "--json")
    assert ran.json == {
        "ok": True,
        "command": "greet",
        "schema": 1,
        "result": {"greeting": "Hello Ada."},
        "files": ["a.txt"],
        "next": ["peasy greet Grace"],
    }
    assert ran.err == ""
    assert ran.out.count("\n") == 1


def test_json_is_valid_with_nan_and_inf(peasy, register):
    result = DocumentResult(Document("x", ()), {"values": [float("nan"), float("inf"), 1.5]})
    register(_answering(CommandOutput(result)))
    json.loads(peasy("greet", "--json").out, parse_constant=lambda name: pytest.fail(name))


def test_failed_check_has_exit_code_8(peasy, register, answer):
    register(_answering(CommandOutput(answer.result, exit_code=8)))
    ran = peasy("greet", "--json")
    assert (ran.code, ran.json["ok"]) == (8, True)


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (errors.UsageError("so"), 2, "usage"),
        (errors.NotFound("so"), 3, "not-found"),
        (errors.InvalidInput("so"), 4, "invalid-input"),
        (errors.MissingExtra("so"), 5, "missing-extra"),
        (errors.ResourceUnavailable("so"), 6, "resource-unavailable"),
        (errors.NeedsNetwork("so"), 7, "needs-network"),
        (MemoryError(), 6, "resource-unavailable"),
        (OSError(errno.ENOSPC, "No space left on device"), 6, "resource-unavailable"),
        (OSError(errno.EADDRINUSE, "Address already in use"), 6, "resource-unavailable"),
        (PermissionError(errno.EACCES, "Permission denied", "notes.md"), 4, "invalid-input"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "notes.md"), 3, "not-found"),
        (OSError("no file, no number: ours"), 1, "bug"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 5, "missing-extra"),
        (ZeroDivisionError("division by zero"), 1, "bug"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_every_error_has_its_exit_code(peasy, raising, error, code, name):
    raising(error)
    ran = peasy("greet")
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.startswith("✗ ")
    assert "Traceback" not in ran.err
    ran = peasy("greet", "--json")
    assert ran.err == ""
    assert ran.json["ok"] is False
    assert ran.json["exit"] == code
    assert ran.json["error"]["code"] == name
    assert set(ran.json["error"]) == {"code", "message", "hint"}


def test_error_format(peasy, raising):
    raising(errors.NotFound('No model "quite-fox".', hint="Did you mean quiet-fox?\nSee all: peasy models"))
    assert peasy("greet").err == '✗ No model "quite-fox".\n  Did you mean quiet-fox?\n  See all: peasy models\n'


def test_bug_asks_for_a_report_and_debug_prints_the_traceback(peasy, raising):
    raising(ZeroDivisionError("division by zero"))
    assert "--debug" in peasy("greet").err
    shown = peasy("greet", "--debug").err
    assert "Traceback" in shown
    assert "ZeroDivisionError" in shown


def test_missing_extra_shows_the_install_command(peasy, raising):
    raising(ModuleNotFoundError("No module named 'torch'", name="torch"))
    assert '  pip install "peasy-attention[models]"\n' in peasy("greet").err


def test_interrupt_exits_with_130(peasy, raising):
    raising(KeyboardInterrupt())
    ran = peasy("greet")
    assert ran.code == 130
    assert "Interrupted" in ran.err
    assert "Traceback" not in ran.err


def test_interrupt_during_import_exits_with_130(monkeypatch):
    from peasy.cli import app, main

    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", interrupted)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130


def test_interrupt_in_a_subprocess():
    code = (
        "import sys, time, types; from peasy.cli import app;"
        "app._start = lambda *, flags=None: (print('ready', flush=True), time.sleep(60));"
        "sys.exit(app.run([]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in background jobs of a shell
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_closed_pipe_is_no_error():
    line = f"{sys.executable} -m peasy --json | true; exit ${{PIPESTATUS[0]}}"
    for _ in range(3):
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verison"], "Did you mean version?"),
        (["version", "--jsn"], "Did you mean --json?"),
        (["version", "--jsn=1"], "Did you mean --json?"),
        (["version", "nonsense"], 'unexpected argument "nonsense"'),
        (["version", "--device", "gpu"], "cuda"),
        (["version", "--seed", "five"], "--seed"),
        (["version", "--seed"], "needs a value for --seed"),
        (["version", "--threads", "0"], "1 or more"),
        (["version", "--out", "x.doc"], ".html"),
        (["I love AI"], 'peasy explain "I love AI"'),
        (["zzzzzz"], "peasy --help"),
        (["--nonsense"], "no flag --nonsense"),
        (["-"], 'no command "-"'),
        ([""], "peasy --help"),
    ],
)
def test_usage_errors_have_a_hint(peasy, words, message):
    ran = peasy(*words)
    assert ran.code == 2
    assert ran.err.startswith("✗ ")
    assert message in ran.err
    assert ran.out == ""
    assert peasy(*words, "--json").json["exit"] == 2


@pytest.mark.parametrize(
    ("command", "flag", "suggestion"),
    [
        ("generate", "--max-new-tokens", "--max-tokens"),
        ("generate", "--num-return-sequences", "-n"),
        ("generate", "--output", "--out"),
        ("generate", "--temp", "--temperature"),
        ("generate", "--lookup", "--speculative"),
        ("train", "--learning-rate", "--lr"),
        ("train", "--epochs", "--steps or --minutes"),
        ("train", "--batch", "--batch-size"),
        ("train", "--from-pretrained", "--init-from"),
        ("translate", "--beam", "--num-beams"),
        ("translate", "--beam-size", "--num-beams"),
        ("look", "--off", "--ablate"),
        ("look", "--logit-lens", "--lens"),
        ("evaluate", "--limit", "--max-samples"),
        ("evaluate", "--context-length", "--seq-len"),
        ("export", "--to", "--format"),
        ("runs list", "--output", "--out"),
    ],
)
def test_unknown_flag_is_understood_by_meaning(peasy, command, flag, suggestion):
    ran = peasy(*command.split(), flag, "1")
    assert ran.code == 2
    assert f"{command} has no flag {flag}." in ran.err
    assert f"Did you mean {suggestion}?" in ran.err


def test_revision_is_part_of_the_hub_id(peasy):
    assert "owner/model@v1" in peasy("generate", "owner/model", "x", "--revision", "v1").err


@pytest.mark.parametrize(("typed", "command"), [("eval", "evaluate"), ("inspect", "look"), ("verify", "prove")])
def test_unknown_command_is_understood_by_meaning(peasy, typed, command):
    assert f"Did you mean {command}?" in peasy(typed).err


def test_synonyms_lead_to_flags_that_exist():
    from peasy.errors import synonyms
    from peasy.models.preset import ModelKind

    names = {name.lstrip("-").replace("-", "_") for name, *_ in _all_flags()}
    names |= {command.name for command in _all_commands()} | set(get_args(ModelKind))
    assert not [word for word, ours in synonyms().items() if not set(ours.split(" or ")) & names]
    ambiguous = [word for word, ours in synonyms().items() if word in ours.split(" or ")]
    assert not ambiguous


def test_a_flag_has_one_type_in_all_commands():
    """`--steps` is a number of steps and `--prompt` is a text, whatever the command."""
    types: dict[str, dict[str, list[str]]] = {}
    for name, kind, command in _all_flags():
        types.setdefault(name, {}).setdefault(kind, []).append(command)
    assert {"--steps", "--prompt", "--max-tokens", "--seed"} <= types.keys()
    assert not {name: kinds for name, kinds in types.items() if len(kinds) > 1}


def _all_commands():
    from peasy.cli.command_table import COMMANDS, all_commands

    return list(all_commands(COMMANDS))


def _all_flags():
    """(flag, element type, command) of every command and subcommand, by introspection."""
    from peasy.cli.app import build_cli

    for command in _all_commands():
        app = build_cli(*command.path.split())
        for name in command.path.split():
            app = app[name]
        for argument in app.assemble_argument_collection():
            for name in argument.names:
                if name.startswith("--"):
                    yield name, _element_type(argument.hint), command.path


def _element_type(hint) -> str:
    """Type of one value: without None, list and tuple; choices are texts, and so are paths."""
    from pathlib import Path
    from typing import Literal, get_args, get_origin

    if get_origin(hint) is Literal:
        return "str"
    inner = [kind for kind in get_args(hint) if kind not in (type(None), ...)]
    if inner and get_origin(hint) is not None:
        return _element_type(inner[0])
    if hasattr(hint, "__metadata__"):
        return _element_type(hint.__origin__)
    return "str" if hint is Path else hint.__name__


def test_out_has_a_short_form(peasy, register, answer, tmp_path):
    register(_answering(answer))
    assert peasy("-o", "hello.md", "greet").code == 0
    assert (tmp_path / "hello.md").is_file()


def test_missing_argument_is_named(peasy, register):
    def greet(text: TextArg, *, flags: Flags = Flags()) -> CommandOutput:
        raise AssertionError

    register(greet)
    assert "greet needs TEXT." in peasy("greet").err


def test_flags_before_the_command(peasy):
    assert peasy("--json", "--seed", "3", "version").json["command"] == "version"


def test_dash_reads_stdin(peasy, register):
    def greet(text: TextArg, *, flags: Flags = Flags()) -> CommandOutput:
        return CommandOutput(DocumentResult(Document(text, ()), {"text": text}))

    register(greet)
    assert peasy("greet", "-", "--json", stdin="--Ada é\n").json["result"] == {"text": "--Ada é"}
    assert peasy("greet", "Ada", "--json").json["result"] == {"text": "Ada"}
    assert peasy("greet", "-", stdin="\udcff").code == 4


def test_out_saves_by_suffix(peasy, register, answer, tmp_path):
    register(_answering(CommandOutput(answer.result, summary="One greeting.")))
    ran = peasy("greet", "--out", "hello.md")
    assert "Hello Ada." in (tmp_path / "hello.md").read_text()
    assert (ran.out, ran.err) == ("One greeting.\n", "Saved hello.md\n")
    ran = peasy("greet", "--out", "hello.json", "--json")
    assert json.loads((tmp_path / "hello.json").read_text()) == {"greeting": "Hello Ada."}
    assert ran.json["files"] == ["hello.json"]


def test_out_into_a_missing_folder(peasy, register, answer):
    register(_answering(answer))
    assert peasy("greet", "--out", "nowhere/hello.md").code == 3


def test_80_columns_and_no_colours(peasy, register):
    matrix = Matrix("wide", ((0.123456789,) * 30,), ("row",), tuple(f"column {i}" for i in range(30)), shaded=True)
    register(_answering(CommandOutput(DocumentResult(Document("Wide", (matrix, Paragraph("word " * 60))), {}))))
    out = peasy("greet").out
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_colours_only_on_a_terminal(monkeypatch):
    line = f"{sys.executable} -m peasy"
    env = {"TERM": "xterm-256color", "PATH": "/usr/bin:/bin", "COLUMNS": "80"}

    def on_a_terminal(line: str, **more: str) -> str:
        return subprocess.run(
            ["script", "-qec", line, "/dev/null"], capture_output=True, text=True, env=env | more
        ).stdout

    assert "\x1b[" in on_a_terminal(line)
    assert "\x1b[" not in on_a_terminal(line, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(f"{line} --no-color")


def test_unencodable_characters_are_question_marks():
    env = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-m", "peasy", "verison"], capture_output=True, text=True, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("? There is no command")


def test_utf8_arguments_under_the_c_locale():
    env = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-m", "peasy", "explain", "Straße 日本", "--json"]
    done = subprocess.run(words, capture_output=True, env=env | {"PYTHONIOENCODING": "utf-8"})
    assert json.loads(done.stdout)["result"]["tokens"] == ["Straße", "日本"]
    assert subprocess.run(words, capture_output=True, env=env).returncode == 0


def test_missing_command_module_does_not_break_help(peasy, register, monkeypatch):
    register(None)
    monkeypatch.setitem(sys.modules, "peasy.cli.greet", None)
    assert "Print a greeting." in peasy("--help").out
    assert peasy("greet").code == 1


def test_verbose_prints_timing_and_config_sources(peasy, register, answer, tmp_path, monkeypatch):
    register(_answering(answer))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert peasy("greet").err == ""
    assert re.search(r"Took \d+\.\d\d s with peasy .* on Python 3.*\n.*: none\.", peasy("greet", "-v").err)
    (tmp_path / "peasy.toml").write_text("no-color = true")
    monkeypatch.setenv("PEASY_SEED", "3")
    assert "Config files and environment variables: peasy.toml, PEASY_SEED." in peasy("greet", "-v").err


def test_threads_and_offline_set_environment_variables(peasy, monkeypatch):
    import os

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "0")
    peasy("version", "--threads", "3", "--offline")
    assert (os.environ["OMP_NUM_THREADS"], os.environ["HF_HUB_OFFLINE"]) == ("3", "1")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_commands_and_flags(shell):
    from peasy.cli.app import build_cli

    script = build_cli().generate_completion(shell=shell)
    assert "version" in script
    assert "no-color" in script


def _answering(answer: CommandOutput):
    def greet(*, flags: Flags = Flags()) -> CommandOutput:
        return answer

    return greet
