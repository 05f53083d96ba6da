"""The page Look as a person uses it: a sentence, all heads, one head, one row; heads ranked and switched off."""

import re
from urllib.parse import quote

import pytest
from tests.render.conftest import HOSTILE
from tests.studio.walker import serious

pytestmark = pytest.mark.browser

TEXT = "the pizza came out of the oven and it tasted good"


def maps(page):
    """The live picture, once it is complete."""
    page.wait_for_selector("peasy-maps[data-ready]")
    return page.locator("peasy-maps")


def shown_number(page):
    return float(re.search(r"(-?[\d.]+)$", maps(page).locator(".read").inner_text().strip())[1])


def weights(found, layer, head):
    return next(each for each in found["captures"] if each["place"]["layer"] == layer)["array"][head]


def test_from_a_sentence_to_all_heads_to_one_number(walk):
    walker = walk("/look?m=writer")
    page = walker.page
    page.keyboard.press("/")
    page.keyboard.type(TEXT)
    page.keyboard.press("Enter")
    walker.settle()
    assert maps(page).locator(".overview button").count() == 4, "two layers of two heads"
    truth = walker.ask("look", model="writer", text=TEXT)
    maps(page).get_by_role("button", name="layer 1, head 1").click()
    walker.settle()
    assert (walker.state["l"], walker.state["h"]) == ("1", "1")
    last = len(truth["tokens"]["pieces"]) - 1
    for row, column in ((last, 0), (last, last), (3, 1)):
        page.evaluate(f"document.querySelector('peasy-maps').point({row}, {column})")
        assert shown_number(page) == pytest.approx(weights(truth, 1, 1)[row][column], abs=1e-4)
    chances = [f"{each['chance']:.2f}".lstrip("0").replace(".00", "<.01") for each in truth["next"]]
    assert page.locator(".next .chip b").all_inner_texts() == chances
    assert page.get_by_text("not why the model answered").count() >= 1
    walker.keep("look")


@pytest.mark.slow
def test_a_link_opens_the_same_view_and_back_works(walk):
    walker = walk(f"/look?m=writer&t={quote(TEXT)}&l=1&h=0&q=4&k=2")
    page = walker.page
    read = maps(page).locator(".read").inner_text()
    pieces = walker.ask("look", model="writer", text=TEXT)["tokens"]["pieces"]
    assert read.startswith(f"layer 1, head 0: query {pieces[4]} → key {pieces[2]}: ")
    page.get_by_role("tab", name="Lens").click()
    walker.settle()
    page.get_by_role("tab", name="Heads").click()
    walker.settle()
    page.get_by_role("button", name="Layer 0, head 1: show it").click()
    walker.settle()
    assert maps(page).locator(".read").inner_text().startswith("layer 0, head 1")
    page.go_back()
    walker.settle()
    assert page.get_by_role("tab", name="Heads").get_attribute("aria-selected") == "true"


@pytest.mark.slow
def test_one_row_step_by_step_with_the_heads_real_numbers(walk):
    walker = walk(f"/look?m=writer&t={quote(TEXT)}&l=0&h=1&q=5")
    page = walker.page
    maps(page)
    page.get_by_role("button", name="Step by step of this row").click()
    walker.settle()
    page.get_by_text("Layer 0, head 1").first.wait_for()
    table = page.locator("figure.matrix", has=page.locator("caption b", has_text=re.compile("^weights$")))
    truth = weights(walker.ask("look", model="writer", text=TEXT), 0, 1)[5][:6]
    shown = [float(each) for each in table.locator("tbody td").all_inner_texts()]
    assert sum(shown) == pytest.approx(1, abs=1e-3)
    if page.get_by_text("the same weights to within").count():
        assert shown == pytest.approx(truth, abs=2e-3)
    table.locator("tbody td").first.focus()
    assert "weights" in page.get_by_role("tooltip").inner_text(), "a cell opens to its arithmetic"


def test_a_head_switched_off_changes_the_next_word(walk):
    walker = walk(f"/look?m=writer&t={quote(TEXT)}&l=1&h=1")
    page = walker.page
    maps(page)
    page.get_by_role("button", name="Switch layer 1, head 1 off").click()
    walker.settle()
    assert walker.state["off"] == "1.1"
    edit = [{"kind": "off", "layer": 1, "head": 1}]
    truth = walker.ask("look", model="writer", text=TEXT, view="effect", edit=edit)
    page.locator("ol.effect li").first.wait_for()
    first = page.locator("ol.effect li").first.inner_text()
    assert truth["before"][0]["piece"] in first
    assert f"{truth['before'][0]['chance']:.3f}".lstrip("0") in first
    walker.press("o")
    assert "off" not in walker.state, "the key switches it on again"


@pytest.mark.slow
def test_heads_are_ranked_and_the_lens_reads_every_layer(walk):
    walker = walk(f"/look?m=writer&t={quote(TEXT)}&tab=heads")
    page = walker.page
    truth = walker.ask("look", model="writer", text=TEXT, view="rank")["heads"]
    best = sorted(truth, key=lambda head: -head["previous"])[0]
    page.get_by_label("rank by").select_option("previous")
    row = page.locator("figure.table tbody tr").first
    assert row.get_by_role("button").inner_text() == f"{best['place']['layer']}.{best['head']}"
    assert f"{best['previous']:.2f}" in row.locator("td").all_inner_texts()
    page.get_by_role("tab", name="Lens").click()
    walker.settle()
    lens = walker.ask("look", model="writer", text=TEXT, view="lens")
    cells = page.locator("figure.matrix tbody tr").first.locator("td").all_inner_texts()
    assert [each.removesuffix(" (marked)").strip() for each in cells] == [
        best[0].strip() for best in lens["pieces"][-1]
    ]


@pytest.mark.slow
def test_a_long_text_is_an_overview_with_a_window(walk):
    long = " ".join([TEXT] * 20)
    walker = walk(f"/look?m=writer&t={quote(long)}")
    page = walker.page
    assert maps(page).evaluate("(each) => each.data.tile") > 1
    assert "overview in tiles" in page.locator(".note").first.inner_text()
    page.evaluate("document.querySelector('peasy-maps').point(5, 2)")
    maps(page).locator(".large canvas").click(position={"x": 150, "y": 150})
    walker.settle()
    maps(page)
    assert int(walker.state["q"]) > 0
    assert page.locator("peasy-maps .top li").count() > 0, "the rows of that tile were asked for in full"


@pytest.mark.slow
def test_everything_by_keyboard(walk):
    walker = walk(f"/look?m=writer&t={quote(TEXT)}&l=0&h=0&q=3&k=0")
    page = walker.page
    maps(page)
    walker.press("]", ".")
    assert (walker.state["l"], walker.state["h"]) == ("1", "1")
    before = maps(page).locator(".read").inner_text()
    walker.press("ArrowDown")
    assert maps(page).locator(".read").inner_text() != before
    walker.press("s")
    assert page.get_by_role("tab", name="Step by step").get_attribute("aria-selected") == "true"
    page.get_by_role("tab", name="Step by step").focus()
    walker.press("ArrowRight")
    assert page.get_by_role("tab", name="Heads").evaluate("(each) => each === document.activeElement")


@pytest.mark.slow
def test_files_come_from_the_server(walk):
    walker = walk(f"/look?m=writer&t={quote(TEXT)}")
    maps(walker.page)
    for kind, sign in (("SVG", b"<svg"), ("CSV", b"")):
        with walker.page.expect_download() as saved:
            walker.press("e")
            walker.page.get_by_role("menuitem", name=kind).click()
        assert saved.value.path().read_bytes().lstrip().startswith(sign)


def test_axe_finds_nothing_serious(walk):
    walker = walk(f"/look?m=writer&t={quote(TEXT)}&off=0.0", bypass_csp=True, color_scheme="dark")
    maps(walker.page)
    assert serious(walker.page) == []


@pytest.mark.slow
def test_axe_finds_nothing_serious_behind_the_tabs(walk):
    walker = walk(f"/look?m=writer&t={quote(TEXT)}", bypass_csp=True)
    for tab in ("Heads", "Lens", "Step by step"):
        walker.page.get_by_role("tab", name=tab).click()
        walker.settle()
        assert serious(walker.page) == [], tab


@pytest.mark.parametrize("some", [1, pytest.param(500, marks=pytest.mark.slow)])
def test_hostile_sentences_are_inert(walk, some):
    walker = walk("/look?m=writer&t=a+word")
    walker.expected = ("status of 4",)
    for words in [each for each in HOSTILE if each.strip()][:some]:
        walker.move(f"/look?m=writer&t={quote(words[:400], errors='replace')}")
        assert walker.page.locator("#place script:not([type]), #place img, #place iframe").count() == 0
    assert walker.page.evaluate("window.hacked") is None
