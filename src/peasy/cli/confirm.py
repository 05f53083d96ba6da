"""Confirmation prompt (y/N) before downloads and deletions; only on a terminal."""

import sys
from collections.abc import Callable

from peasy.cli.command import Flags


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
