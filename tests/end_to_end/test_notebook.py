"""Results of peasy displayed in a notebook."""

import nbclient
import nbformat
import pytest

CELLS = (
    "import numpy, peasy\npeasy.explain('i-love-ai')",
    "peasy.explain('easy peasy lemon squeezy', query='lemon')",
    "peasy.attend(numpy.eye(3), numpy.eye(3), numpy.eye(3))",
    "peasy.check('notes-i-love-ai')",
    "peasy.exercise(seed=5)",
)


@pytest.fixture(scope="module")
def outputs():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.mark.parametrize("index", range(len(CELLS)))
def test_a_cell_shows_its_result_once_and_without_scripts(outputs, index):
    [shown] = outputs[index]
    assert {"text/plain", "text/html"} <= set(shown["data"])
    page = shown["data"]["text/html"].lower()
    assert "<table" in page
    assert not any(word in page for word in ("<script", "javascript:", " onclick=", " onload="))
