"""How answers and errors leave the door: the result on stdout, the rest on stderr."""

import contextlib
import json
import math
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peasy.cli.door import Answer, Flags
from peasy.errors import PeasyError

SCHEMA = 1


def show(answer: Answer, command: str, flags: Flags) -> None:
    """Save the answer where `--out` says, and print it."""
    files = [str(path) for path in answer.files]
    if flags.out:
        _save(answer, flags.out)
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
    if not flags.out:
        print(_draw(answer, flags))
    elif answer.brief:
        print(answer.brief)
    sys.stdout.flush()
    if flags.quiet:
        return
    for path in files:
        print(f"Saved {path}", file=sys.stderr)
    if answer.next:
        print("\nNext:", *(f"  {command}" for command in answer.next), sep="\n", file=sys.stderr)


def _draw(answer: Answer, flags: Flags) -> str:
    from peasy.render import draw

    return str(draw(answer.shown.document()))


def _save(answer: Answer, path: Path) -> None:
    from peasy.render import file, save

    if path.suffix.lower() == ".json":  # the same data as --json, and in any program's reach
        file.write(path, json.dumps(_plain(answer.shown.data()), ensure_ascii=False, allow_nan=False, indent=1) + "\n")
    else:
        save(answer.shown.document(), path)


def _print_json(value: Any) -> None:
    print(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    """What JSON can hold: arrays as lists, and null for a number that JSON has no word for."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
