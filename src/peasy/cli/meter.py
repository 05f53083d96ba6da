"""Progress line on stderr for long commands; silent unless stderr is a terminal."""

import sys
import time

from peasy.cli.door import Flags


class Meter:
    """Progress callback `(done, total)`: prints the percentage and the remaining time."""

    def __init__(self, what: str, flags: Flags) -> None:
        self.what, self.start, self.last = what, time.monotonic(), 0.0
        self.live = sys.stderr.isatty() and not flags.quiet and not flags.json

    def __call__(self, done: int, total: int) -> None:
        """Update the line, at most ten times a second."""
        now = time.monotonic()
        if not self.live or not total or (now - self.last < 0.1 and done < total):
            return
        self.last = now
        left = (now - self.start) * (total - done) / max(done, 1)
        line = f"{self.what} {done / total:.0%} · {left:,.0f} s left" if done < total else ""
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
