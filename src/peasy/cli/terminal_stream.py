"""Terminal output of the command line: control characters that are not peasy's own become visible symbols.

A token, a file name or an error of a library may hold an escape sequence that retitles the window, hides text or types
into the shell. On a terminal, `guard_streams` puts one function, `TerminalStream.write`, before stdout and stderr:
whatever prints, through whatever library, passes it. Into a pipe or a file, and with `--raw`, bytes stay as they are.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TextIO, cast

from peasy.render.sanitize import escape_control

_OWN_SEQUENCE = re.compile(r"(\x1b\[[0-9;]*m|\r?\x1b\[2K)")
"""What peasy itself sends to a terminal: colours, and the start of a progress line."""

_LAYOUT = re.compile(r"([\n\t])")


class TerminalStream:
    """Text stream to a terminal that shows control characters, escape sequences and bidi overrides as symbols.

    >>> import io
    >>> stream = TerminalStream(io.StringIO())
    >>> stream.write("a\\x1b]0;title\\x07\\n")
    12
    >>> stream.terminal.getvalue()
    'a␛]0;title␇\\n'
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write a text; only line ends and tabs keep their effect."""
        self.terminal.write(_neutralise(text))
        return len(text)

    def write_styled(self, text: str) -> int:
        """Write a text that peasy has drawn: also colours and the start of a progress line keep their effect."""
        parts = _OWN_SEQUENCE.split(text)
        self.terminal.write("".join(part if index % 2 else _neutralise(part) for index, part in enumerate(parts)))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.terminal, name)


class StyledStream:
    """The same stream for `rich`, which draws with colours."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text with its colours."""
        return write_styled(text, self.stream)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def write_styled(text: str, stream: TextIO | None = None) -> int:
    """Write a text that peasy has drawn, with its colours."""
    stream = stream or sys.stdout
    write = stream.write_styled if isinstance(stream, TerminalStream) else stream.write
    return write(text)


@contextlib.contextmanager
def guard_streams(raw: bool = False) -> Iterator[None]:
    """Guard stdout and stderr inside the block, as far as they are terminals and unless `raw`."""
    before = sys.stdout, sys.stderr
    if not raw:
        sys.stdout, sys.stderr = map(_guarded, before)
    try:
        yield
    finally:
        if not raw:
            sys.stdout, sys.stderr = before


def _guarded(stream: TextIO) -> TextIO:
    return cast(TextIO, TerminalStream(stream)) if stream is not None and stream.isatty() else stream


def _neutralise(text: str) -> str:
    if text.isprintable():
        return text
    parts = _LAYOUT.split(text.replace("\r\n", "\n"))
    return "".join(part if index % 2 else escape_control(part) for index, part in enumerate(parts))
