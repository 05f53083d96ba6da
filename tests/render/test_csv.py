"""CSV output: exact numbers, no spreadsheet formulas."""

import csv
import io

from tests.render.conftest import HOSTILE, every_part, matrix

from peasy.render import csv as drawn_csv
from peasy.views.document import Document, Matrix, Table

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def lines_of(document):
    return list(csv.reader(io.StringIO(drawn_csv.draw(document))))


def test_numbers_come_back_exactly():
    third = 1 / 3
    lines = lines_of(Document("t", (matrix(values=((third, -third, 1e-300),) * 3, marks=frozenset()),)))
    assert lines[0] == ["weights"]
    assert lines[1] == ["", "I", "love", "AI"]
    assert [[row[0], *map(float, row[1:])] for row in lines[2:5]] == [
        [token, third, -third, 1e-300] for token in ("I", "love", "AI")
    ]


def test_blocks_are_separated_by_an_empty_line_and_minus_zero_is_zero():
    drawn = drawn_csv.draw(Document("t", (Matrix("a", ((-0.0,),), ("r",), ("c",)), Table(("x",), ((2.0,),), "b"))))
    assert drawn == "a\n,c\nr,0\n\nb\nx\n2\n"


def test_non_finite_numbers_are_words():
    lines = lines_of(Document("t", (Matrix("m", ((float("nan"), float("-inf"), None),), ("r",), ("a", "b", "c")),)))
    assert lines[2] == ["r", "nan", "-inf", ""]


def test_no_cell_is_a_formula():
    parts = [part for word in HOSTILE for part in every_part(word)]
    for line in lines_of(Document("t", tuple(parts))):
        for cell in line:
            assert not cell.lstrip(" ").startswith(FORMULA_STARTS) or is_number(cell), cell
            assert "\x00" not in cell
            assert "\n" not in cell


def is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return cell == repr(float(cell)) or cell.lstrip("-").isdigit() or cell == "-inf"


def test_without_the_escape_a_cell_would_be_a_formula(monkeypatch):
    monkeypatch.setattr(drawn_csv, "escape_formula", lambda text: text)
    lines = lines_of(Document("t", (Table(("=1+1",), ()),)))
    assert lines[0] == ["=1+1"]
