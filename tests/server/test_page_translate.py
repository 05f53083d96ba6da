"""Page Translate: two models side by side, alignment, heads, beam search tree."""

import csv
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from tests.render.conftest import HOSTILE
from tests.server.browser_window import assert_hostile_texts_are_inert, serious_violations

pytestmark = pytest.mark.browser

TEXT = "the dog sat under the tree"
PATH = f"/translate?a=then&m=now&t={quote(TEXT)}"


def side(page, letter):
    return page.get_by_role("region", name=letter)


def cells(table):
    return table.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((c) => c.textContent))"
    )


def test_two_models_with_the_servers_numbers(open_tiny_studio):
    window = open_tiny_studio(PATH)
    page = window.page
    for letter, model in (("left", "then"), ("right", "now")):
        tree = window.request("beams", model=model, text=TEXT, num_beams=4)
        target = tree["hypotheses"][0]["text"]
        alignment = window.request("align", model=model, text=TEXT, target=target)
        panel = side(page, letter)
        assert panel.locator(".result-text").inner_text() == (target or "(nothing)")
        facts = panel.locator(".facts li").all_inner_texts()
        assert facts[:2] == alignment["description"]
        links = panel.locator("peasy-links").evaluate(
            "async (links) => { await links.ready; const n = links.numbers;"
            " return Array.from(n.codes, (_, at) => n.at(at)); }"
        )
        flat = [
            alignment["weights"][t][s]
            for s in range(len(alignment["source"]["words"]))
            for t in range(len(alignment["weights"]))
        ]
        assert links == pytest.approx(flat, abs=1e-4)
        branches = cells(panel.locator("figure.table", has_text="Every branch").last)
        assert [row[3] for row in branches] == [f"{item['logprob']:.4f}" for item in tree["branches"]]
        assert panel.locator("svg.tree text").count() >= len(tree["hypotheses"])
    assert "one attention with one head" in side(page, "left").inner_text()
    assert page.get_by_text("not why the model answered").count() == 2
    assert page.get_by_text("switch it off").count() == 0, "nothing can be switched here"
    window.screenshot("translate")


def test_head_selection_is_stored_in_the_url(open_tiny_studio):
    window = open_tiny_studio(PATH)
    page, panel = window.page, side(window.page, "right")
    best = panel.locator("button.best")
    assert best.count() == 1
    assert best.get_attribute("aria-pressed") == "true"
    panel.get_by_role("button", name="layer 0, head 1").first.click()
    window.wait_until_idle()
    assert (window.state["lm"], window.state["hm"]) == ("0", "1")
    assert "layer 0, head 1" in panel.locator("peasy-links h3").inner_text()
    window.press(",")
    assert "layer 0, head 0" in panel.locator("peasy-links h3").inner_text()
    page.reload()
    window.wait_until_idle()
    assert "layer 0, head 0" in panel.locator("peasy-links h3").inner_text()
    page.keyboard.press("b")
    window.wait_until_idle()
    assert "lm" not in window.state
    assert best.get_attribute("aria-pressed") == "true"


def test_new_text_beams_and_back(open_tiny_studio):
    window = open_tiny_studio(PATH)
    page = window.page
    before = side(page, "right").locator(".result-text").inner_text()
    page.get_by_role("link", name="3 days ago").click()
    window.wait_until_idle()
    assert window.state["t"] == "3 days ago"
    page.go_back()
    window.wait_until_idle()
    assert side(page, "right").locator(".result-text").inner_text() == before
    page.get_by_role("slider", name="beams").focus()
    page.keyboard.press("ArrowLeft")
    page.get_by_role("heading", name="3 beams").first.wait_for()
    assert window.state["beam"] == "3"
    page.locator("#text").fill("")
    page.locator("#text").press("Enter")
    window.wait_until_idle()
    assert side(page, "right").locator(".result-text").count() == 1


def test_accessibility_wide_and_narrow(open_tiny_studio):
    window = open_tiny_studio(PATH, width=360, bypass_csp=True, color_scheme="dark")
    assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious_violations(window.page) == []
    window.page.set_viewport_size({"width": 1440, "height": 900})
    assert serious_violations(window.page) == []


@pytest.mark.parametrize("some", [2, pytest.param(500, marks=pytest.mark.slow)])
def test_hostile_texts_are_inert(open_tiny_studio, some):
    window = open_tiny_studio(PATH)
    window.expected_errors = ("status of 400",)
    assert_hostile_texts_are_inert(window, "/translate?a=then&m=now&t=", HOSTILE[:some], most=100)


def test_tree_export_as_svg_and_csv(open_tiny_studio):
    window = open_tiny_studio(PATH)
    panel = side(window.page, "right")
    saved = {}
    for kind in ("SVG", "CSV"):
        with window.page.expect_download() as download:
            panel.get_by_role("button", name=f"Save beams as {kind}").click()
        saved[kind] = download.value.path().read_text(encoding="utf-8")
    root = ElementTree.fromstring(saved["SVG"])
    words = [item for item in root.iter() if item.tag.endswith("text")]
    assert len(words) == panel.locator("svg.tree text").count()
    assert all(item.get("fill", "").startswith("rgb") and item.get("font-size") for item in words)
    rows = list(csv.reader(saved["CSV"].splitlines()))
    branches = cells(panel.locator("figure.table", has_text="Every branch").last)
    assert rows[0] == ["token", "hypothesis", "probability", "log-probability", "outcome"]
    assert [row[3] for row in rows[1:]] == [row[3] for row in branches]
