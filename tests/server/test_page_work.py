"""Page Work in a real browser without network."""

import json
import math
from urllib.parse import quote

import pytest
from tests.render.conftest import HOSTILE
from tests.server.browser_window import matrix_texts, serious_violations

from peasy.render import number

pytestmark = pytest.mark.browser


def written(values):
    """Format numbers as peasy does; null is minus infinity."""
    real = [[-math.inf if value is None else value for value in row] for row in values]
    decimals = number.decimals_for([value for row in real for value in row], 4)
    return [[number.format_number(value, decimals) for value in row] for row in real]


def step(result, name):
    return next(step for step in result["steps"] if step["name"] == name)


def test_steps_and_cell_arithmetic(open_window):
    window = open_window("/work")
    page, truth = window.page, window.request("explain", source="i-love-ai")
    assert page.get_by_role("heading", level=1).inner_text() == "I love AI"
    assert page.get_by_text("step 1 of 6").is_visible(), "the first step comes first"
    assert not page.get_by_label("cosine").is_visible(), "settings of the formula are folded"
    page.get_by_role("button", name="Step 3: Scores").click()
    window.wait_until_idle()
    assert matrix_texts(page, "scores") == written(step(truth, "scores")["values"])
    page.locator('[data-matrix="scores"] td[data-at="1,2"]').click()
    window.wait_until_idle()
    cell = window.request("explain", source="i-love-ai", cell=["scores", 1, 2])["cell"]
    board = page.locator(".zoom")
    assert board.locator("[aria-current] pre").inner_text().split("\n") == cell["lines"]
    assert page.locator("#live-region").inner_text() == " ".join([cell["title"], *cell["lines"]])
    assert board.locator(".trail").inner_text() == "I love AI › love › AI", "the board of Home"
    assert "How the weight 0.5035 of AI is calculated" in board.inner_text()
    assert page.locator('[data-matrix="query"] td.used').all_inner_texts() == ["1", "1"], "the row of the query is lit"
    assert page.locator('[data-matrix="keyᵀ"] td.used').all_inner_texts() == ["1", "1"], "and the column of the key"
    for name in ("scaled", "weights", "context"):
        page.locator(".step-bar").get_by_role("button", name="Next step", exact=True).click()
        window.wait_until_idle()
        assert matrix_texts(page, name) == written(step(truth, name)["values"])
    assert window.state["s"] == "6"
    window.screenshot("work")


def test_the_board_leads_through_the_tables_of_a_weight(open_window):
    window = open_window("/work?s=3&c=scores,1,2")
    board = window.page.locator(".zoom")
    seen = []
    for _ in range(4):
        board.get_by_role("button", name="Next step").click()
        window.wait_until_idle()
        seen.append((window.state["s"], board.locator("[aria-current] button").first.inner_text()))
    assert seen == [("4", "scale"), ("4", "mask"), ("5", "softmax"), ("6", "· V")]
    cell = window.request("explain", source="i-love-ai", cell=["context", 1, 0])["cell"]
    assert board.locator("[aria-current] pre").inner_text().split("\n") == cell["lines"]
    board.get_by_role("button", name="love: weight").click()
    window.wait_until_idle()
    assert board.locator(".trail").inner_text().endswith("love › AI"), "the sum is that of the row"
    window.open("/work?s=5&c=weights,1,0")
    board.get_by_role("button", name="love: weight").click()
    window.wait_until_idle()
    assert window.page.locator("td.picked").get_attribute("data-at") == "1,1"


def test_other_arithmetic_is_on_the_board_as_lines(open_window):
    window = open_window("/work?s=2&c=query,1,0")
    cell = window.request("explain", source="i-love-ai", cell=["query", 1, 0])["cell"]
    board = window.page.locator(".zoom")
    assert board.inner_text().split("\n") == [cell["title"], *cell["lines"]]
    window.open('/work?s=5&c=weights,1,1&d={"tokens":["a","b"],"x":[[1,0],[2,1]],"normalise":"sum"}')
    assert board.locator(".zoom-steps").count() == 0, "no softmax: no board of a softmax"
    assert board.locator("pre").count() > 0


def test_typed_and_pasted_numbers_are_computed_by_the_server(open_window):
    window = open_window("/work?s=1")
    page = window.page
    page.get_by_label("x, row I, column 0").fill("2")
    page.keyboard.press("Tab")
    window.wait_until_idle()
    page.get_by_role("button", name="Step 5: Weights").click()
    window.wait_until_idle()
    own = json.loads(window.state["d"])
    assert own["x"][0] == [2, 0]
    assert matrix_texts(page, "weights") == written(step(window.request("explain", source=own), "weights")["values"])
    page.get_by_role("button", name="Step 1: Input").click()
    page.evaluate(
        "navigator.clipboard.writeText('cat\\t1\\t0\\t3\\ndog\\t0\\t1,5\\t1\\nowl\\t2\\t2\\t2\\nfox\\t1\\t1\\t1')"
    )
    page.locator('[data-matrix="x"] input[data-at="0,0"]').focus()
    page.keyboard.press("Control+V")
    window.wait_until_idle()
    own = json.loads(window.state["d"])
    assert own["tokens"] == ["cat", "dog", "owl", "fox"], "a first column of words names the rows"
    assert own["x"] == [[1, 0, 3], [0, 1.5, 1], [2, 2, 2], [1, 1, 1]]
    assert len(own["w_q"]) == 3, "the weight matrices fit the wider input"
    page.reload()
    window.wait_until_idle()
    assert matrix_texts(page, "x")[1] == ["0", "1.5", "1"], "the link holds all of it"


@pytest.mark.slow
def test_options_apply_at_once_and_back_undoes(open_window):
    window = open_window("/work?s=5")
    page = window.page
    sides = page.get_by_role("region", name="Softmax or division by the sum")
    assert sides.locator("figure.matrix").count() == 2
    window.expected_errors = ("status of 400",)  # under these switches a row sums to 0, which the panel says in words
    page.get_by_text("Change the formula").click()
    page.evaluate("""() => {
        for (const kind of ["causal", "cosine"]) document.querySelector(`input[value=${kind}]`).click();
    }""")
    window.wait_until_idle()
    own = json.loads(window.state["d"])
    assert (own["causal"], own["scoring"]) == (True, "cosine"), "two switches in a hurry both hold"
    truth = step(window.request("explain", source=own), "weights")["values"]
    assert truth[0][1] == 0
    assert matrix_texts(page, "weights") == written(truth)
    assert "cannot be divided by their sum" in sides.get_by_role("alert").inner_text()
    page.get_by_label("custom", exact=True).check(force=True)
    window.wait_until_idle()
    page.get_by_role("button", name="I attends to AI", exact=True).click()
    window.wait_until_idle()
    assert json.loads(window.state["d"])["mask"][0] == [True, False, True]
    page.get_by_label("additive").check(force=True)
    window.wait_until_idle()
    assert json.loads(window.state["d"])["scoring"]["kind"] == "additive"
    page.get_by_label("example").select_option("journey")
    window.wait_until_idle()
    assert page.get_by_role("heading", level=1).inner_text() != "I love AI"
    page.go_back()
    window.wait_until_idle()
    assert page.get_by_label("additive").is_checked(), "the way back leads to the own numbers"


def test_the_focus_stays_where_numbers_and_options_are_changed(open_window):
    window = open_window("/work?s=1")
    page = window.page
    page.get_by_label("x, row love, column 0").select_text()
    page.keyboard.type("5")
    window.press("ArrowDown")
    assert page.evaluate("document.activeElement.ariaLabel") == "x, row AI, column 0"
    assert json.loads(window.state["d"])["x"][1][0] == 5
    page.get_by_text("Change the formula").click()
    page.get_by_label("scaled dot").focus()
    window.press("ArrowLeft")
    assert json.loads(window.state["d"])["scoring"] == "cosine"
    assert page.evaluate("document.activeElement.value") == "cosine", "the next arrow key goes on from here"


def test_a_long_token_does_not_cover_the_numbers_of_its_row(open_window):
    tokens = ["I", "love", "a" * 60]
    own = {"title": "long", "tokens": tokens, "features": tokens[1:], "x": [[1, 0], [0, 1], [1, 1]]}
    page = open_window(f"/work?s=5&d={quote(json.dumps(own))}", width=800).page
    page.locator('td[data-at="2,2"]').last.click(timeout=10_000)  # fails if another element takes the click


@pytest.mark.slow
def test_quiz_is_marked_like_check(open_window):
    window = open_window("/work?s=3&quiz=1")
    page, truth = window.page, step(window.request("explain", source="i-love-ai"), "scores")["values"]
    fields = page.locator("input.quiz")
    positions = [tuple(map(int, cell.get_attribute("data-at").split(","))) for cell in fields.all()]
    assert 0 < len(positions) < 9
    for place, (row, column) in enumerate(positions):
        fields.nth(place).fill("7" if place == 0 else number.format_number(truth[row][column], 0))
    page.keyboard.press("Enter")
    window.wait_until_idle()
    page.locator("td[data-verdict]").first.wait_for()
    verdicts = page.locator("td[data-verdict]").evaluate_all("(all) => all.map((cell) => cell.dataset.verdict)")
    assert verdicts == ["wrong", *["right"] * (len(positions) - 1)]
    assert ", not 7" in page.locator(".reasons").inner_text()
    page.get_by_role("button", name="Show the answers").click()
    window.wait_until_idle()
    page.locator(".verdict.good").wait_for()
    assert f"{len(positions)} of {len(positions)} right" in page.locator(".verdict").inner_text()


@pytest.mark.slow
def test_dimension_slider_shows_the_effect_of_scaling(open_window):
    window = open_window("/work?s=4&dk=4")
    page = window.page
    page.get_by_role("slider", name="dₖ").focus()
    window.press(*["ArrowRight"] * 6)
    assert window.state["dk"] == "256"
    truth = window.request("scale", d_k=256)
    shown = page.locator(".bars").first.locator(".number").all_inner_texts()
    assert shown == [f"{weight:.4f}" for weight in truth["without"]["weights"]]
    assert max(truth["without"]["weights"]) > 0.95 > max(truth["with"]["weights"])


@pytest.mark.slow
def test_copy_and_export(open_window, tmp_path):
    window = open_window("/work?s=5")
    page, weights = window.page, step(window.request("explain", source="i-love-ai"), "weights")["values"]
    page.keyboard.press("c")
    page.get_by_role("menuitem", name="NumPy (weights)").click()
    page.get_by_text("Copied: NumPy (weights).").wait_for()
    space = {}
    exec(page.evaluate("navigator.clipboard.readText()"), space)
    assert space["weights"].tolist() == weights, "the very numbers of the server"
    for name, sign in (("LaTeX", "\\begin{bmatrix}"), ("Markdown", "| | I |"), ("CSV", ",I,love,AI")):
        page.keyboard.press("c")
        page.get_by_role("menuitem", name=f"{name} (weights)").click()
        page.get_by_text(f"Copied: {name} (weights).").wait_for()
        assert page.evaluate("navigator.clipboard.readText()").startswith(sign)
    for kind in ("SVG", "PNG", "HTML", "CSV", "LaTeX"):
        with page.expect_download() as saved:
            page.keyboard.press("e")
            page.get_by_role("menuitem", name=kind).click()
        assert saved.value.path().stat().st_size > 100


def test_an_exported_page_shows_the_arithmetic_of_a_clicked_cell(open_window, browser, tmp_path):
    window = open_window("/work")
    with window.page.expect_download() as saved:
        window.press("e")
        window.page.get_by_role("menuitem", name="HTML").click()
    path = tmp_path / "work.html"
    saved.value.save_as(path)
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    cell = page.locator("td", has_text="2.2920").last
    cell.click()
    page.get_by_text("0.1400·2 + 0.2840·1 + 0.5760·3").first.wait_for()
    context.close()


def test_keyboard(open_window):
    window = open_window("/work?s=3")
    page = window.page
    window.press("]", "]")
    assert window.state["s"] == "5", "brackets go from step to step"
    window.press("ArrowLeft")
    assert window.state["s"] == "4"
    page.locator('[data-matrix="scaled"] td[tabindex="0"]').focus()
    window.press("ArrowDown", "ArrowRight")
    assert window.state["c"] == "scaled,1,1"
    assert "scaled: query love, key love" in page.locator("#live-region").inner_text()
    window.press("Escape", "/")
    page.keyboard.type("easy peasy lemon squeezy")
    page.keyboard.press("Enter")
    window.wait_until_idle()
    assert page.get_by_role("heading", level=1).inner_text() == "easy peasy lemon squeezy"
    window.press("Escape", "?")
    assert page.get_by_role("dialog", name="Keys").get_by_text("Play the steps, or stop").is_visible()
    window.press("Escape", "g", "l")
    assert page.evaluate("location.pathname") == "/look"
    assert window.state["t"] == "easy peasy lemon squeezy", "the sentence comes along"


@pytest.mark.slow
def test_error_with_hint(open_window):
    window = open_window("/work")
    window.expected_errors = ("status of 4",)
    window.press("/")
    window.page.keyboard.type("word")
    window.page.keyboard.press("Enter")
    alert = window.page.get_by_role("alert")
    alert.wait_for()
    assert "One word alone has nothing to attend to" in alert.inner_text()
    assert "at least two words" in alert.inner_text()
    window.page.keyboard.type(" and another")
    window.page.keyboard.press("Enter")
    window.wait_until_idle()
    assert window.page.get_by_role("alert").count() == 0


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_accessibility(open_window, scheme):
    window = open_window("/work?s=5&quiz=1", color_scheme=scheme, bypass_csp=True)
    assert serious_violations(window.page) == []
    window.screenshot(f"work-{scheme}")


def count_elements(page):
    return page.evaluate(
        "(() => { const count = {}; for (const node of document.querySelectorAll('*')) {"
        " count[node.localName] = (count[node.localName] ?? 0) + 1; } return count; })()"
    )


def quoted(words):
    """Return words that an example may contain; peasy refuses others."""
    return [
        text for text in words if text.strip() and "\0" not in text and not any(0xD800 <= ord(s) < 0xE000 for s in text)
    ]


@pytest.mark.parametrize("some", [1, pytest.param(170, marks=pytest.mark.slow)])
def test_hostile_words_are_inert(open_window, some):
    window, words = open_window("/work?s=5"), quoted(HOSTILE)
    window.expected_errors = ("status of 4",)

    def at(three):
        own = {"title": three[0], "tokens": three, "features": three[1:], "x": [[1, 0], [0, 1], [1, 1]]}
        window.navigate(f"/work?s=5&d={quote(json.dumps(own))}")
        if window.page.get_by_role("alert").count():
            return None
        window.page.locator('td[data-at="1,2"]').last.click()
        return count_elements(window.wait_until_idle())

    tame = at(["one", "two", "three"])
    shown = 0
    for start in range(0, 3 * some, 3):
        found = at(words[start % len(words) : start % len(words) + 3]) if start % len(words) + 3 <= len(words) else None
        assert found in (None, tame), words[start : start + 3]
        shown += found is not None
    assert shown >= some // 2
