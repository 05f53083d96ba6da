"""Progress line on stderr for long commands: training, evaluation, verification, benchmarks."""

import sys
import time

from peasy.cli.command import Flags


class ProgressLine:
    """One line on stderr that is replaced; silent unless stderr is a terminal, and with --quiet or --json.

    As a progress callback `(done, total)` it shows the percentage and the remaining time.
    """

    def __init__(self, label: str, flags: Flags) -> None:
        self.label, self.start, self.last_update = label, time.monotonic(), 0.0
        self.quiet = flags.quiet or flags.json
        self.visible = sys.stderr.isatty() and not self.quiet

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done, at most ten times a second; the line disappears at the end."""
        if total and done >= total:
            self.update("")
        elif total and self.is_due():
            left = (time.monotonic() - self.start) * (total - done) / max(done, 1)
            self.update(f"{self.label} {done / total:.0%} of {total:,} · {left:,.0f} s left")

    def is_due(self) -> bool:
        """Return whether the last update was a tenth of a second ago."""
        return self.visible and time.monotonic() - self.last_update > 0.1

    def update(self, text: str) -> None:
        """Replace the line by a text, cropped to the width of the terminal; "" removes it."""
        if self.visible:
            self._write(text, end="")

    def print(self, text: str) -> None:
        """Print a text that stays, also without a terminal."""
        if not self.quiet:
            self._write(text, end="\n")

    def _write(self, text: str, end: str) -> None:
        from rich.console import Console
        from rich.control import Control
        from rich.segment import ControlType

        self.last_update = time.monotonic()
        console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=bool(end))
        if self.visible:
            console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
        console.print(text, end=end, no_wrap=not end, overflow="ellipsis", crop=not end, soft_wrap=bool(end))
        sys.stderr.flush()
