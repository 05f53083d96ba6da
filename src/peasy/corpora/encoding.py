"""Bytes to text, in constant memory: encodings are told by their marks or refused by the byte that does not fit."""

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from peasy.corpora.corpus import Problems
from peasy.errors import InvalidInput, NotFound

BLOCK = 1 << 17
LONGEST_LINE = 1 << 24
"""A row longer than this many bytes is not read; running text has no such limit."""

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_OTHER = "Save it as UTF-8, for example with: iconv -f WINDOWS-1252 -t UTF-8 IN > OUT"


def detect(path: Path) -> tuple[str, int]:
    """The encoding that a file's first bytes tell, and how many bytes told it; UTF-8 where there is no mark."""
    with open_file(path) as file:
        head = file.read(4)
    return next(((name, len(mark)) for mark, name in _MARKS if head.startswith(mark)), ("utf-8", 0))


def open_file(path: Path) -> BinaryIO:
    """A regular file, opened for bytes; or an error in words."""
    if not path.exists():
        raise NotFound(f"There is no file {path}.")
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file.")
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def read_blocks(path: Path, seen: Callable[[bytes], object] = len) -> Iterator[str]:
    """The text of a file in parts of about a hundred thousand characters, all line ends as \\n.

    `seen` is called with the bytes of each part: whoever hashes or counts them need not read the file again.
    """
    encoding, offset = detect(path)
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    line, held = 1, ""
    with open_file(path) as file:
        seen(file.read(offset))
        while True:
            block = file.read(BLOCK)
            seen(block)
            _refuse_zero(block, encoding, path, offset)
            waiting = len(decoder.getstate()[0])
            try:
                text = held + decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                place = offset - waiting + error.start
                line += block[: max(0, error.start - waiting)].count(b"\n")
                raise _refused(path, encoding, place, error.object[error.start], line) from None
            offset += len(block)
            line += block.count(b"\n")
            held = "\r" if block and text.endswith("\r") else ""  # its \n may come with the next part
            if text := _line_ends(text[: len(text) - len(held)]):
                yield text
            if not block:
                return


def read_lines(path: Path, problems: Problems) -> Iterator[tuple[int, str | None]]:
    """The lines of a file with their numbers; None for a line that cannot be read, which `problems` is told."""
    encoding, offset = detect(path)
    if encoding != "utf-8":
        yield from _split_lines(read_blocks(path))
        return
    with open_file(path) as file:
        file.seek(offset)
        number = 0
        while raw := file.readline(LONGEST_LINE):
            number += 1
            if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
                while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                problems.add(f"{path}:{number}", f"the line is longer than {LONGEST_LINE >> 20} MiB")
                yield number, None
                continue
            yield number, _decode_line(raw, f"{path}:{number}", problems)


def _decode_line(raw: bytes, where: str, problems: Problems) -> str | None:
    try:
        if b"\0" in raw:
            raise ValueError("the line holds a zero byte")
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        reason = f"byte {raw[error.start]:#04x} at column {error.start + 1} is not UTF-8"
    except ValueError as error:
        reason = str(error)
    problems.add(where, reason)
    return None


def _split_lines(blocks: Iterator[str]) -> Iterator[tuple[int, str]]:
    number, rest = 0, ""
    for block in blocks:
        *lines, rest = (rest + block).split("\n")
        for line in lines:
            number += 1
            yield number, line
    if rest:
        yield number + 1, rest


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _refuse_zero(block: bytes, encoding: str, path: Path, offset: int) -> None:
    if encoding == "utf-8" and (at := block.find(b"\0")) >= 0:
        raise InvalidInput(
            f"{path} holds a zero byte (at byte {offset + at:,}): it is not text, or UTF-16 without its mark.",
            hint="Give a text file; UTF-16 needs a byte order mark at its start.",
        )


def _refused(path: Path, encoding: str, place: int, byte: int, line: int) -> InvalidInput:
    return InvalidInput(
        f"{path} is not {encoding.upper()}: byte {byte:#04x} at byte {place:,} (line {line:,}) does not fit.",
        hint=_OTHER,
    )
