"""Notebook widget: a page in a frame that works in a converted notebook, without a kernel and offline."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.render.conftest import every_part

from peasy import notebook
from peasy.errors import InvalidInput
from peasy.views.document import Document

EVERYTHING = Document("Everything", every_part())


def test_a_widget_is_one_frame_and_its_plain_text():
    bundle = notebook.widget(EVERYTHING)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}, "a widget view would be preferred, and needs a kernel"
    assert bundle["text/html"].startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert "<script" not in bundle["text/html"], "scripts run only inside the frame"


def test_objects_without_a_document_are_rejected():
    with pytest.raises(InvalidInput, match="int cannot be shown"):
        notebook.widget(3)


CODE = (
    "import peasy",
    "peasy.explain('i-love-ai')",
    "peasy.explain('i-love-ai').widget()",
    "peasy.forward_pass('stories', 'The pizza came out of the oven and it').widget()",
)


@pytest.mark.browser
def test_widgets_of_a_converted_notebook_answer_clicks_offline(browser, tmp_path):
    import nbclient
    import nbconvert
    import nbformat

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CODE])
    client = nbclient.NotebookClient(book, timeout=120, kernel_name="python3")
    with ThreadPoolExecutor(1) as apart:  # the browser driver owns this thread's event loop
        apart.submit(client.execute).result()
    assert {"text/plain", "text/html", "image/svg+xml"} <= set(book.cells[1].outputs[0]["data"])
    body, _ = nbconvert.HTMLExporter(template_name="basic").from_notebook_node(book)
    path = tmp_path / "book.html"
    path.write_text(f'<!doctype html><meta charset="utf-8">{body}')
    complaints = []
    page = browser.new_context(offline=True, viewport={"width": 1300, "height": 900}).new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(path.as_uri())
    assert page.locator("td", has_text="0.4011").first.is_visible(), "the result itself needs no script"
    explained, picture = (page.frame_locator(f"iframe >> nth={index}") for index in (0, 1))
    explained.locator("td[data-cell]").last.click()
    assert "=" in explained.locator("#popover").inner_text(), "a clicked number shows its arithmetic"
    picture.get_by_text("Head 0 of layer 1 looks from it back to pizza").wait_for()
    picture.get_by_role("button", name="Switch this head off").click()
    picture.get_by_text("Without layer 1, head 0: tasted falls from 0.18 to 0.07").wait_for()
    picture.locator('[data-head="decoder.2.attention.1"]').click()
    picture.get_by_text("With an earlier head off, this head has other numbers").wait_for()
    picture.locator('[data-head="decoder.1.attention.0"]').click()
    picture.get_by_role("button", name="Switch this head on").click()
    picture.locator('[data-head="decoder.2.attention.1"]').click()
    picture.locator(".trail", has_text="layer 2 › head 1").wait_for()
    page.wait_for_function("() => document.querySelectorAll('iframe')[1].offsetHeight > 900")
    page.context.close()
    assert complaints == []
