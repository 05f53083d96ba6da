"""Page Meaning: words before and after training, text map, similarity."""

from urllib.parse import quote

import pytest
from tests.render.conftest import HOSTILE
from tests.server.browser_window import serious_violations

pytestmark = pytest.mark.browser

WORDS = "cat dog mat tree old sat"
TEXTS = "the cat sat on the mat\nthe dog sat on the mat\n\nthe old tree\nunder the old tree"


def shown_neighbours(page):
    panel = page.get_by_role("complementary", name="Neighbours")
    return list(
        zip(panel.locator("li bdi").all_inner_texts(), panel.locator("li .number").all_inner_texts(), strict=True)
    )


def neighbours(points, index):
    return [(points[other]["name"], f"{cosine:.4f}") for other, cosine in points[index]["neighbours"]]


def test_words_before_and_after_training(open_tiny_studio):
    window = open_tiny_studio(f"/meaning?mw=dictionary&w={quote(WORDS)}")
    page = window.page
    result = window.request("words", model="dictionary", words=WORDS.split(), clusters=5)
    assert shown_neighbours(page) == neighbours(result["before"], 0) + neighbours(result["after"], 0)
    plane = page.get_by_role("region", name="After training").locator("peasy-plane")
    assert plane.locator("path.point").count() == 6
    plane.locator("path.point").first.focus()
    page.keyboard.press("ArrowRight")
    assert shown_neighbours(page) == neighbours(result["before"], 1) + neighbours(result["after"], 1)
    assert page.get_by_role("region", name="Before training").locator("path.far").count() == 5
    page.get_by_label("words, separated").fill(f"{WORDS} zebra")
    page.get_by_text("Not in the vocabulary: zebra").last.wait_for()
    assert window.state["w"].endswith("zebra")
    window.screenshot("meaning")


def test_text_map_and_link_to_similarity(open_tiny_studio):
    window = open_tiny_studio(f"/meaning?tab=texts&m=reader&k=2&d={quote(TEXTS)}")
    page = window.page
    documents = [part.split("\n") for part in TEXTS.split("\n\n")]
    result = window.request("meaning", model="reader", documents=documents, clusters=2)
    assert [item["kind"] for item in result["points"]] == ["sentence"] * 4 + ["document"] * 2
    assert page.locator("path.document").count() == 2
    assert shown_neighbours(page) == neighbours(result["points"], 0)
    page.locator("path.point").nth(3).hover()
    assert shown_neighbours(page) == neighbours(result["points"], 3)
    page.get_by_role("button", name="Why do these two match?").click()
    window.wait_until_idle()
    state = window.state
    why = window.request("why", model="reader", first=state["a"], second=state["b"])
    page.get_by_text(f"Cosine similarity {why['cosine']:.4f}").wait_for()
    page.go_back()
    window.wait_until_idle()
    assert page.get_by_role("tab", name="Texts on a map").get_attribute("aria-selected") == "true"


def test_word_pairs_add_up_to_the_cosine(open_tiny_studio):
    first, second = "the cat sat", "the dog sat on the mat"
    window = open_tiny_studio(f"/meaning?tab=why&m=reader&a={quote(first)}&b={quote(second)}")
    page = window.page
    result = window.request("why", model="reader", first=first, second=second)
    rows = page.locator("figure.matrix", has_text="The sum of all cells").locator("tbody tr")
    shown = rows.evaluate_all(
        "(rows) => rows.map((row) => [...row.querySelectorAll('td')].map((c) => Number(c.textContent)))"
    )
    assert shown == [[pytest.approx(cell, abs=5e-5) for cell in row] for row in result["pairs"]]
    assert sum(map(sum, result["pairs"])) == pytest.approx(result["cosine"], abs=1e-4)
    page.get_by_label("second sentence").fill(first)
    page.get_by_text("Cosine similarity 1.0000").wait_for()


def test_accessibility_and_hostile_texts(open_tiny_studio):
    window = open_tiny_studio(f"/meaning?mw=dictionary&w={quote(WORDS)}", width=360, bypass_csp=True)
    assert serious_violations(window.page) == []
    assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    window.expected_errors = ("status of 400",)
    texts = "\n".join(item for item in HOSTILE[:8] if item.strip() and "\n" not in item)
    window.open(f"/meaning?tab=texts&m=reader&d={quote(texts[:1500], errors='replace')}")
    assert window.page.locator("#place script:not([type]), #place img, #place iframe").count() == 0
    assert window.page.evaluate("window.hacked") is None
