"""Asking before something is downloaded: only where a person sits, and not twice."""

import sys
from collections.abc import Callable

from peasy.cli.door import Flags


def asking(flags: Flags) -> Callable[[str], bool] | None:
    """How to ask under these flags: `--yes` has answered already, and a pipe cannot answer."""
    if flags.yes:
        return lambda question: True
    if flags.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return _ask


def _ask(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
