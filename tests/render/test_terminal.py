"""Terminal output."""

import re

import pytest
from rich.cells import cell_len
from tests.render.conftest import HOSTILE, every_part, matrix

from peasy.render import terminal
from peasy.views.document import Document, Matrix, Paragraph, Table

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def lines_of(*parts, **options):
    return terminal.draw(Document("t", parts), **options).splitlines()


def test_a_matrix_reads_as_a_labelled_table():
    drawn = terminal.draw(Document("t", (matrix(marks=frozenset()),)))
    assert "weights   softmax(QKᵀ / √d_k)" in drawn
    rows = {line.split()[0]: line.split()[1:] for line in drawn.splitlines() if line.startswith(("I ", "love", "AI"))}
    numbers = {name: [cell for cell in cells if cell[0].isdigit()] for name, cells in rows.items()}
    assert numbers == {
        "I": ["0.1978", "0.4011", "0.4011"],
        "love": ["0.2483", "0.2483", "0.5035"],
        "AI": ["0.1400", "0.2840", "0.5760"],
    }
    assert "query ↓ key →" in drawn
    assert "rounded to 4 decimals" in drawn


def test_without_colours_bars_replace_escape_codes():
    drawn = terminal.draw(Document("t", (matrix(),)))
    assert "\x1b" not in drawn
    assert "0.5760 █" in drawn


def test_colour_is_an_addition_to_the_numbers():
    coloured = terminal.draw(Document("t", (matrix(),)), colour=True)
    assert "48;2;" in coloured
    for number in ("0.1978", "0.5035", "0.5760"):
        assert number in ANSI.sub("", coloured)


def test_a_marked_cell_is_pointed_at():
    assert "►0.5035" in terminal.draw(Document("t", (matrix(),)))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_screen(width):
    tokens = ("中文字", "😀", "שלום", " the", "e\u0301") * 6
    wide = Matrix("wide", tuple((0.12345,) * 30 for _ in tokens), tokens, tokens, "query", "key", shaded=True)
    table = Table(("a", "b"), (("word " * 40, 1.0), ("日本" * 60, 2.0)))
    for line in lines_of(wide, table, Paragraph("word " * 60), width=width):
        assert cell_len(line) <= width, line


def test_columns_stay_aligned_with_wide_characters():
    tokens = ("中文字", "😀", "a")
    drawn = lines_of(Matrix("m", ((1.0, 2.0, 3.0),) * 3, tokens, tokens))
    rows = [line for line in drawn if line.endswith("3")]
    assert len(rows) == 3
    assert len({cell_len(line) for line in rows}) == 1


def test_a_wide_matrix_is_split_into_column_groups():
    names = tuple(f"token{place}" for place in range(20))
    drawn = "\n".join(lines_of(Matrix("m", ((0.5,) * 20,), ("row",), names)))
    assert "columns 1 to " in drawn
    assert "of 20" in drawn
    assert all(name in drawn for name in names)


def test_a_long_matrix_is_windowed_with_a_notice():
    names = tuple(f"t{place}" for place in range(500))
    drawn = lines_of(Matrix("m", tuple((0.5,) for _ in names), names, ("a",)))
    assert len(drawn) < 60
    assert any("460 of 500 rows are left out" in line for line in drawn)


@pytest.mark.parametrize("colour", [False, True])
def test_hostile_strings_cannot_control_the_terminal(colour):
    parts = [part for word in HOSTILE[::4] for part in every_part(word)[:10]]
    parts.append(Table(("word",), tuple((word,) for word in HOSTILE)))
    drawn = terminal.draw(Document("\x1b]0;owned\x07", tuple(parts)), colour=colour)
    bare = ANSI.sub("", drawn) if colour else drawn
    assert not [c for c in bare if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0]
    assert not set(bare) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    bare.encode("utf-8")


def test_without_sanitising_an_escape_code_would_pass(monkeypatch):
    monkeypatch.setattr("peasy.render.sanitize.escape_control", lambda text: text)
    assert "\x1b[31m" in terminal.draw(Document("\x1b[31m", ()))


def test_rich_markup_in_a_token_is_text():
    drawn = terminal.draw(Document("t", (Matrix("m", ((1.0,),), ("[red]x[/red]",), (":smile:",)),)))
    assert "[red]x[/red]" in drawn
    assert ":smile:" in drawn
