"""Error wrapper for the `tokenizers` library.

The library is written in Rust; its panics are a BaseException that `except Exception` does not catch.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from peasy.errors import InvalidInput, PeasyError


@contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Convert any exception of the library to an InvalidInput that names the action.

    >>> with guarded("Reading x.json"):
    ...     raise ValueError("no vocab")
    Traceback (most recent call last):
    peasy.errors.InvalidInput: Reading x.json failed: no vocab.
    """
    try:
        yield
    except (PeasyError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InvalidInput(f"{doing} failed: {reason}.") from None
