"""The page Models as a person uses it: cards, figure 1, proof, snippets, import after asking."""

import json

import pytest
from tests.studio.walker import serious

pytestmark = pytest.mark.browser


def test_cards_and_figure_one_are_those_of_the_model(visit):
    walker = visit("/models?m=writer")
    page = walker.page
    cards = walker.ask("models")["models"]
    names = page.locator("#place .list tbody tr td:first-child").all_inner_texts()
    assert names == [each["name"] for each in cards]
    found = walker.ask("models", name="writer")
    assert f"{found['parameters']:,} parameters" in page.locator("#place").inner_text()
    boxes = " ".join(page.get_by_role("tabpanel").locator("svg text").all_text_contents())
    assert all(box["name"].replace("_", " ") in boxes for box in found["boxes"]["boxes"])
    page.get_by_role("button", name="reader", exact=True).click()
    walker.settle()
    assert walker.state["m"] == "reader"
    page.go_back()
    walker.settle()
    assert page.locator("tr[aria-current]").inner_text().startswith("writer")
    walker.keep("models")


def test_it_is_proved_on_own_texts_and_asked_by_the_snippet(visit):
    walker = visit("/models?m=writer&tab=prove")
    page = walker.page
    page.get_by_label("texts to prove it on").fill("the cat sat\nthe old tree")
    page.get_by_role("button", name="Prove", exact=True).click()
    page.locator(".verdict").wait_for()
    found = walker.ask("prove", model="writer", prompts=["the cat sat", "the old tree"])
    assert page.locator(".verdict").inner_text() == f"✓ {found['verdict']}"
    for each in found["equalities"]:
        assert page.locator("#place .drawn").get_by_text(each["name"]).count() >= 1
    page.get_by_role("tab", name="Ask it from elsewhere").click()
    curl = page.locator(".snippet pre").first.inner_text()
    path = curl.split()[1].removeprefix(walker.home)
    body = json.loads(curl.split("-d '")[1].rstrip("'"))
    asked = page.evaluate(
        "async ([path, body]) => (await fetch(path, {method: 'POST', body: JSON.stringify(body),"
        " headers: {'content-type': 'application/json'}})).status",
        [path, body],
    )
    assert asked == 200, "what the page tells people to type works"
    page.get_by_role("button", name="Copy curl").click()
    assert page.evaluate("navigator.clipboard.readText()") == curl


def test_a_model_of_the_cache_comes_in_after_asking(visit, at_home):
    walker = visit("/models")
    page = walker.page
    page.get_by_text("Import a model of the hub's cache").click()
    page.get_by_role("button", name="Import …").click()
    dialog = page.get_by_role("dialog")
    assert "Nothing is downloaded" in dialog.inner_text()
    assert not (at_home / "runs" / "taken-in").exists()
    dialog.get_by_label("name").fill("taken-in")
    dialog.get_by_role("button", name="Copy it").click()
    page.locator("tr[aria-current]", has_text="taken-in").wait_for()
    walker.settle()
    assert (at_home / "runs" / "taken-in" / "config.json").is_file()


def test_nothing_serious_wide_and_narrow(visit):
    walker = visit("/models?m=writer", width=360, bypass_csp=True, color_scheme="dark")
    for tab in ("Figure 1", "Ask it from elsewhere", "Prove"):
        walker.page.get_by_role("tab", name=tab).click()
        walker.settle()
        assert walker.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert serious(walker.page) == []
