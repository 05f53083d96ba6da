"""Output of results and errors: the result on stdout, the rest on stderr, or a JSON envelope."""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from peasy import __version__
from peasy.cli.command import CommandOutput, Flags
from peasy.errors import PeasyError
from peasy.render.json import to_plain
from peasy.views.document import Document

_JSON_SCHEMA_VERSION = 1


def print_output(output: CommandOutput, command: str, flags: Flags) -> None:
    """Save the result to `--out` if given, and print it."""
    files = [str(path) for path in output.files]
    if flags.out:
        output.result.save(flags.out)
        files.append(str(flags.out))
    with ignore_closed_pipe():
        if flags.json:
            result = {"ok": True, "command": command, "schema": _JSON_SCHEMA_VERSION, "result": output.result.data()}
            _print_json(result | {"files": files, "next": list(output.suggestions)})
        else:
            _print(output, files, flags)


def print_error(error: PeasyError, flags: Flags) -> None:
    """Print an error: on stderr, or as JSON on stdout with --json."""
    if flags.debug:
        traceback.print_exception(error)
    with ignore_closed_pipe():
        if flags.json:
            details = {"code": error.code, "message": error.message, "hint": error.hint}
            _print_json({"ok": False, "error": details, "exit": error.exit_code})
            return
        print(f"✗ {error.message}", file=sys.stderr)
        for line in (error.hint or "").splitlines():
            print(f"  {line}", file=sys.stderr)


def print_verbose(seconds: float, sources: list[str]) -> None:
    """Print what `--verbose` adds, on stderr: timing, versions and config sources."""
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"\nTook {seconds:.2f} s with peasy {__version__} on Python {python}.", file=sys.stderr)
    print(f"Config files and environment variables: {', '.join(sources) or 'none'}.", file=sys.stderr)


@contextlib.contextmanager
def ignore_closed_pipe() -> Iterator[None]:
    """Ignore a closed pipe (`peasy ... | head -1`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit: redirect it, or that would fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(output: CommandOutput, files: list[str], flags: Flags) -> None:
    if output.already_printed:
        pass
    elif not flags.out:
        print(_render(output.result.document(), flags), end="")
    elif output.summary:
        print(output.summary)
    sys.stdout.flush()
    if flags.quiet:
        return
    for path in files:
        print(f"Saved {path}", file=sys.stderr)
    # No suggestion to save a file right after saving one.
    suggestions = [line for line in output.suggestions if not (flags.out and " --out " in line)]
    if suggestions:
        print("\nNext:", *(f"  {line}" for line in suggestions), sep="\n", file=sys.stderr)


def _render(document: Document, flags: Flags) -> str:
    from rich.console import Console

    from peasy.render import terminal

    no_color = flags.no_color or bool(os.environ.get("NO_COLOR"))
    console = Console(color_system=None if no_color else "auto", legacy_windows=False, markup=False, highlight=False)
    if console.color_system is None:
        return terminal.draw(document, width=console.width)
    # Rendered to a string first: rich would exit the program when a pipe closes.
    with console.capture() as drawn:
        terminal.print_document(document, console)
    return drawn.get()


def _print_json(value: Any) -> None:
    print(json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False))
