"""Text file reading in blocks or lines: unpacked if compressed, charset by byte order mark, invalid bytes reported."""

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Self

from peasy.datasets.corpus import DataProblems
from peasy.errors import InvalidInput, NotFound
from peasy.extras import require_extra

READ_BYTES = 1 << 17
MAX_LINE_BYTES = 1 << 24
"""Longest row in bytes; plain text has no such limit."""

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is a prefix of it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
COMPRESSED_SUFFIXES = (".gz", ".zst")
_CONVERT_HINT = "Save it as UTF-8, for example with: iconv -f WINDOWS-1252 -t UTF-8 IN > OUT"


def _detect_encoding(path: Path) -> tuple[str, int]:
    """Return the encoding from the byte order mark, and the length of the mark; UTF-8 without one."""
    with _open_file(path) as file:
        head = file.read(4)
    return next(((name, len(mark)) for mark, name in _BYTE_ORDER_MARKS if head.startswith(mark)), ("utf-8", 0))


def data_suffix(path: Path) -> str:
    """Return the suffix of a file in lower case, without that of its compression.

    >>> data_suffix(Path("News.JSONL.gz"))
    '.jsonl'
    """
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in COMPRESSED_SUFFIXES else suffix


class _Unpacked:
    """Compressed file, read as the bytes that it contains; damage is an error that names the file."""

    def __init__(self, path: Path, packed: BinaryIO) -> None:
        self._path = path
        if path.suffix.lower() == ".gz":
            self._file: gzip.GzipFile | io.BufferedReader = gzip.GzipFile(fileobj=packed)
        else:
            self._file = io.BufferedReader(require_extra("pyarrow").input_stream(packed, compression="zstd"))

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes."""
        return self._checked(self._file.read, size)

    def readline(self, size: int) -> bytes:
        """Read a line of up to `size` bytes."""
        return self._checked(self._file.readline, size)

    def _checked(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInput(f"{self._path} cannot be unpacked: {error}.", hint="Is the file complete?") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _open_file(path: Path) -> BinaryIO | _Unpacked:
    """Open a regular file for reading bytes, unpacked; raise a readable error if that fails."""
    if not path.exists():
        raise NotFound(f"There is no file {path}.")
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file.")
    try:
        file = path.open("rb")
        return _Unpacked(path, file) if path.suffix.lower() in COMPRESSED_SUFFIXES else file
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def read_blocks(path: Path, on_bytes: Callable[[bytes], object] = len) -> Iterator[str]:
    """Yield the text of a file in blocks of about a hundred thousand characters, with line ends as \\n.

    `on_bytes` is called with the bytes of each block, so that hashing needs no second read.
    """
    encoding, offset = _detect_encoding(path)
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    line, carry = 1, ""
    with _open_file(path) as file:
        on_bytes(file.read(offset))
        while True:
            block = file.read(READ_BYTES)
            on_bytes(block)
            if encoding == "utf-8" and (null := block.find(b"\0")) >= 0:
                problem = "not text, or UTF-16 without a byte order mark"
                hint = "Use a text file; UTF-16 needs a byte order mark at its start."
                raise InvalidInput(f"{path} contains a null byte (at byte {offset + null:,}): {problem}.", hint=hint)
            num_pending = len(decoder.getstate()[0])
            try:
                text = carry + decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                position = offset - num_pending + error.start
                line += block[: max(0, error.start - num_pending)].count(b"\n")
                problem = f"byte {error.object[error.start]:#04x} at byte {position:,} (line {line:,}) is invalid"
                raise InvalidInput(f"{path} is not {encoding.upper()}: {problem}.", hint=_CONVERT_HINT) from None
            offset += len(block)
            line += block.count(b"\n")
            carry = "\r" if block and text.endswith("\r") else ""  # its \n may come with the next block
            if text := text.removesuffix(carry).replace("\r\n", "\n").replace("\r", "\n"):
                yield text
            if not block:
                return


def read_lines(path: Path, problems: DataProblems) -> Iterator[tuple[int, str | None]]:
    """Yield the lines of a file with their numbers; None for an unreadable line, which is added to `problems`."""
    encoding, offset = _detect_encoding(path)
    if encoding != "utf-8":
        yield from _split_lines(path, problems)
        return
    with _open_file(path) as file:
        file.read(offset)
        number = 0
        while raw := file.readline(MAX_LINE_BYTES):
            number += 1
            if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                _add_long_line(path, number, problems)
                yield number, None
                continue
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
                problem = "the line contains a null byte" if "\0" in text else ""
            except UnicodeDecodeError as error:
                text, problem = "", f"byte {raw[error.start]:#04x} at column {error.start + 1} is not UTF-8"
            if problem:
                problems.add(f"{path}:{number}", problem)
            yield number, None if problem else text


def _split_lines(path: Path, problems: DataProblems) -> Iterator[tuple[int, str | None]]:
    number, rest, is_long = 0, "", False
    for block in read_blocks(path):
        *lines, rest = (rest + block).split("\n")
        for line in lines:
            number += 1
            yield number, None if is_long else line
            is_long = False
        if len(rest) >= MAX_LINE_BYTES:  # what it may still bring is not kept
            if not is_long:
                _add_long_line(path, number + 1, problems)
            rest, is_long = "", True
    if rest or is_long:
        yield number + 1, None if is_long else rest


def _add_long_line(path: Path, number: int, problems: DataProblems) -> None:
    problems.add(f"{path}:{number}", f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
