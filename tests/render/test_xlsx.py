"""Excel output: live formulas give Python's numbers, before and after a change of an input; text is never a formula."""

import io
import shutil
import subprocess

import numpy as np
import pytest
from tests.render.conftest import HOSTILE, every_part

import peasy
from peasy.render import draw
from peasy.views.document import Document, Matrix
from peasy.views.worked import spreadsheet_document
from peasy.worked import example_names, load_example, solve
from peasy.worked.expressions import cell_formulas

openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("xlsxwriter")


def open_sheet(content, values=False):
    return openpyxl.load_workbook(io.BytesIO(content), data_only=values)["peasy"]


def table_places(sheet, names):
    """Return the row of each table's name."""
    return {cell.value: cell.row for (cell,) in sheet.iter_rows(max_col=1) if cell.value in names}


def read_table(sheet, top, shape):
    return np.array([[sheet.cell(top + 2 + r, 2 + c).value for c in range(shape[1])] for r in range(shape[0])])


@pytest.mark.parametrize("name", example_names())
def test_every_computed_cell_is_a_formula_with_its_value(name):
    worked = solve(load_example(name))
    content = draw(spreadsheet_document(worked), "xlsx")
    formulas, values = open_sheet(content), open_sheet(content, values=True)
    for node, top in table_places(values, set(worked.values)).items():
        expected = worked.values[node]
        finite = np.isfinite(expected)
        written = read_table(values, top, expected.shape)
        np.testing.assert_allclose(written[finite].astype(float), expected[finite], rtol=0, atol=1e-12)
        if cell_formulas(worked.graph, worked.values, node) is not None:
            cells = read_table(formulas, top, expected.shape)[finite]
            assert all(isinstance(cell, str) and cell.startswith("=") for cell in cells), node


def recalculate(content, changes, folder):
    """Return the workbook with some cells changed, calculated again by LibreOffice."""
    book = openpyxl.load_workbook(io.BytesIO(content))
    for place, value in changes.items():
        book["peasy"][place].value = value
    book.save(folder / "changed.xlsx")
    out = folder / "out"
    profile = f"-env:UserInstallation=file://{folder / 'profile'}"
    convert = ["--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", str(out), str(folder / "changed.xlsx")]
    subprocess.run(["soffice", "--headless", profile, *convert], check=True, capture_output=True, timeout=180)
    return open_sheet((out / "changed.xlsx").read_bytes(), values=True)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("soffice"), reason="no LibreOffice on this machine")
@pytest.mark.parametrize(
    "name",
    [
        "i-love-ai-two-heads",
        "i-love-ai-causal",
        "apple-similarity",
        "layer-norm",
        "cross-entropy",
        "adamw",
        "rnn-step",
        "encoder-block",
        "sampling",
        "tiny-gpt-step",
        "attention-backward",
    ],
)
def test_a_changed_input_changes_everything_as_in_python(name, tmp_path):
    worked = solve(load_example(name))
    content = draw(spreadsheet_document(worked), "xlsx")
    sheet = open_sheet(content)
    places = table_places(sheet, set(worked.values))
    given = {node: worked.values[node].copy() for node in worked.values if not worked.graph.nodes[node].routes}
    rng, changes = np.random.default_rng(0), {}
    for node, values in given.items():
        for (row, column), _ in np.ndenumerate(values):
            values[row, column] += rng.uniform(0.1, 0.9)
            changes[sheet.cell(places[node] + 2 + row, 2 + column).coordinate] = float(values[row, column])
    expected = worked.graph.evaluate(given)
    recalculated = recalculate(content, changes, tmp_path)
    for node, top in places.items():
        finite = np.isfinite(expected[node])
        written = read_table(recalculated, top, expected[node].shape)[finite].astype(float)
        np.testing.assert_allclose(written, expected[node][finite], rtol=0, atol=1e-9, err_msg=node)
        if node not in given and worked.graph.route(node, worked.values) and finite.any():
            moved = np.abs(written - worked.values[node][finite]).max() > 1e-9
            assert moved or node in ("d_loss", "loss.d_loss", "loss.d_token_loss", "norm.d_scaled"), node


def test_text_is_never_a_formula():
    words = (*HOSTILE, "=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "http://example.org")
    matrix = Matrix("=1+1", tuple((word,) for word in words), words, ("=2+2",))
    sheet = open_sheet(draw(Document("=3+3", (matrix, *every_part("=4+4"))), "xlsx"))
    cells = [cell for row in sheet.iter_rows() for cell in row if cell.value is not None]
    assert any(str(cell.value).startswith("=1+1") for cell in cells)
    assert all(cell.data_type != "f" and cell.hyperlink is None for cell in cells)


def test_a_saved_workbook_can_be_checked(tmp_path):
    path = peasy.explain("i-love-ai").save(tmp_path / "love.xlsx")
    result = peasy.check(path)
    assert result.passed, result.verdict
    assert result.points[0] == result.points[1] >= 39
