"""The page Translate as a person uses it: two translators side by side, ribbons, heads, beams as a tree."""

import csv
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from tests.render.conftest import HOSTILE
from tests.studio.walker import serious

pytestmark = pytest.mark.browser

TEXT = "the dog sat under the tree"
PATH = f"/translate?a=then&b=now&t={quote(TEXT)}"


def side(page, letter):
    return page.get_by_role("region", name=f"Translator {letter}")


def cells(table):
    return table.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((c) => c.textContent))"
    )


def test_two_translators_answer_and_every_number_is_the_servers(visit):
    walker = visit(PATH)
    page = walker.page
    for letter, model in (("a", "then"), ("b", "now")):
        tree = walker.ask("beams", model=model, text=TEXT, beam=4)
        answer = tree["found"][0]["text"]
        found = walker.ask("align", model=model, text=TEXT, answer=answer)
        home = side(page, letter)
        assert home.locator(".said").inner_text() == (answer or "(nothing)")
        facts = home.locator(".facts li").all_inner_texts()
        assert facts[:2] == found["says"]
        links = home.locator("peasy-links").evaluate(
            "async (links) => { await links.ready; const n = links.numbers;"
            " return Array.from(n.codes, (_, at) => n.at(at)); }"
        )
        flat = [
            found["weights"][t][s] for s in range(len(found["source"]["words"])) for t in range(len(found["weights"]))
        ]
        assert links == pytest.approx(flat, abs=1e-4)
        branches = cells(home.locator("figure.table", has_text="Every branch").last)
        assert [row[3] for row in branches] == [f"{each['logprob']:.4f}" for each in tree["branches"]]
        assert home.locator("svg.tree text").count() >= len(tree["found"])
    assert "one attention with one head" in side(page, "a").inner_text()
    walker.keep("translate")


def test_the_head_is_chosen_by_pointer_and_keys_and_stays_in_the_address(visit):
    walker = visit(PATH)
    page, home = walker.page, side(walker.page, "b")
    best = home.locator("button.best")
    assert best.count() == 1
    assert best.get_attribute("aria-pressed") == "true"
    home.get_by_role("button", name="layer 0, head 1").first.click()
    walker.settle()
    assert (walker.state["lb"], walker.state["hb"]) == ("0", "1")
    assert "layer 0, head 1" in home.locator("peasy-links h3").inner_text()
    walker.press(",")
    assert "layer 0, head 0" in home.locator("peasy-links h3").inner_text()
    page.reload()
    walker.settle()
    assert "layer 0, head 0" in home.locator("peasy-links h3").inner_text()
    page.keyboard.press("b")
    walker.settle()
    assert "lb" not in walker.state
    assert best.get_attribute("aria-pressed") == "true"


def test_typing_asks_anew_and_back_goes_back(visit):
    walker = visit(PATH)
    page = walker.page
    before = side(page, "b").locator(".said").inner_text()
    page.get_by_role("link", name="3 days ago").click()
    walker.settle()
    assert walker.state["t"] == "3 days ago"
    page.go_back()
    walker.settle()
    assert side(page, "b").locator(".said").inner_text() == before
    page.get_by_role("slider", name="beams").focus()
    page.keyboard.press("ArrowLeft")
    page.get_by_role("heading", name="3 beams").first.wait_for()
    assert walker.state["beam"] == "3"
    page.locator("#text").fill("")
    page.locator("#text").press("Enter")
    walker.settle()
    assert side(page, "b").locator(".said").count() == 1


def test_nothing_serious_wide_and_narrow(visit):
    walker = visit(PATH, width=360, bypass_csp=True, color_scheme="dark")
    assert walker.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(walker.page) == []
    walker.page.set_viewport_size({"width": 1440, "height": 900})
    assert serious(walker.page) == []


@pytest.mark.parametrize("some", [2, pytest.param(500, marks=pytest.mark.slow)])
def test_hostile_texts_are_inert(visit, some):
    walker = visit()
    walker.expected = ("status of 400",)
    for words in [each for each in HOSTILE if each.strip()][:some]:
        walker.open(f"/translate?a=then&b=now&t={quote(words[:300], errors='replace')}")
        assert walker.page.locator("#place script:not([type]), #place img, #place iframe").count() == 0
    assert walker.page.evaluate("window.hacked") is None


def test_the_tree_is_saved_as_it_is_seen_and_as_numbers(visit):
    walker = visit(PATH)
    home = side(walker.page, "b")
    saved = {}
    for kind in ("SVG", "CSV"):
        with walker.page.expect_download() as told:
            home.get_by_role("button", name=f"Save beams as {kind}").click()
        saved[kind] = told.value.path().read_text(encoding="utf-8")
    root = ElementTree.fromstring(saved["SVG"])
    words = [each for each in root.iter() if each.tag.endswith("text")]
    assert len(words) == home.locator("svg.tree text").count()
    assert all(each.get("fill", "").startswith("rgb") and each.get("font-size") for each in words)
    rows = list(csv.reader(saved["CSV"].splitlines()))
    branches = cells(home.locator("figure.table", has_text="Every branch").last)
    assert rows[0] == ["token", "beginning", "its chance", "log-probability", "what became of it"]
    assert [row[3] for row in rows[1:]] == [row[3] for row in branches]
