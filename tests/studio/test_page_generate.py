"""The page Generate as a person uses it: tokens one by one, chances bent by sliders, the cache with and without."""

from urllib.parse import quote

import pytest
from tests.render.conftest import HOSTILE
from tests.studio.walker import serious

pytestmark = pytest.mark.browser

TEXT = "the pizza came out of"


def tokens(page):
    return page.locator(".tokens button.token:not(.caret)").all_inner_texts()


def chances(page):
    return [each.split(" → ") for each in page.locator("ol.chances .number").all_inner_texts()]


def test_tokens_come_one_by_one_with_what_they_looked_at(walk):
    walker = walk(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=6")
    page = walker.page
    truth = walker.ask("trace", model="writer", text=TEXT, max_tokens=6, top=8)
    page.get_by_role("button", name="One token").click()
    page.locator(".tokens button.token:not(.caret)").first.wait_for()
    walker.settle()
    assert tokens(page) == [truth["steps"][0]["piece"]]
    page.get_by_role("button", name="Write on").click()
    page.get_by_text("With and without the cache").wait_for()
    walker.settle()
    assert tokens(page) == [each["piece"] for each in truth["steps"]]
    page.locator(".tokens button.token").nth(2).click()
    walker.settle()
    seen = page.get_by_role("region", name="What it looked at")
    shown = seen.locator("ol .number").all_inner_texts()
    assert shown == [f"{each:.4f}" for each in truth["steps"][2]["looked"][0]["weights"][0]]
    walker.press("]")
    assert seen.locator("ol .number").all_inner_texts() == [
        f"{each:.4f}" for each in truth["steps"][2]["looked"][1]["weights"][0]
    ]
    assert "not why the model answered" in seen.inner_text()
    cache = page.get_by_role("region", name="The cache")
    assert "1 token through every layer" in cache.inner_text()
    assert "The scores differ by at most" in page.locator("main").inner_text()
    walker.keep("generate")


def test_sliders_reshape_the_shown_chances_live(walk):
    walker = walk(f"/generate?m=writer&t={quote(TEXT)}&temp=1")
    page = walker.page
    plain = walker.ask("chances", model="writer", text=TEXT, temperature=1.0)
    assert [each[0] for each in chances(page)] == [f"{each['chance']:.3f}" for each in plain["choices"]]
    page.get_by_label("temperature").focus()
    walker.press(*["ArrowLeft"] * 10)
    page.get_by_label("top-k").focus()
    walker.press(*["ArrowRight"] * 3)
    assert (walker.state["temp"], walker.state["topk"]) == ("0.5", "3")
    bent = walker.ask("chances", model="writer", text=TEXT, temperature=0.5, top_k=3)
    wanted = ["cut" if each["bent"] == 0 else f"{each['bent']:.3f}" for each in bent["choices"]]
    assert [each[1] for each in chances(page)] == wanted
    assert wanted.count("cut") == len(wanted) - bent["kept"]
    assert f"{bent['kept']:,} of 300 tokens" in page.locator(".kept").inner_text()


@pytest.mark.slow
def test_a_person_may_choose_the_token(walk):
    walker = walk(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=3")
    page = walker.page
    third = walker.ask("chances", model="writer", text=TEXT, temperature=0.0)["choices"][2]
    page.locator("ol.chances button").nth(2).click()
    page.locator(".tokens button.token:not(.caret)").first.wait_for()
    walker.settle()
    assert tokens(page) == [third["piece"]]
    after = walker.ask("chances", model="writer", text=TEXT, temperature=0.0, written=[third["id"]])["choices"]
    assert page.locator("ol.chances bdi").all_inner_texts() == [each["piece"] for each in after]


@pytest.mark.slow
def test_everything_by_keyboard_and_a_reload_brings_it_back(walk):
    walker = walk(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=5")
    page = walker.page
    walker.press("n", "n")
    page.locator(".tokens button.token:not(.caret)").nth(1).wait_for()
    walker.settle()
    first = tokens(page)
    walker.press("ArrowLeft")
    assert page.locator(".tokens button[aria-pressed=true]").inner_text() == first[-1]
    page.reload()
    walker.settle()
    page.locator(".tokens button.token:not(.caret)").nth(1).wait_for()
    assert tokens(page) == first
    walker.press(" ")
    page.locator(".tokens button.token:not(.caret)").nth(4).wait_for()
    walker.press("g", "w")
    assert page.evaluate("location.pathname") == "/work", "leaving ends what was going on"


@pytest.mark.slow
def test_axe_finds_nothing_serious(walk):
    walker = walk(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=3&at=3", bypass_csp=True)
    walker.settle()
    assert serious(walker.page) == []


@pytest.mark.slow
@pytest.mark.parametrize("some", [500])
def test_hostile_beginnings_are_inert(walk, some):
    walker = walk("/generate?m=writer&t=a+word")
    walker.expected = ("status of 4",)
    for words in [each for each in HOSTILE if each.strip()][:some]:
        walker.move(f"/generate?m=writer&t={quote(words[:400], errors='replace')}&n=2&at=2")
        assert walker.page.locator("#place script, #place img, #place iframe").count() == 0
    assert walker.page.evaluate("window.hacked") is None
