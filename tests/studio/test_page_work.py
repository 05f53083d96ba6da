"""The page Work as a person uses it, in a real browser with nothing but this machine to reach."""

import json
import math

import pytest
from tests.render.conftest import HOSTILE
from tests.studio.walker import numbers_of, serious

from peasy.render import number

pytestmark = pytest.mark.browser


def written(values):
    """Numbers as the house writes them; null is minus infinity."""
    real = [[-math.inf if each is None else each for each in row] for row in values]
    decimals = number.decimals_for([each for row in real for each in row], 4)
    return [[number.write(each, decimals) for each in row] for row in real]


def step(result, name):
    return next(each for each in result["steps"] if each["name"] == name)


def test_the_steps_one_by_one_and_the_arithmetic_of_a_cell(walk):
    walker = walk("/work")
    page, truth = walker.page, walker.ask("explain", what="i-love-ai")
    assert page.get_by_role("heading", level=1).inner_text() == "I love AI"
    page.get_by_role("button", name="Step 3: Scores").click()
    walker.settle()
    assert numbers_of(page, "scores") == written(step(truth, "scores")["values"])
    page.locator('[data-matrix="scores"] td[data-at="1,2"]').click()
    walker.settle()
    cell = walker.ask("explain", what="i-love-ai", cell=["scores", 1, 2])["cell"]
    assert page.get_by_role("status", name="Arithmetic").inner_text().split("\n") == [cell["title"], *cell["lines"]]
    assert page.locator('[data-matrix="query"] td.used').all_inner_texts() == ["1", "1"], "the row of the query is lit"
    assert page.locator('[data-matrix="keyᵀ"] td.used').all_inner_texts() == ["1", "1"], "and the column of the key"
    for name in ("scaled", "weights", "context"):
        page.get_by_role("button", name="Next step", exact=True).click()
        walker.settle()
        assert numbers_of(page, name) == written(step(truth, name)["values"])
    assert walker.state["s"] == "6"
    walker.keep("work")


def test_own_numbers_typed_and_pasted_are_worked_out_by_the_server(walk):
    walker = walk("/work?s=1")
    page = walker.page
    page.get_by_label("x, row I, column 0").fill("2")
    page.keyboard.press("Tab")
    walker.settle()
    page.get_by_role("button", name="Step 5: Weights").click()
    walker.settle()
    own = json.loads(walker.state["d"])
    assert own["x"][0] == [2, 0]
    assert numbers_of(page, "weights") == written(step(walker.ask("explain", what=own), "weights")["values"])
    page.get_by_role("button", name="Step 1: Input").click()
    page.evaluate(
        "navigator.clipboard.writeText('cat\\t1\\t0\\t3\\ndog\\t0\\t1,5\\t1\\nowl\\t2\\t2\\t2\\nfox\\t1\\t1\\t1')"
    )
    page.locator('[data-matrix="x"] input[data-at="0,0"]').focus()
    page.keyboard.press("Control+V")
    walker.settle()
    own = json.loads(walker.state["d"])
    assert own["tokens"] == ["cat", "dog", "owl", "fox"], "a first column of words names the rows"
    assert own["x"] == [[1, 0, 3], [0, 1.5, 1], [2, 2, 2], [1, 1, 1]]
    assert len(own["w_q"]) == 3, "the weight matrices fit the wider input"
    page.reload()
    walker.settle()
    assert numbers_of(page, "x")[1] == ["0", "1.5", "1"], "the link holds all of it"


@pytest.mark.slow
def test_switches_take_effect_at_once_and_back_undoes_the_choice(walk):
    walker = walk("/work?s=5")
    page = walker.page
    sides = page.get_by_role("region", name="Softmax or division by the sum")
    assert sides.locator("figure.matrix").count() == 2
    walker.expected = ("status of 400",)  # under these switches a row sums to 0, which the panel says in words
    page.get_by_label("causal").check(force=True)
    page.get_by_label("cosine").check(force=True)
    walker.settle()
    own = json.loads(walker.state["d"])
    assert (own["causal"], own["scoring"]) == (True, "cosine"), "two switches in a hurry both hold"
    truth = step(walker.ask("explain", what=own), "weights")["values"]
    assert truth[0][1] == 0
    assert numbers_of(page, "weights") == written(truth)
    assert "cannot be divided by their sum" in sides.get_by_role("alert").inner_text()
    page.get_by_label("own", exact=True).check(force=True)
    walker.settle()
    page.get_by_role("button", name="I may look at AI", exact=True).click()
    walker.settle()
    assert json.loads(walker.state["d"])["mask"][0] == [True, False, True]
    page.get_by_label("additive").check(force=True)
    walker.settle()
    assert json.loads(walker.state["d"])["scoring"]["kind"] == "additive"
    page.get_by_label("example").select_option("journey")
    walker.settle()
    assert page.get_by_role("heading", level=1).inner_text() != "I love AI"
    page.go_back()
    walker.settle()
    assert page.get_by_label("additive").is_checked(), "the way back leads to the own numbers"


@pytest.mark.slow
def test_a_quiz_is_marked_like_check(walk):
    walker = walk("/work?s=3&quiz=1")
    page, truth = walker.page, step(walker.ask("explain", what="i-love-ai"), "scores")["values"]
    fields = page.locator("input.quiz")
    places = [tuple(map(int, each.get_attribute("data-at").split(","))) for each in fields.all()]
    assert 0 < len(places) < 9
    for place, (row, column) in enumerate(places):
        fields.nth(place).fill("7" if place == 0 else number.write(truth[row][column], 0))
    page.keyboard.press("Enter")
    walker.settle()
    page.locator("td[data-verdict]").first.wait_for()
    verdicts = page.locator("td[data-verdict]").evaluate_all("(all) => all.map((each) => each.dataset.verdict)")
    assert verdicts == ["wrong", *["right"] * (len(places) - 1)]
    assert ", not 7" in page.locator(".reasons").inner_text()
    page.get_by_role("button", name="Show the answers").click()
    walker.settle()
    page.locator(".verdict.good").wait_for()
    assert f"{len(places)} of {len(places)} right" in page.locator(".verdict").inner_text()


@pytest.mark.slow
def test_the_slider_of_the_width_shows_what_the_scale_saves(walk):
    walker = walk("/work?s=4&dk=4")
    page = walker.page
    page.get_by_role("slider", name="dₖ").focus()
    walker.press(*["ArrowRight"] * 6)
    assert walker.state["dk"] == "256"
    truth = walker.ask("scale", d_k=256)
    shown = page.locator(".bars").first.locator(".number").all_inner_texts()
    assert shown == [f"{each:.4f}" for each in truth["without"]["weights"]]
    assert max(truth["without"]["weights"]) > 0.95 > max(truth["with"]["weights"])


@pytest.mark.slow
def test_copies_and_files(walk, tmp_path):
    walker = walk("/work?s=5")
    page, weights = walker.page, step(walker.ask("explain", what="i-love-ai"), "weights")["values"]
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


def test_everything_by_keyboard(walk):
    walker = walk("/work")
    page = walker.page
    walker.press("]", "]")
    assert walker.state["s"] == "5", "brackets go from step to step"
    walker.press("ArrowLeft")
    assert walker.state["s"] == "4"
    page.locator('[data-matrix="scaled"] td[tabindex="0"]').focus()
    walker.press("ArrowDown", "ArrowRight")
    assert walker.state["c"] == "scaled,1,1"
    assert "scaled: query love, key love" in page.get_by_role("status", name="Arithmetic").inner_text()
    walker.press("Escape", "/")
    page.keyboard.type("easy peasy lemon squeezy")
    page.keyboard.press("Enter")
    walker.settle()
    assert page.get_by_role("heading", level=1).inner_text() == "easy peasy lemon squeezy"
    walker.press("Escape", "?")
    assert page.get_by_role("dialog", name="Keys").get_by_text("Play the steps, or stop").is_visible()
    walker.press("Escape", "g", "l")
    assert page.evaluate("location.pathname") == "/look"
    assert walker.state["t"] == "easy peasy lemon squeezy", "the sentence comes along"


@pytest.mark.slow
def test_a_mistake_is_told_with_what_to_do(walk):
    walker = walk("/work")
    walker.expected = ("status of 4",)
    walker.press("/")
    walker.page.keyboard.type("word")
    walker.page.keyboard.press("Enter")
    alert = walker.page.get_by_role("alert")
    alert.wait_for()
    assert "two words or more" in alert.inner_text()
    walker.page.keyboard.type(" and another")
    walker.page.keyboard.press("Enter")
    walker.settle()
    assert walker.page.get_by_role("alert").count() == 0


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious(walk, scheme):
    walker = walk("/work?s=5&quiz=1", color_scheme=scheme, bypass_csp=True)
    assert serious(walker.page) == []
    walker.keep(f"work-{scheme}")


def count_elements(page):
    return page.evaluate(
        "(() => { const count = {}; for (const each of document.querySelectorAll('*')) {"
        " count[each.localName] = (count[each.localName] ?? 0) + 1; } return count; })()"
    )


def quoted(words):
    """Words that an example may hold: peasy itself refuses what no file could."""
    return [
        each for each in words if each.strip() and "\0" not in each and not any(0xD800 <= ord(s) < 0xE000 for s in each)
    ]


@pytest.mark.parametrize("some", [1, pytest.param(170, marks=pytest.mark.slow)])
def test_hostile_words_are_inert(walk, some):
    from urllib.parse import quote

    walker, words = walk("/work?s=5"), quoted(HOSTILE)
    walker.expected = ("status of 4",)

    def at(three):
        own = {"title": three[0], "tokens": three, "features": three[1:], "x": [[1, 0], [0, 1], [1, 1]]}
        walker.move(f"/work?s=5&d={quote(json.dumps(own))}")
        if walker.page.get_by_role("alert").count():
            return None
        walker.page.locator('td[data-at="1,2"]').last.click()
        return count_elements(walker.settle())

    tame = at(["one", "two", "three"])
    shown = 0
    for start in range(0, 3 * some, 3):
        found = at(words[start % len(words) : start % len(words) + 3]) if start % len(words) + 3 <= len(words) else None
        assert found in (None, tame), words[start : start + 3]
        shown += found is not None
    assert shown >= some // 2
