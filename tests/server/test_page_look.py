"""Page Look: all heads, one head, one row; head ranking and ablation."""

import re
from urllib.parse import quote

import pytest
from tests.render.conftest import HOSTILE
from tests.server.browser_window import assert_hostile_texts_are_inert, serious_violations

pytestmark = pytest.mark.browser

TEXT = "the pizza came out of the oven and it tasted good"


def maps(page):
    """Return the interactive map once it is ready."""
    page.wait_for_selector("peasy-maps[data-ready]")
    return page.locator("peasy-maps")


def shown_number(page):
    return float(re.search(r"(-?[\d.]+)$", maps(page).locator(".read").inner_text().strip())[1])


def weights(found, layer, head):
    return next(item for item in found["captures"] if item["path"]["layer"] == layer)["array"][head]


def test_all_heads_to_one_number(open_window):
    window = open_window("/look?m=writer")
    page = window.page
    page.keyboard.press("/")
    page.keyboard.type(TEXT)
    page.keyboard.press("Enter")
    window.wait_until_idle()
    assert maps(page).locator(".overview button").count() == 4, "two layers of two heads"
    expected = window.request("look", model="writer", text=TEXT)
    maps(page).get_by_role("button", name="layer 1, head 1").click()
    window.wait_until_idle()
    assert (window.state["l"], window.state["h"]) == ("1", "1")
    last = len(expected["tokens"]["pieces"]) - 1
    for row, column in ((last, 0), (last, last), (3, 1)):
        page.evaluate(f"document.querySelector('peasy-maps').selectCell({row}, {column})")
        assert shown_number(page) == pytest.approx(weights(expected, 1, 1)[row][column], abs=1e-4)
    window.wait_until_idle()
    assert "score = q · k = " in page.locator(".zoom-steps").inner_text(), "the arithmetic of the chosen cell"
    numbers = page.locator("details", has_text="The numbers as a table").locator("table")
    assert numbers.locator("caption").text_content() == "Weights of layer 1, head 1"
    cells = numbers.locator("tbody tr").nth(3).locator("td").all_text_contents()
    assert [float(cell) for cell in cells[1:]] == pytest.approx(weights(expected, 1, 1)[3], abs=5.1e-5)
    groups = expected["tokens"]["word_positions"]
    tokens = [int(window.state[name]) for name in "qk"]
    chosen = [next(at for at, group in enumerate(groups) if token in group) for token in tokens]
    page.get_by_role("button", name="Whole words").click()
    window.wait_until_idle()
    assert [int(window.state[name]) for name in "qk"] == chosen, "the chosen cell is the same word"
    page.get_by_role("button", name="Whole words").click()
    window.wait_until_idle()
    assert [int(window.state[name]) for name in "qk"] == [groups[word][-1] for word in chosen]
    probabilities = [f"{item['probability']:.2f}".replace("0.00", "<0.01") for item in expected["next_tokens"]]
    assert page.locator(".next .chip b").all_inner_texts() == probabilities
    assert page.get_by_text("not why the model answered").count() >= 1
    window.screenshot("look")
    window.open(f"/look?m=encoder&t={quote(TEXT)}&q=99&k=99")
    assert page.get_by_role("alert").count() == 0, "a cell that this text does not have"
    assert page.get_by_role("tab").all_inner_texts() == ["Attention", "Step by step", "Heads"], "no logit lens"
    page.get_by_text("not why the model answered").first.wait_for()
    assert not re.search("switch (it|layer)", page.locator("#place").inner_text(), re.IGNORECASE), "no answer to change"
    window.press("o")
    assert "off" not in window.state


def test_a_recurrent_translator_has_only_its_attention(open_tiny_studio):
    window = open_tiny_studio("/look?m=then&t=the+cat+sat")
    maps(window.page)
    assert window.page.get_by_role("tab").all_inner_texts() == ["Attention"]
    assert window.page.get_by_role("button", name="This row step by step").count() == 0
    window.press("s")
    assert window.page.get_by_role("alert").count() == 0


@pytest.mark.slow
def test_a_clicked_cell_leads_to_its_arithmetic(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}")
    page = window.page
    canvas = maps(page).locator(".large canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.2, "y": box["height"] * 0.6})
    window.wait_until_idle()
    answer = maps(page).locator(".sum")
    assert "peasy look" not in answer.inner_text(), "no terminal command"
    answer.get_by_role("button", name="How it is calculated").click()
    assert page.locator(".zoom-steps").get_by_text("score = q · k = ").is_visible()
    assert page.locator(".zoom").evaluate("(zoom) => zoom.getBoundingClientRect().top < innerHeight / 2")
    page.locator(".zoom-row .key").nth(1).click()
    window.wait_until_idle()
    chosen = page.locator(".zoom-row .key[aria-pressed=true]").get_attribute("aria-label")
    number = float(chosen.rpartition(" ")[2])
    assert shown_number(page) == pytest.approx(number, abs=1e-4), "the map follows the row"


def test_a_held_key_asks_for_the_last_head_only(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&l=0&h=0&q=5&k=5")
    page = window.page
    maps(page)
    window.wait_until_idle()
    asked = []
    page.route("**/api/forward-pass", lambda route: asked.append(route))
    press = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }))"
    hold = f"(keys) => keys.forEach((key) => {press})"
    assert page.locator(".trail").inner_text().startswith("model › layer 0 › head 0"), "a link names a cell"
    page.evaluate(hold, ["ArrowUp"] * 5)
    window.wait_until_idle()
    assert window.state["q"] == "0"
    assert page.locator(".trail").inner_text().split(" › ")[-2] == page.locator(".zoom h2 bdi").first.inner_text()
    assert asked == [], "the numbers of the other rows came with those of the first"
    page.evaluate(hold, ["."] * 5 + ["]"] * 5)
    while len(asked) < 2:
        page.wait_for_timeout(20)
    page.wait_for_timeout(200)  # no further one follows
    assert len(asked) == 2, "of another head: the first, which was aborted, and the last"
    asked[-1].continue_()
    window.wait_until_idle()
    assert "layer 1 › head 1" in page.locator(".trail").inner_text()


def test_a_new_sentence_begins_without_the_numbers_of_the_old_one(open_window):
    """Also those that are still being calculated: the answer to an old question is not drawn."""
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&l=0&h=0&q=5&k=5")
    page = window.page
    maps(page)
    window.wait_until_idle()
    numbers = page.locator("caption", has_text="Weights of layer")
    assert numbers.count() == page.locator(".trail").count() == 1
    held = []
    page.route("**/api/forward-pass", lambda route: held.append(route))
    page.keyboard.press("]")
    while not held:
        page.wait_for_timeout(20)
    page.locator("#text").fill("the pizza")
    page.locator("#text").press("Enter")
    window.wait_until_idle()
    assert numbers.count() == page.locator(".trail").count() == 0


def test_link_restores_the_view_and_back_works(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&l=1&h=0&q=4&k=2")
    page = window.page
    read = maps(page).locator(".read").inner_text()
    pieces = window.request("look", model="writer", text=TEXT)["tokens"]["pieces"]
    assert read.startswith(f"layer 1, head 0: query {pieces[4]} → key {pieces[2]}: ")
    page.get_by_role("tab", name="Logit lens").click()
    window.wait_until_idle()
    page.get_by_role("tab", name="Heads").click()
    window.wait_until_idle()
    page.get_by_role("button", name="Layer 0, head 1: show it").click()
    window.wait_until_idle()
    assert maps(page).locator(".read").inner_text().startswith("layer 0, head 1")
    page.go_back()
    window.wait_until_idle()
    assert page.get_by_role("tab", name="Heads").get_attribute("aria-selected") == "true"


@pytest.mark.slow
def test_row_step_by_step_has_the_heads_numbers(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&l=0&h=1&q=5")
    page = window.page
    maps(page)
    page.get_by_role("button", name="This row step by step").click()
    window.wait_until_idle()
    page.get_by_text("Layer 0, head 1").first.wait_for()
    table = page.locator("figure.matrix", has=page.locator("caption b", has_text=re.compile("^weights$")))
    expected = weights(window.request("look", model="writer", text=TEXT), 0, 1)[5][:6]
    shown = [float(item) for item in table.locator("tbody td").all_inner_texts()]
    assert sum(shown) == pytest.approx(1, abs=1e-3)
    if page.get_by_text("the same weights to within").count():
        assert shown == pytest.approx(expected, abs=2e-3)
    board = page.locator(".zoom .key[aria-pressed=true]").get_attribute("aria-label")
    assert float(board.split(" ")[-1]) == pytest.approx(max(expected), abs=2e-3), "the board of Home and Work"
    table.locator("tbody td").first.focus()
    assert "weights" in page.get_by_role("tooltip").inner_text(), "a cell opens to its arithmetic"


def test_ablated_head_changes_the_next_token(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&l=1&h=1")
    page = window.page
    maps(page)
    page.get_by_role("button", name="Switch layer 1, head 1 off").click()
    window.wait_until_idle()
    assert window.state["off"] == "1.1"
    edit = [{"kind": "zero", "layer": 1, "head": 1}]
    expected = window.request("look", model="writer", text=TEXT, view="effect", edit=edit)
    page.locator("ol.effect li").first.wait_for()
    first = page.locator("ol.effect li").first.inner_text()
    assert expected["before"][0]["piece"] in first
    assert f"{expected['before'][0]['probability']:.3f}" in first
    window.press("o")
    assert "off" not in window.state, "the key switches it on again"


@pytest.mark.slow
def test_head_ranking_and_logit_lens(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&tab=heads")
    page = window.page
    expected = window.request("look", model="writer", text=TEXT, view="rank")["heads"]
    best = sorted(expected, key=lambda head: -head["previous"])[0]
    page.get_by_label("rank by").select_option("previous")
    row = page.locator("figure.table tbody tr").first
    assert row.get_by_role("button").inner_text() == f"{best['path']['layer']}.{best['head']}"
    assert f"{best['previous']:.2f}" in row.locator("td").all_inner_texts()
    page.get_by_role("tab", name="Logit lens").click()
    window.wait_until_idle()
    lens = window.request("look", model="writer", text=TEXT, view="lens")
    cells = page.locator("figure.matrix tbody tr").first.locator("td").all_inner_texts()
    assert [item.removesuffix(" (marked)").strip() for item in cells] == [
        best[0].strip() for best in lens["pieces"][-1]
    ]
    assert "Colours: its probability" in page.get_by_role("tabpanel").inner_text(), "a legend"
    assert page.locator("figure.matrix th").all_inner_texts()[-1] == "embedding", "layers have the numbers of Home"
    for width in (800, 390):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the table scrolls, not the page"


@pytest.mark.slow
def test_long_text_has_a_tiled_overview(open_window):
    long = " ".join([TEXT] * 20)
    window = open_window(f"/look?m=writer&t={quote(long)}")
    page = window.page
    assert maps(page).evaluate("(item) => item.data.tileSize") > 1
    assert "overview of one layer in tiles" in page.locator(".note").first.inner_text()
    shown = page.locator(".next .chip bdi").all_inner_texts()
    following = window.request("next-token", model="writer", text=long, top=5)["choices"]
    assert shown == [choice["piece"] for choice in following], "a long text has a next token, too"
    page.evaluate("document.querySelector('peasy-maps').selectCell(5, 2)")
    maps(page).locator(".large canvas").click(position={"x": 150, "y": 150})
    window.wait_until_idle()
    maps(page)
    assert int(window.state["q"]) > 0
    assert page.locator("peasy-maps .top li").count() > 0, "the rows of that tile were requested in full"
    page.evaluate("document.querySelector('peasy-maps').moveSelection(999, 0)")
    window.wait_until_idle()
    assert page.get_by_role("alert").count() == 0, "after the last tile there are no rows"
    page.locator(".note select").select_option("1")
    window.wait_until_idle()
    assert maps(page).locator(".read").inner_text().startswith("layer 1")


def test_arrow_keys_choose_the_row_of_step_by_step_up_to_the_last(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}")
    page = window.page
    last = maps(page).evaluate("(item) => item.rows") - 1
    window.press("ArrowUp")
    assert window.state["q"] == str(last - 1), "the page hears of the row that the map shows"
    window.press("ArrowDown", "ArrowDown")
    assert window.state["q"] == str(last), "there is no row after the last"
    window.press("s")
    page.get_by_text(re.compile("^query: ")).wait_for()
    assert page.get_by_role("alert").count() == 0
    window.expected_errors = ("status of 400",)
    window.open(f"/look?m=writer&t={quote(TEXT)}&tab=steps&q={last + 1}")
    refused = page.get_by_role("alert").inner_text()
    assert f"There is no position {last + 1}." in refused
    assert f"Choose from 0 to {last}." in refused


def test_the_first_model_is_stories_not_the_first_of_the_alphabet(open_tiny_studio):
    page = open_tiny_studio("/look").page
    maps(page)
    assert page.get_by_label("Model").input_value() == "stories"


def test_a_head_that_is_off_is_a_choice_not_an_error(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&l=1&h=1&off=1.1")
    page = window.page
    page.locator("ol.effect li").first.wait_for()
    assert page.get_by_role("button", name="Switch layer 1, head 1 on", exact=True).first.is_visible()
    assert "✗" not in page.locator("#place").inner_text()
    assert page.get_by_role("alert").count() == 0


@pytest.mark.slow
def test_keyboard(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&l=0&h=0&q=3&k=0")
    page = window.page
    maps(page)
    window.press("]", ".")
    assert (window.state["l"], window.state["h"]) == ("1", "1")
    before = maps(page).locator(".read").inner_text()
    window.press("ArrowDown")
    assert maps(page).locator(".read").inner_text() != before
    window.press("s")
    assert page.get_by_role("tab", name="Step by step").get_attribute("aria-selected") == "true"
    page.get_by_role("tab", name="Step by step").focus()
    window.press("ArrowRight")
    assert page.get_by_role("tab", name="Heads").evaluate("(item) => item === document.activeElement")


@pytest.mark.slow
def test_export(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}")
    maps(window.page)
    for kind, sign in (("SVG", b"<svg"), ("CSV", b"")):
        with window.page.expect_download() as saved:
            window.press("e")
            window.page.get_by_role("menuitem", name=kind).click()
        assert saved.value.path().read_bytes().lstrip().startswith(sign)


def test_accessibility(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}&off=0.0", bypass_csp=True, color_scheme="dark")
    maps(window.page)
    assert serious_violations(window.page) == []


@pytest.mark.slow
def test_accessibility_of_all_tabs(open_window):
    window = open_window(f"/look?m=writer&t={quote(TEXT)}", bypass_csp=True)
    for tab in ("Heads", "Logit lens", "Step by step"):
        window.page.get_by_role("tab", name=tab).click()
        window.wait_until_idle()
        assert serious_violations(window.page) == [], tab


@pytest.mark.parametrize("some", [1, pytest.param(500, marks=pytest.mark.slow)])
def test_hostile_sentences_are_inert(open_window, some):
    window = open_window("/look?m=writer&t=a+word")
    window.expected_errors = ("status of 4",)
    assert_hostile_texts_are_inert(window, "/look?m=writer&t=", HOSTILE[:some])
