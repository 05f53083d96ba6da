"""From argv to an exit code: settle the flags, ask the verb, show its answer, and turn every error into words."""

import errno
import inspect
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from cyclopts import App, CycloptsError, Group

from peasy import __version__
from peasy.cli import screen, settings, usage
from peasy.cli.door import STDIN, Answer, Flags
from peasy.cli.start import start
from peasy.cli.verb import VERBS, Verb
from peasy.errors import InvalidInput, NoRoom, NotFound, PeasyError
from peasy.parts import EXTRAS, missing

_WITH_VALUE = ("--out", "--device", "--threads", "--seed")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EADDRINUSE)
_HELP = """Calculate attention by hand, train it, run it and look inside it.

For example:

    peasy demo
    peasy explain i-love-ai
    peasy explain "The pizza came out of the oven" --query oven --causal
    peasy check my-notes.md
    peasy VERB --help
"""


def build(asked: str = "") -> App:
    """The command line with all verbs in it; only the file of the verb that is `asked` for is read."""
    app = App("peasy", help=_HELP, version=__version__, help_format="plaintext", config=settings.sources())
    headings = {name: Group(name, sort_key=i) for i, name in enumerate(dict.fromkeys(v.group for v in VERBS))}
    for order, verb in enumerate(VERBS):
        help = _description(verb) if verb.name == asked else verb.does
        app.command(verb.home, name=verb.name, help=help, group=headings[verb.group], sort_key=order)
    app.register_install_completion_command(help="Complete verbs and flags with the tab key in this shell.")
    app.default(start)
    return app


def _description(verb: Verb) -> str:
    """What the verb says of itself, up to its arguments: each paragraph one line, examples as they stand."""
    module, _, name = verb.home.partition(":")
    told = (inspect.getdoc(getattr(import_module(module), name)) or verb.does).partition("\nArgs:")[0]
    paragraphs = told.replace("Examples:\n", "For example:\n").strip().split("\n\n")  # cyclopts drops "Examples:"
    return "\n\n".join(each if each.startswith("    ") else each.replace("\n", " ") for each in paragraphs)


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing but that code leaves this function."""
    started = time.perf_counter()
    words = _verb_first([STDIN if word == "-" else _as_utf8(word) for word in (sys.argv[1:] if argv is None else argv)])
    _survive_odd_text()
    _one_voice()
    flags = _before_parsing(words)
    try:
        command, bound, flags = _parse(words, flags)
        _prepare(flags, words[0] if words else "")
        answer = command(*bound.args, **bound.kwargs)
        if not isinstance(answer, Answer):  # cyclopts' own: --help, --version, --install-completion
            return answer if isinstance(answer, int) else 0
        screen.show(answer, words[0] if words and words[0][:1] != "-" else "start", flags)
        if flags.verbose:
            screen.say_more(time.perf_counter() - started, settings.spoken())
        return answer.exit_code
    except KeyboardInterrupt:
        print("\n✗ Interrupted.", file=sys.stderr)
        return 130
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except BrokenPipeError:
        with screen.quiet_pipe():
            raise
        return 0
    except Exception as error:
        said = _in_words(error)
        if said.code == "lost":  # the lead itself may be what is gone
            sys.stderr = sys.__stderr__
        screen.complain(said, flags)
        return said.exit_code


def _parse(words: list[str], guess: Flags) -> tuple[Any, Any, Flags]:
    first = words[0] if words else "--"
    if not first.startswith("-") and first not in {verb.name for verb in VERBS}:
        raise usage.unknown_verb(first)
    try:
        command, bound, _ = build(first).parse_args(words, exit_on_error=False, print_error=False, help_on_error=False)
    except CycloptsError as error:
        raise usage.misused(error, words) from error
    given = [value for value in bound.arguments.values() if isinstance(value, Flags)]
    return command, bound, given[0] if given else guess


def _verb_first(words: list[str]) -> list[str]:
    """`peasy --json doctor` means `peasy doctor --json`."""
    start = 0
    while start < len(words) and words[start].startswith("-"):
        start += 2 if words[start] in _WITH_VALUE else 1
    return words[start : start + 1] + words[:start] + words[start + 1 :]


def _before_parsing(words: list[str]) -> Flags:
    """How to complain about a command line that cannot be parsed."""

    def on(name: str) -> bool:
        return f"--{name}" in words or os.environ.get(f"PEASY_{name.upper()}", "0").lower() not in ("", "0", "false")

    return Flags(json=on("json"), debug=on("debug"))


def _prepare(flags: Flags, asked: str) -> None:
    """Refuse early what cannot be saved, and tell the libraries below, which read these when they are imported."""
    also = next((verb.saves for verb in VERBS if verb.name == asked), ())
    if flags.out and flags.out.suffix.lstrip(".").lower() not in also:
        from peasy.render import format_of

        format_of(flags.out)
    if flags.threads:
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(flags.threads)
    if flags.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


def _one_voice() -> None:
    """Of several processes that torchrun started, only the first one speaks."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and os.environ.get("RANK", "0") != "0":
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (kept until Python ends)


def _as_utf8(word: str) -> str:
    """A word whose bytes Python could not read under a plain C locale, read as what terminals send."""
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return word


def _survive_odd_text() -> None:
    """A terminal that cannot show a character gets a question mark, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _in_words(error: BaseException) -> PeasyError:
    if isinstance(error, PeasyError):
        return error
    if isinstance(error, MemoryError):
        return NoRoom("There is not enough memory for this.", hint="Try something smaller.")
    if isinstance(error, OSError) and (error.errno in _FULL or error.filename):
        kind = NoRoom if error.errno in _FULL else NotFound if isinstance(error, FileNotFoundError) else InvalidInput
        return kind(f"{error.filename or 'The system'}: {error.strerror}.")
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, PeasyError):
            return cause
        if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] in EXTRAS:
            return missing(cause.name or "")
        cause = cause.__cause__
    bug = PeasyError(
        f"This is a bug in peasy: {type(error).__name__}: {error}",
        hint="Please run it again with --debug and report what it prints.",
    )
    bug.code, bug.__cause__ = "bug", error
    return bug
