"""Base types of a command: global flags, text arguments, and the output it returns."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter, Token

from peasy.commands.result import Result
from peasy.config import JsonDict
from peasy.errors import InvalidInput, NotFound, UsageError
from peasy.views.document import Document

_GLOBAL_FLAGS = Group("Global flags", sort_key=100)
Switch = Annotated[bool, Parameter(negative="", show_default=False)]
"""Flag without a value."""
StrList = Annotated[list[str] | None, Parameter(negative="")]
"""Flag that can be repeated."""
IntList = Annotated[list[int] | None, Parameter(negative="")]
"""Flag with a number that can be repeated."""


@Parameter(name="*", group=_GLOBAL_FLAGS)
@dataclass(frozen=True, kw_only=True)
class Flags:
    """Global flags: available on every command."""

    json: Switch = False
    "Print the result as JSON."
    out: Annotated[Path | None, Parameter(alias="-o")] = None
    "Save the result to a file; the suffix sets the format: .html .svg .png .pdf .tex .md .csv .json .npz .xlsx"
    quiet: Annotated[Switch, Parameter(alias="-q")] = False
    "Print only the result: no notes, no suggestions."
    verbose: Annotated[Switch, Parameter(alias="-v")] = False
    "Also print timing and the config files used."
    no_color: Switch = False
    "No colours, even on a terminal."
    raw: Switch = False
    "Print control characters of tokens and files as they are, even on a terminal."
    offline: Switch = False
    "Never use the network."
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], Parameter(show_default=False)] = "auto"
    "Device to run models on."
    threads: int | None = None
    "Number of CPU threads."
    seed: int | None = None
    "Random seed, for reproducible results."
    yes: Annotated[Switch, Parameter(alias="-y")] = False
    "Answer yes to all prompts."
    debug: Switch = False
    "Print the traceback of errors."

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise UsageError("--threads must be 1 or more.")


class DocumentResult(Result):
    """Result made of a given document and its JSON data."""

    def __init__(self, document: Document, data: JsonDict) -> None:
        self._document, self._data = document, data

    def document(self) -> Document:
        """Return the given document."""
        return self._document

    def data(self) -> JsonDict:
        """Return the given data."""
        return self._data


@dataclass(frozen=True)
class CommandOutput:
    """Output of a command: the result to print or save, and the exit code.

    `suggestions` are commands to try next. `summary` is one line to print if the document goes to a file.
    `files` are files that the command wrote itself. `exit_code` is 8 if a check ran and failed,
    9 if it could not compare everything (`errors.verdict_exit_code`).
    `already_printed`: the result was streamed to stdout.
    """

    result: Result
    suggestions: Sequence[str] = ()
    exit_code: int = 0
    summary: str = ""
    files: Sequence[str | Path] = field(default=())
    already_printed: bool = False


STDIN = "\0stdin"
"""Internal stand-in for a lone `-`, which would otherwise be parsed as a flag."""


def _convert_text(_: type, tokens: Sequence[Token]) -> str:
    return "\n".join(read_texts(tokens[0].value, "", lines=False))


TextArg = Annotated[str, Parameter(converter=_convert_text)]
"""TEXT argument: as typed, or all of `@file`, or of stdin for `-`."""


CountFlag = Annotated[int, Parameter(name=("-n", "--n"))]
"""Number of results per input: `-n 3`."""


TextSource = Annotated[str | None, Parameter(converter=lambda _, tokens: tokens[0].value)]
"""TEXT argument that may also be `@file`, or `-` for stdin; read by `read_texts`."""


def read_texts(source: str | None, command: str, *, lines: bool = True) -> list[str]:
    """Return the input texts: one as typed; each line of `@file`, or of stdin unless `lines` is False.

    Without a text, stdin is read if it is a pipe.
    """
    from peasy.tokenization.encoding import split_lines

    if source is None and sys.stdin.isatty():
        raise UsageError(f"{command} needs a TEXT.", hint="Give a text in quotes, @file, or - to read stdin.")
    if source is None or source == STDIN:
        text = _read_stdin()
        return split_lines(text) if lines else [text]
    path = Path(source.removeprefix("@"))
    is_file = os.path.isfile(path)  # a text may be too long for a name, which pathlib would raise for
    if source.startswith("@"):
        if is_file:
            return split_lines(_read_file(path))
        if len(source) < 4096 and len(source.split()) == 1 and (path.suffix or len(path.parts) > 1):
            raise NotFound(f"There is no file {path}.", hint="@ reads the texts of a file, one per line.")
    elif is_file and sys.stderr.isatty():
        print(f"{path} is taken as a text; for the lines of the file, write @{path}", file=sys.stderr)
    return [source]


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from None


def _read_stdin() -> str:
    """Read all of stdin as UTF-8 text, without the last newline."""
    try:
        text = sys.stdin.buffer.read().decode("utf-8") if hasattr(sys.stdin, "buffer") else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"stdin is not UTF-8 text: {error.reason} at byte {error.start}.") from None
    return text.removesuffix("\n").removesuffix("\r")


def confirm_callback(flags: Flags) -> Callable[[str], bool] | None:
    """Return the confirmation callback: always yes with `--yes`, None if stdin is not a terminal."""
    if flags.yes:
        return lambda question: True
    if flags.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return _prompt_yes_no


def _prompt_yes_no(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
