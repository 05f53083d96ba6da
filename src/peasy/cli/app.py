"""Command line entry: parse argv, run the command, print its output, map errors to messages and exit codes."""

import errno
import inspect
import os
import sys
import time
import tomllib
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module, resources
from typing import TextIO, cast

from cyclopts import App, CycloptsError, Group

from peasy import __version__
from peasy.cli import output, settings, usage
from peasy.cli.command import STDIN, CommandOutput, DocumentResult, Flags
from peasy.cli.command_table import COMMANDS, Command, find_command
from peasy.cli.terminal_stream import StyledStream, guard_streams
from peasy.errors import InvalidInput, NotFound, PeasyError, ResourceUnavailable
from peasy.extras import EXTRAS, missing_extra
from peasy.render import format_of
from peasy.views.document import Document, Paragraph, Table

_FLAGS_WITH_VALUE = ("--out", "-o", "--device", "--threads", "--seed")
_RESOURCE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EADDRINUSE)
_START = tomllib.loads((resources.files("peasy.cli") / "start.toml").read_text(encoding="utf-8"))


def build_cli(*path: str) -> App:
    """Build the cyclopts app with all commands; only the module of the command at `path` is imported."""
    from rich.console import Console

    app = App(
        "peasy", help=_START["help"], version=__version__, version_flags=("--version", "-V"), help_format="plaintext",
        group_commands=Group("Help and completion", sort_key=90), config=settings.config_sources(),
        console=Console(file=cast(TextIO, StyledStream(sys.stdout))) if sys.stdout.isatty() else None,
    )  # fmt: skip
    names = dict.fromkeys(command.group for command in COMMANDS)
    headings = {name: Group(name, sort_key=order) for order, name in enumerate(names)}
    requested = find_command(path, COMMANDS)
    for order, command in enumerate(COMMANDS):
        group = headings[command.group]
        help_text = _help_text(command, requested)
        if not command.subcommands:
            app.command(command.entry_point, name=command.name, help=help_text, group=group, sort_key=order)
            continue
        subcommands = Group("Subcommands", sort_key=-1)
        parent = App(
            command.name, help=help_text, version_flags=(), help_format="plaintext", group_commands=subcommands,
            group=group, sort_key=order,
        )  # fmt: skip
        parent.default(_import(command))  # runs without a subcommand
        for position, one in enumerate(command.subcommands):
            parent.command(one.entry_point, name=one.name, help=_help_text(one, requested), sort_key=position)
        app.command(parent)
    app.register_install_completion_command(help="Install tab completion for this shell.")
    app["--help"].help, app["--version"].help = "Print this help.", "Print the version of peasy."
    app.default(_start)
    return app


def _start(*, flags: Flags = Flags()) -> CommandOutput:
    """Return the list of commands to try first."""
    note = Paragraph("No data leaves this machine unless you ask for it.", "note")
    suggestions = _START["suggestions"].items()
    parts = (Table(("command", "result"), tuple(suggestions)), note)
    data = {"try": [{"command": line, "description": result} for line, result in suggestions]}
    return CommandOutput(DocumentResult(Document("peasy: attention you can follow, number by number", parts), data))


def _import(command: Command) -> Callable[..., object]:
    module, _, name = command.entry_point.partition(":")
    function: Callable[..., object] = getattr(import_module(module), name)
    return function


def _help_text(command: Command, requested: Command | None) -> str:
    """Return the summary of a command; for the requested one its docstring up to `Args:`, and its help.

    Each paragraph becomes one line, examples stay unchanged.
    """
    if command != requested:
        return command.summary
    docstring = (inspect.getdoc(_import(command)) or command.summary).partition("\nArgs:")[0]
    paragraphs = f"{docstring.strip()}\n\n{command.help}".strip().split("\n\n")
    return "\n\n".join(text if text.startswith("    ") else text.replace("\n", " ") for text in paragraphs)


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; never raises."""
    given = sys.argv[1:] if argv is None else argv
    words = _command_first([STDIN if word == "-" else _as_utf8(word) for word in given])
    _prepare_streams()
    flags = _error_flags(words)
    with guard_streams(flags.raw):
        return _run(words, flags)


def _run(words: list[str], flags: Flags) -> int:
    started, found = time.perf_counter(), find_command(words, COMMANDS)
    try:
        command, bound, flags = _parse(words, flags)
        _prepare(flags, found)
        result = command(*bound.args, **bound.kwargs)
        if not isinstance(result, CommandOutput):  # from cyclopts: --help, --version, --install-completion
            return result if isinstance(result, int) else 0
        output.print_output(result, found.path if found else "start", flags)
        if flags.verbose:
            output.print_verbose(time.perf_counter() - started, settings.active_sources())
        return result.exit_code
    except KeyboardInterrupt:
        print("\n✗ Interrupted.", file=sys.stderr)
        return 130
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1
    except BrokenPipeError:
        with output.ignore_closed_pipe():
            raise
        return 0
    except Exception as error:
        peasy_error = _as_peasy_error(error)
        if peasy_error.code == "lost":  # rank 0 may be the lost process, so every rank prints this
            sys.stderr = sys.__stderr__ or sys.stderr
        with guard_streams(flags.raw):
            output.print_error(peasy_error, flags)
        return peasy_error.exit_code


def _parse(args: list[str], fallback: Flags) -> tuple[Callable[..., object], inspect.BoundArguments, Flags]:
    first = args[0] if args else "--"
    if not first.startswith("-") and first not in {command.name for command in COMMANDS}:
        raise usage.unknown_command(first)
    app = build_cli(*args[:2])
    try:
        command, bound, _ = app.parse_args(args, exit_on_error=False, print_error=False, help_on_error=False)
    except CycloptsError as error:
        raise usage.usage_error(error, args) from error
    parsed = (value for value in bound.arguments.values() if isinstance(value, Flags))
    return command, bound, next(parsed, fallback)


def _command_first(args: list[str]) -> list[str]:
    """Move command and subcommand before the global flags: `peasy --json doctor` means `peasy doctor --json`."""
    args = _word_first(args)
    command = find_command(args, COMMANDS)
    if command is not None and command.subcommands:
        rest = _word_first(args[1:])
        if find_command([args[0], *rest], COMMANDS) != command:
            return [args[0], *rest]
    return args


def _word_first(args: list[str]) -> list[str]:
    """Move the first word that is no flag, and no value of a global flag, to the front."""
    start = 0
    while start < len(args) and args[start].startswith("-"):
        start += 2 if args[start] in _FLAGS_WITH_VALUE else 1
    return args[start : start + 1] + args[:start] + args[start + 1 :]


def _error_flags(args: list[str]) -> Flags:
    """Return the flags that decide how to print an error, for command lines that cannot be parsed."""
    set_by = {name: os.environ.get(f"PEASY_{name.upper()}", "0").lower() for name in ("json", "debug", "raw")}
    on = {name: f"--{name}" in args or text not in ("", "0", "false") for name, text in set_by.items()}
    return Flags(json=on["json"], debug=on["debug"], raw=on["raw"])


def _prepare(flags: Flags, command: Command | None) -> None:
    """Reject unknown output formats early, and set environment variables before libraries are imported."""
    extra_formats = command.extra_formats if command else ()
    if flags.out and flags.out.suffix.lstrip(".").lower() not in extra_formats:
        format_of(flags.out)
    if flags.threads:
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(flags.threads)
    if flags.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


def _prepare_streams() -> None:
    """Print a question mark for what the terminal cannot encode, a warning without the line of code that gives it;
    silence all processes but rank 0 under torchrun."""
    warnings.formatwarning = lambda message, *_, **__: f"! {message}\n"
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and os.environ.get("RANK", "0") != "0":
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (kept until Python ends)


def _as_utf8(arg: str) -> str:
    """Decode an argument as UTF-8 even under the C locale."""
    with suppress(UnicodeError):
        return arg.encode("utf-8", "surrogateescape").decode("utf-8")
    return arg


def _as_peasy_error(error: BaseException) -> PeasyError:
    if isinstance(error, PeasyError):
        return error
    if isinstance(error, MemoryError):
        return ResourceUnavailable("Out of memory.", hint="Try a smaller model, batch or text.")
    if isinstance(error, OSError) and (error.errno in _RESOURCE_ERRNOS or error.filename):
        kind: type[PeasyError] = NotFound if isinstance(error, FileNotFoundError) else InvalidInput
        kind = ResourceUnavailable if error.errno in _RESOURCE_ERRNOS else kind
        return kind(f"{error.filename or 'The system'}: {error.strerror}.")
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, PeasyError):
            return cause
        if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] in EXTRAS:
            return missing_extra(cause.name or "")
        cause = cause.__cause__
    hint = "Please run the command again with --debug and report the output."
    bug = PeasyError(f"This is a bug in peasy: {type(error).__name__}: {error}", hint=hint)
    bug.code, bug.__cause__ = "bug", error
    return bug
