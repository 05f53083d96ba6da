"""How answers and errors leave the door: the result on stdout, the rest on stderr."""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from peasy import __version__
from peasy.cli.door import Answer, Flags
from peasy.errors import PeasyError
from peasy.render.json import plain
from peasy.views.document import Document

SCHEMA = 1


def show(answer: Answer, command: str, flags: Flags) -> None:
    """Save the answer where `--out` says, and print it."""
    files = [str(path) for path in answer.files]
    if flags.out:
        answer.shown.save(flags.out)
        files.append(str(flags.out))
    with quiet_pipe():
        if flags.json:
            result = {"ok": True, "command": command, "schema": SCHEMA, "result": answer.shown.data()}
            _print_json(result | {"files": files, "next": list(answer.next)})
        else:
            _print(answer, files, flags)


def complain(error: PeasyError, flags: Flags) -> None:
    """One error: on stderr for people, on stdout as JSON for programs."""
    if flags.debug:
        traceback.print_exception(error)
    with quiet_pipe():
        if flags.json:
            said = {"code": error.code, "message": error.message, "hint": error.hint}
            _print_json({"ok": False, "error": said, "exit": error.exit_code})
            return
        print(f"✗ {error.message}", file=sys.stderr)
        for line in (error.hint or "").splitlines():
            print(f"  {line}", file=sys.stderr)


def say_more(seconds: float, settings: list[str]) -> None:
    """What `--verbose` adds, on stderr: the time, the versions, and where settings came from."""
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"\nTook {seconds:.2f} s with peasy {__version__} on Python {python}.", file=sys.stderr)
    print(f"Settings besides the command line: {', '.join(settings) or 'none'}.", file=sys.stderr)


@contextlib.contextmanager
def quiet_pipe() -> Iterator[None]:
    """A reader that has seen enough (`peasy ... | head -1`) is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more on its way out: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(answer: Answer, files: list[str], flags: Flags) -> None:
    if answer.told:
        pass
    elif not flags.out:
        print(_draw(answer.shown.document(), flags), end="")
    elif answer.brief:
        print(answer.brief)
    sys.stdout.flush()
    if flags.quiet:
        return
    for path in files:
        print(f"Saved {path}", file=sys.stderr)
    # Who has just saved a file needs no advice to save one.
    advice = [line for line in answer.next if not (flags.out and " --out " in line)]
    if advice:
        print("\nNext:", *(f"  {line}" for line in advice), sep="\n", file=sys.stderr)


def _draw(document: Document, flags: Flags) -> str:
    from rich.console import Console

    from peasy.render import terminal

    bare = flags.no_color or bool(os.environ.get("NO_COLOR"))
    console = Console(color_system=None if bare else "auto", legacy_windows=False, markup=False, highlight=False)
    if console.color_system is None:
        return terminal.draw(document, width=console.width)
    # Drawn into a string first: rich itself would leave the program when a pipe closes.
    with console.capture() as drawn:
        terminal.show(document, console)
    return drawn.get()


def _print_json(value: Any) -> None:
    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))
