"""The widget: the same modules, a still form beside it, and a notebook that is executed, saved and opened offline."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.render.conftest import every_part

from peasy import notebook
from peasy.errors import InvalidInput, MissingPart
from peasy.render import html
from peasy.views import Document

EVERYTHING = Document("Everything", every_part())


@pytest.fixture
def made():
    return notebook.widget(EVERYTHING)


def test_it_carries_the_page_and_asks_nobody(made):
    content, style, arithmetic = html.live_parts(EVERYTHING)
    assert (made.content, made.style, made.arithmetic) == (content, style, arithmetic)
    assert "import " not in made._esm.split("export default")[0].replace("important", "")
    assert "http" not in made._esm.replace("http://www.w3.org/2000/svg", "")
    assert ":root" not in made.style


def test_the_still_form_stands_beside_the_live_one(made):
    bundle = made._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "<table" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert bundle["image/svg+xml"].startswith("<svg")


def test_what_has_nothing_to_show_says_so():
    with pytest.raises(InvalidInput, match="int has nothing to show"):
        notebook.widget(3)


def test_without_the_part_it_names_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    monkeypatch.setattr(notebook, "_kind", None)
    with pytest.raises(MissingPart, match="part notebook") as caught:
        notebook.widget(EVERYTHING)
    assert "peasy[notebook]" in caught.value.hint


def test_every_answer_has_a_widget(made):
    import peasy

    assert "I love" in peasy.explain("i-love-ai").widget().content


PAGE = """<!doctype html><meta charset="utf-8"><div id="home"></div><script type="module">
const esm = {esm};
const traits = {traits};
const url = URL.createObjectURL(new Blob([esm], {{ type: "text/javascript" }}));
const {{ default: widget }} = await import(url);
widget.render({{ model: {{ get: (name) => traits[name] }}, el: document.getElementById("home") }});
</script>"""


@pytest.mark.browser
def test_the_widget_lives_in_a_page_of_its_own(made, browser, tmp_path):
    """As a notebook's front end does it: the module is imported from a blob and rendered into an element."""
    traits = html._safe_json({"content": made.content, "style": made.style, "arithmetic": made.arithmetic})
    path = tmp_path / "widget.html"
    path.write_text(PAGE.format(esm=html._safe_json(made._esm), traits=traits))
    complaints = []
    page = browser.new_context(offline=True).new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(path.as_uri())
    page.wait_for_selector("peasy-maps[data-ready]")
    page.locator("td[data-cell]").first.focus()
    assert page.locator("#popover").is_visible(), "cells open to their arithmetic"
    assert page.locator("peasy-maps .read").first.inner_text()
    assert page.evaluate("getComputedStyle(document.body).fontSize") == "16px"
    assert page.evaluate("document.getElementById('home').offsetHeight") > 500
    page.context.close()
    assert complaints == []


@pytest.mark.browser
def test_an_executed_and_converted_notebook_opens_offline(browser, tmp_path):
    """Run with nbclient, converted with nbconvert, opened with the network off: the still pictures are there.

    Without the widgets' state in the notebook, as on GitHub: with it, nbconvert fetches a manager from the network.
    """
    import nbclient
    import nbconvert
    import nbformat

    code = [
        "import numpy, peasy\nfrom peasy.views import Document, Maps\nfrom peasy import notebook",
        "peasy.explain('i-love-ai')",
        "notebook.widget(Document('Heads', (Maps('Weights', numpy.eye(3)[None, None].repeat(2, 1), ('a', 'b', 'c'),"
        " ('a', 'b', 'c'), ('0',), ('0', '1')),)))",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in code])
    client = nbclient.NotebookClient(book, timeout=120, kernel_name="python3", store_widget_state=False)
    with ThreadPoolExecutor(1) as apart:  # the browser's driver has the event loop of this thread
        apart.submit(client.execute).result()
    kinds = [set(output["data"]) for cell in book.cells for output in cell.outputs]
    assert {"text/plain", "text/html", "image/svg+xml"} <= kinds[0]
    assert {"application/vnd.jupyter.widget-view+json", "text/html"} <= kinds[1]
    exporter = nbconvert.HTMLExporter(template_name="basic")
    body, _ = exporter.from_notebook_node(book)
    path = tmp_path / "book.html"
    path.write_text(f'<!doctype html><meta charset="utf-8">{body}')
    page = browser.new_context(offline=True).new_page()
    page.goto(path.as_uri())
    assert page.locator("td", has_text="0.4011").first.is_visible()
    assert page.locator("svg image").first.is_visible(), "a map as a still picture, where no widget can live"
    page.context.close()
