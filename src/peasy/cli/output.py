"""Output of results and errors: the result on stdout, the rest on stderr, or a JSON envelope."""

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TextIO, cast

from peasy import __version__
from peasy.cli.command import CommandOutput, Flags
from peasy.cli.terminal_stream import StyledStream, write_styled
from peasy.errors import PeasyError
from peasy.render.json import to_plain
from peasy.views.document import Document, format_duration

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
            print_json(result | {"files": files, "next": list(output.suggestions)})
        else:
            _print(output, files, flags)


def print_error(error: PeasyError, flags: Flags) -> None:
    """Print an error: on stderr, or as JSON on stdout with --json."""
    if flags.debug:
        traceback.print_exception(error)
    with ignore_closed_pipe():
        if flags.json:
            details = {"code": error.code, "message": error.message, "hint": error.hint}
            details |= {} if error.script is None else {"script": error.script}
            print_json({"ok": False, "error": details, "exit": error.exit_code})
            return
        print(f"✗ {error.message}", file=sys.stderr)
        for line in (error.hint or "").splitlines():
            print(f"  {line}", file=sys.stderr)
        if error.script is not None:  # at the margin, to be copied and run
            print(error.script, file=sys.stderr)


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
        write_styled(_render(output.result.document(), flags))
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


def print_json(value: object) -> None:
    """Print one line of JSON; in it a control character is an escape, so that it has the same value on a terminal."""
    text = json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    print(text, flush=True)


_PIPE_INTERVAL = 5.0
"""Seconds between two lines of progress where stderr is not a terminal."""


class ProgressLine:
    """One line on stderr that is replaced; into a pipe, a new line every few seconds. Silent with --quiet or --json.

    As a progress callback `(done, total)` it shows the percentage and the remaining time.
    """

    def __init__(self, label: str, flags: Flags, *, unit: str = "") -> None:
        self.label, self.unit, self.start, self.last_update = label, unit, time.monotonic(), time.monotonic()
        self._waiting = threading.Event()
        self.quiet = flags.quiet or flags.json
        self.visible = sys.stderr.isatty() and not self.quiet

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done, how fast, and the time left; the line disappears at the end. 0 starts the clock."""
        self._waiting.set()
        if not done:
            self.start = time.monotonic()
        if total and done >= total:
            self.update("")
        elif total and self.is_due():
            elapsed = max(time.monotonic() - self.start, 1e-9)
            rate, left = done / elapsed, format_duration(elapsed * (total - done) / max(done, 1))
            self.update(f"{self.label} {done / total:.0%} of {total:,}{self.unit} · {rate:,.0f}/s · {left} left")

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[], None]]:
        """Show a text and the seconds since, where nothing can be counted, until the first count or the given call."""

        def show() -> None:
            while not self._waiting.wait(0.5):
                if self.is_due():
                    self.update(f"{text} · {format_duration(time.monotonic() - self.start)}")

        if not self.quiet:
            threading.Thread(target=show, daemon=True).start()
        try:
            yield self._waiting.set
        finally:
            if not self._waiting.is_set():  # an error: its message needs the line
                self._waiting.set()
                self.update("")

    def is_due(self) -> bool:
        """Return whether the last update was long enough ago: a tenth of a second, into a pipe some seconds."""
        interval = 0.1 if self.visible else _PIPE_INTERVAL
        return not self.quiet and time.monotonic() - self.last_update > interval

    def update(self, text: str) -> None:
        """Replace the line by a text, cropped to the width of the terminal; "" removes it."""
        if self.visible or (text and self.is_due()):
            self._write(text, end="" if self.visible else "\n")
            self.last_update = time.monotonic()

    def print(self, text: str) -> None:
        """Print a text that stays, also without a terminal; the next update comes no later for it."""
        if not self.quiet:
            self._write(text, end="\n")

    def _write(self, text: str, end: str) -> None:
        from rich.console import Console
        from rich.control import Control
        from rich.segment import ControlType

        styled = cast(TextIO, StyledStream(sys.stderr))
        console = Console(file=styled, highlight=False, markup=False, emoji=False, soft_wrap=bool(end))
        if self.visible:
            console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
        console.print(text, end=end, no_wrap=not end, overflow="ellipsis", crop=not end, soft_wrap=bool(end))
        sys.stderr.flush()
