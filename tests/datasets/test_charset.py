"""Charset detection: byte order marks, line ends, and invalid bytes with their position."""

import codecs
import gzip
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peasy.datasets import charset
from peasy.datasets.charset import read_blocks, read_lines
from peasy.datasets.corpus import DataProblems
from peasy.errors import InvalidInput, NotFound

TEXT = "Ünïcode — 日本語 🙂\nsecond line\n"


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_detected(tmp_path, name):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode(name))
    assert "".join(read_blocks(path)) == TEXT
    assert [line for _, line in read_lines(path, DataProblems())] == TEXT.splitlines()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60), st.integers(1, 9))
def test_any_block_size_gives_the_same_text(tmp_path, monkeypatch, text, size):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    monkeypatch.setattr(charset, "READ_BYTES", size)
    with path.open(encoding="utf-8-sig") as file:
        assert "".join(read_blocks(path)) == file.read()


@pytest.mark.parametrize("block", [1, 3, 1 << 17])
def test_invalid_byte_is_reported_with_position_and_line(tmp_path, monkeypatch, block):
    monkeypatch.setattr(charset, "READ_BYTES", block)
    path = tmp_path / "latin.txt"
    path.write_bytes("été\nligne\n".encode() + b"caf\xe9 noir\n")
    with pytest.raises(InvalidInput, match=r"0xe9 at byte 15 \(line 3\)") as error:
        list(read_blocks(path))
    assert "iconv" in error.value.hint


def test_truncated_character_is_reported(tmp_path):
    (tmp_path / "cut.txt").write_bytes("ab é".encode()[:-1])
    with pytest.raises(InvalidInput, match="at byte 3"):
        list(read_blocks(tmp_path / "cut.txt"))


def test_null_bytes_are_rejected(tmp_path):
    (tmp_path / "wide.txt").write_bytes("text".encode("utf-16-le"))
    with pytest.raises(InvalidInput, match=r"null byte \(at byte 1\)"):
        list(read_blocks(tmp_path / "wide.txt"))


def test_newlines_are_normalized(tmp_path, monkeypatch):
    monkeypatch.setattr(charset, "READ_BYTES", 2)
    (tmp_path / "text.txt").write_bytes(b"a\r\nb\rc\nd\r")
    assert "".join(read_blocks(tmp_path / "text.txt")) == "a\nb\nc\nd\n"


def test_bad_lines_are_reported_and_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(charset, "MAX_LINE_BYTES", 16)
    (tmp_path / "rows").write_bytes(b"good\r\nb\xffd\n" + b"x" * 50 + b"\nze\0ro\nlast")
    problems = DataProblems()
    lines = list(read_lines(tmp_path / "rows", problems))
    assert lines == [(1, "good"), (2, None), (3, None), (4, None), (5, "last")]
    assert [where.rpartition(":")[2] for where, _ in problems.listed] == ["2", "3", "4"]
    assert "0xff at column 2" in problems.listed[0][1]


@pytest.mark.parametrize("end", ["", "\n", "\nlast"])
def test_a_line_of_utf16_without_end_is_not_kept_in_memory(tmp_path, monkeypatch, end):
    """Gigabytes without a line end, from a small .gz: one problem, and at most the limit and a block are kept."""
    monkeypatch.setattr(charset, "MAX_LINE_BYTES", 1 << 16)
    with gzip.open(tmp_path / "rows.gz", "wb") as file:
        file.write(codecs.BOM_UTF16_LE + f"good\n{'x' * (1 << 22)}{end}".encode("utf-16-le"))
    problems = DataProblems()
    tracemalloc.start()
    lines = list(read_lines(tmp_path / "rows.gz", problems))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines == [(1, "good"), (2, None), *([(3, "last")] if "last" in end else [])]
    assert len(problems.listed) == 1
    assert peak < 2 << 20


def test_missing_file_or_folder_is_rejected(tmp_path):
    with pytest.raises(NotFound):
        list(read_blocks(tmp_path / "nothing.txt"))
    with pytest.raises(InvalidInput):
        list(read_blocks(tmp_path))
