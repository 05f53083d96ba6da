"""The five lecture documents as written: all findings in each are pinned, including every known slip."""

import pytest

from peasy.worked.checking import check
from peasy.worked.tables import as_written_names, read_notes

CELLS = {
    "lecture-easy-peasy": [("scores", "squeezy", "lemon", "q_2*k_2", "q_3*k_2", "wrong")],
    "lecture-self-attention": [
        ("Q", "<eos>", "0", "0.8", 1.434, "wrong"),
        ("Q", "<eos>", "1", "0.8", 3.13, "wrong"),
        ("K", "<eos>", "0", "0.18", 1.434, "wrong"),
        ("K", "<eos>", "1", "0.81", 3.13, "wrong"),
        ("context", "Pizza", "0", "1.0", None, "follows"),
    ],
    "lecture-transformers": [
        ("weights", row, column, written, right, "wrong")
        for row in ("And", "An")
        for column, written, right in (
            ("Orange", "0.15", 0.1345),
            ("Apple", "0.15", 0.1345),
            ("And", "0.5", 0.3655),
            ("An", "0.5", 0.3655),
        )
    ],
    "notes-i-love-ai": [
        ("V", "love", "0", "2", 0, "wrong"),
        ("scores", "I", "AI", "2", 1, "wrong"),
        ("scaled", "love", "AI", "0.71", 1.4142, "wrong"),
    ],
    "lecture-journey": [
        ("X", "Your", "2", "0.69", 0.89, "wrong"),
        ("weights", "journey", "Your", "0.138", 0.1385, "truncated"),
        ("weights", "journey", "journey", "0.23", 0.2379, "truncated"),
    ],
}
ROWS = {
    "lecture-easy-peasy": [],
    "lecture-self-attention": [
        ("weights", "Pizza", "sum", "0.38 + 0.4 + 0.9 = 1.68"),
        ("weights", "Pizza", "sum", "0.38 + 0.4 + 0.24 = 1.02"),
    ],
    "lecture-transformers": [
        ("weights", "And", "sum", "0.15 + 0.15 + 0.5 + 0.5 = 1.3"),
        ("weights", "An", "sum", "0.15 + 0.15 + 0.5 + 0.5 = 1.3"),
    ],
    "notes-i-love-ai": [("scores", "love", "length", "2 cells instead of 3: 1 1 2.")],
    "lecture-journey": [
        ("weights", "Your", "length", "7 cells instead of 6: 0.21 0.20 0.20 0.12 0.12 0.15."),
        ("weights", "Your", "sum", "= 1.09"),
    ],
}
RIGHT = {
    "lecture-easy-peasy": 37, "lecture-self-attention": 0, "lecture-transformers": 70, "notes-i-love-ai": 84,
    "lecture-journey": 9,
}  # fmt: skip


def check_document(name):
    return [check(part) for part in read_notes(name).parts]


def test_all_five_documents_exist():
    assert as_written_names() == tuple(sorted(CELLS)) == tuple(sorted(ROWS))


@pytest.mark.parametrize("name", CELLS)
def test_cells_that_are_not_right(name):
    cells = [cell for part in check_document(name) for cell in part.cells if cell.verdict != "right"]
    written = [(cell.table, cell.row, cell.column, cell.written, cell.verdict) for cell in cells]
    assert written == [(*where, verdict) for *where, _, verdict in CELLS[name]]
    for cell, (*_, right, _verdict) in zip(cells, CELLS[name], strict=True):
        assert cell.expected == (pytest.approx(right, abs=1e-4) if isinstance(right, float | int) else right)


@pytest.mark.parametrize("name", ROWS)
def test_inconsistent_rows(name):
    rows = [row for part in check_document(name) for row in part.rows]
    assert [(row.table, row.row, row.finding) for row in rows] == [row[:3] for row in ROWS[name]]
    for row, (*_, reason) in zip(rows, ROWS[name], strict=True):
        assert reason in row.reason


def test_an_extreme_context_is_a_remark_not_a_mistake():
    remarks = [remark for part in check_document("lecture-self-attention") for remark in part.remarks]
    assert any("needs weight 1 on one word" in remark for remark in remarks)


@pytest.mark.parametrize("name", RIGHT)
def test_all_other_cells_are_right(name):
    assert sum(part.count("right") for part in check_document(name)) == RIGHT[name]
    assert not all(part.passed for part in check_document(name))


def test_reasons_contain_the_arithmetic():
    cells = [cell for part in check_document("notes-i-love-ai") for cell in part.cells if cell.verdict == "wrong"]
    reason = {(cell.table, cell.written): cell.reason for cell in cells}
    assert reason["scaled", "0.71"] == "2 / √2 = 1.4142, not 0.71: it is the number of column 2."
    reason = {
        (cell.table, cell.written): cell.reason
        for part in check_document("lecture-self-attention")
        for cell in part.cells
    }
    assert reason["K", "0.18"] == "0.8·0.78 + 0.9·0.9 = 1.434, not 0.18."


def test_percentages_and_quotients_are_right():
    cells = [cell for part in check_document("notes-i-love-ai") for cell in part.cells if cell.table == "weights"]
    assert {cell.written: cell.verdict for cell in cells} == dict.fromkeys(
        ["1/5.06", "2.03/5.06", "0.1978", "0.4011", "19.8%", "40%", "0.198", "0.401"], "right"
    )
