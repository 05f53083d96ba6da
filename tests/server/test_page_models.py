"""Page Models: list, architecture, proof, snippets, import."""

import json

import pytest
from tests.server.browser_window import serious_violations

pytestmark = pytest.mark.browser


def test_model_list_and_architecture(open_tiny_studio):
    window = open_tiny_studio("/models?m=writer")
    page = window.page
    cards = window.request("models")["models"]
    names = page.locator("#place .list tbody tr td:first-child").all_inner_texts()
    assert sorted(names) == sorted(card["name"] for card in cards)
    assert names[0] == "stories", "the model of the examples, not the first of the alphabet"
    found = window.request("models", name="writer")
    page.get_by_role("tabpanel").locator(".flow .layer").first.wait_for()
    assert page.get_by_role("tabpanel").locator(".flow-frame").is_visible(), "the picture of the home page"
    page.get_by_text("Parts of the model with their sizes").click()
    assert f"{found['parameters']:,} parameters" in page.locator("#place").inner_text()
    boxes = " ".join(page.get_by_role("tabpanel").locator("svg text").all_text_contents())
    assert all(box["name"].replace("_", " ") in boxes for box in found["boxes"]["boxes"])
    page.get_by_role("button", name="reader", exact=True).click()
    window.wait_until_idle()
    assert window.state["m"] == "reader"
    page.go_back()
    window.wait_until_idle()
    assert page.locator("tr[aria-current]").inner_text().startswith("writer")
    window.screenshot("models")
    assert page.locator("#place a", has_text="train one").get_attribute("href") == "train"


@pytest.mark.parametrize("width", [390, 1366])
def test_figure_1_is_not_cut(open_tiny_studio, width):
    window = open_tiny_studio("/models?m=now", width=width)
    figure = window.page.get_by_role("tabpanel").locator(".flow svg, svg.flow").first
    figure.locator(".layer").first.wait_for()
    right, drawn, frame = figure.evaluate(
        """(figure) => {
            const right = (part) => part.getBoundingClientRect().right;
            const drawn = [...figure.querySelectorAll("text, rect, path")].map(right);
            return [right(figure), Math.max(...drawn), right(figure.closest(".flow-frame"))];
        }"""
    )
    assert drawn <= right + 1, "every part is inside of the drawing"
    assert right <= frame + 1 <= width + 1, "the drawing is inside of its frame, the frame inside of the window"


def test_proof_on_own_texts_and_api_snippet(open_tiny_studio):
    window = open_tiny_studio("/models?m=writer&tab=prove")
    page = window.page
    page.get_by_label("texts for the proof").fill("the cat sat\nthe old tree")
    page.get_by_role("button", name="Prove", exact=True).click()
    page.locator(".verdict").wait_for()
    found = window.request("prove", model="writer", prompts=["the cat sat", "the old tree"])
    assert page.locator(".verdict").inner_text() == f"✓ {found['verdict']}"
    for equality in found["equalities"]:
        assert page.locator("#place .drawn").get_by_text(equality["name"]).count() >= 1
    page.get_by_role("tab", name="API").click()
    curl = page.locator(".snippet pre").first.inner_text()
    path = curl.split()[1].removeprefix(window.origin)
    body = json.loads(curl.split("-d '")[1].rstrip("'"))
    status = page.evaluate(
        "async ([path, body]) => (await fetch(path, {method: 'POST', body: JSON.stringify(body),"
        " headers: {'content-type': 'application/json'}})).status",
        [path, body],
    )
    assert status == 200, "the shown command works"
    page.get_by_role("button", name="Copy curl").click()
    assert page.evaluate("navigator.clipboard.readText()") == curl


def test_import_from_the_cache_after_confirmation(open_tiny_studio, data_dir):
    window = open_tiny_studio("/models")
    page = window.page
    page.get_by_text("Import a model from the Hugging Face cache").click()
    page.get_by_role("button", name="Import …").click()
    dialog = page.get_by_role("dialog")
    assert "Nothing is downloaded" in dialog.inner_text()
    assert not (data_dir / "runs" / "taken-in").exists()
    dialog.get_by_label("name").fill("taken-in")
    dialog.get_by_role("button", name="Copy", exact=True).click()
    page.locator("tr[aria-current]", has_text="taken-in").wait_for()
    window.wait_until_idle()
    assert (data_dir / "runs" / "taken-in" / "config.json").is_file()


def test_accessibility_wide_and_narrow(open_tiny_studio):
    window = open_tiny_studio("/models?m=writer", width=360, bypass_csp=True, color_scheme="dark")
    for tab in ("Architecture", "API", "Prove"):
        window.page.get_by_role("tab", name=tab).click()
        window.wait_until_idle()
        assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert serious_violations(window.page) == []
