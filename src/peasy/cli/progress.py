"""Progress line on stderr for long commands; silent unless stderr is a terminal."""

import sys
import time

from peasy.cli.command import Flags


class ProgressLine:
    """Progress callback `(done, total)`: prints the percentage and the remaining time."""

    def __init__(self, label: str, flags: Flags) -> None:
        self.label, self.start, self.last_update = label, time.monotonic(), 0.0
        self.visible = sys.stderr.isatty() and not flags.quiet and not flags.json

    def __call__(self, done: int, total: int) -> None:
        """Update the line, at most ten times a second."""
        now = time.monotonic()
        if not self.visible or not total or (now - self.last_update < 0.1 and done < total):
            return
        self.last_update = now
        left = (now - self.start) * (total - done) / max(done, 1)
        line = f"{self.label} {done / total:.0%} · {left:,.0f} s left" if done < total else ""
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
