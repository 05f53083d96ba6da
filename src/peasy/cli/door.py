"""What a verb file needs: the flags that every verb has, the text it may read, and the answer it gives back."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, Token

from peasy.errors import InvalidInput, UsageError
from peasy.views.document import Document
from peasy.workbench.result import Result

EVERYWHERE = Group("Flags everywhere", sort_key=100)
_Switch = Annotated[bool, Parameter(negative="", show_default=False)]


@Parameter(name="*", group=EVERYWHERE)
@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags that mean the same on every verb."""

    json: _Switch = False
    "Print the result as JSON."
    out: Path | None = None
    "Save to a file, by suffix: .html .svg .png .tex .md .csv .json .npz"
    quiet: Annotated[_Switch, Parameter(alias="-q")] = False
    "Only the result: no notices, no advice."
    verbose: Annotated[_Switch, Parameter(alias="-v")] = False
    "Also say how long it took, and which settings files spoke."
    no_color: _Switch = False
    "Plain text, also on a terminal."
    offline: _Switch = False
    "Never use the network."
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], Parameter(show_default=False)] = "auto"
    "Where models run."
    threads: int | None = None
    "How many threads to use."
    seed: int | None = None
    "Makes chance repeatable."
    yes: Annotated[_Switch, Parameter(alias="-y")] = False
    "Answer yes to every question."
    debug: _Switch = False
    "Show the traceback of an error."

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise UsageError("--threads should be 1 or more.")


class Page(Result):
    """The simplest result: a document and its data, side by side."""

    def __init__(self, page: Document, facts: dict[str, Any]) -> None:
        self._page, self._facts = page, facts

    def document(self) -> Document:
        """The document as it was given."""
        return self._page

    def data(self) -> dict[str, Any]:
        """The data as they were given."""
        return self._facts


@dataclass(frozen=True)
class Answer:
    """What a verb gives back to the door, which prints and saves it.

    `next` are commands worth typing now. `brief` is one line for when the document itself goes to a file.
    `files` are files the verb wrote itself. `exit_code` is 8 when a check ran and found something wrong.
    `told`: the result is on the screen already, since it was streamed.
    """

    shown: Result
    next: Sequence[str] = ()
    exit_code: int = 0
    brief: str = ""
    files: Sequence[str | Path] = field(default=())
    told: bool = False


STDIN = "\0stdin"
"""How the door writes a lone `-` to itself, which would otherwise look like a flag."""


def _text(_: type, tokens: Sequence[Token]) -> str:
    return read_stdin() if tokens[0].value == STDIN else tokens[0].value


Text = Annotated[str, Parameter(converter=_text)]
"""A TEXT argument: as typed, or all of stdin for `-`."""


Source = Annotated[str | None, Parameter(converter=lambda _, tokens: tokens[0].value)]
"""A TEXT argument that may also be a file, or `-` for stdin; `read_source` reads it."""


def read_source(given: str | None, what: str, *, lines: bool = True) -> list[str]:
    """The texts that a person means: one as typed; each line of a file, or of stdin unless `lines` is False.

    Without a text, stdin is read where it is a pipe.
    """
    if given is None and sys.stdin.isatty():
        raise UsageError(f"{what} needs a TEXT.", hint="Type one in quotes, name a file, or give - to read stdin.")
    if given is None or given == STDIN:
        text = read_stdin()
        return text.splitlines() if lines else [text]
    path = Path(given)
    if len(given) < 4096 and "\n" not in given and "\0" not in given and path.is_file():
        return _read_lines(path)
    return [given]


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from None


def read_stdin() -> str:
    """All of stdin as UTF-8 text, without the last newline."""
    try:
        text = sys.stdin.buffer.read().decode("utf-8") if hasattr(sys.stdin, "buffer") else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"stdin is not UTF-8 text: {error.reason} at byte {error.start}.") from None
    return text.removesuffix("\n").removesuffix("\r")
