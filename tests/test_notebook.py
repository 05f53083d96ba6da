"""Notebook widget: the page's modules, a static fallback, and an executed notebook that opens offline."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.render.conftest import every_part

from peasy import notebook
from peasy.errors import InvalidInput, MissingExtra
from peasy.render import html
from peasy.views.document import Document

EVERYTHING = Document("Everything", every_part())


@pytest.fixture
def made():
    return notebook.widget(EVERYTHING)


def test_widget_is_self_contained(made):
    content, style, arithmetic = html.widget_parts(EVERYTHING)
    assert (made.content, made.style, made.arithmetic) == (content, style, arithmetic)
    assert "import " not in made._esm.split("export default")[0].replace("important", "")
    assert "http" not in made._esm.replace("http://www.w3.org/2000/svg", "")
    assert ":root" not in made.style


def test_static_fallback_is_included(made):
    bundle = made._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "<table" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert bundle["image/svg+xml"].startswith("<svg")


def test_objects_without_a_document_are_rejected():
    with pytest.raises(InvalidInput, match="int cannot be shown"):
        notebook.widget(3)


def test_missing_extra_is_an_error_with_install_hint(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    notebook._widget_class.cache_clear()
    with pytest.raises(MissingExtra, match="extra notebook") as caught:
        notebook.widget(EVERYTHING)
    assert "peasy-attention[notebook]" in caught.value.hint


def test_every_result_has_a_widget(made):
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
def test_widget_renders_in_a_page(made, browser, tmp_path):
    """Import the module from a blob and render it into an element, as a notebook front end does."""
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
    assert page.locator("#popover").is_visible(), "cells show their arithmetic"
    assert page.locator("peasy-maps .read").first.inner_text()
    assert page.evaluate("getComputedStyle(document.body).fontSize") == "16px"
    assert page.evaluate("document.getElementById('home').offsetHeight") > 500
    page.context.close()
    assert complaints == []


@pytest.mark.browser
def test_an_executed_and_converted_notebook_opens_offline(browser, tmp_path):
    """Run with nbclient, converted with nbconvert, opened offline: the static figures are there.

    The notebook has no widget state, as on GitHub: with it, nbconvert fetches a widget manager from the network.
    """
    import nbclient
    import nbconvert
    import nbformat

    code = [
        "import numpy, peasy\nfrom peasy.views.document import Document, Maps\nfrom peasy import notebook",
        "peasy.explain('i-love-ai')",
        "notebook.widget(Document('Heads', (Maps('Weights', numpy.eye(3)[None, None].repeat(2, 1), ('a', 'b', 'c'),"
        " ('a', 'b', 'c'), ('0',), ('0', '1')),)))",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in code])
    client = nbclient.NotebookClient(book, timeout=120, kernel_name="python3", store_widget_state=False)
    with ThreadPoolExecutor(1) as apart:  # the browser driver owns this thread's event loop
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
    assert page.locator("svg image").first.is_visible(), "a map as a static image, where widgets do not run"
    page.context.close()
