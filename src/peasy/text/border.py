"""The border to the `tokenizers` library: what goes wrong behind it comes back as an error for people.

The library is written in Rust, whose panics arrive as a BaseException that a plain `except Exception` lets through.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from peasy.errors import InvalidInput, PeasyError


@contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turn anything the library raises into an error that says what was being done.

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
        said = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InvalidInput(f"{doing} failed: {said}.") from None
