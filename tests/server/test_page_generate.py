"""Page Generate: tokens, next-token probabilities, KV cache."""

from urllib.parse import quote

import pytest
from tests.render.conftest import HOSTILE
from tests.server.browser_window import assert_hostile_texts_are_inert, serious_violations

pytestmark = pytest.mark.browser

TEXT = "the pizza came out of"


def tokens(page):
    return page.locator(".tokens button.token:not(.caret)").all_inner_texts()


def probabilities(page):
    return [item.split(" → ") for item in page.locator("ol.candidates .number").all_inner_texts()]


def test_tokens_with_their_attention(open_window):
    window = open_window(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=6")
    page = window.page
    truth = window.request("trace", model="writer", text=TEXT, max_tokens=6, top=8)
    page.get_by_role("button", name="One token").click()
    page.locator(".tokens button.token:not(.caret)").first.wait_for()
    window.wait_until_idle()
    assert tokens(page) == [truth["steps"][0]["piece"]]
    page.get_by_role("button", name="Generate", exact=True).click()
    page.get_by_text("With and without the KV cache").wait_for()
    window.wait_until_idle()
    assert tokens(page) == [item["piece"] for item in truth["steps"]]
    page.locator(".tokens button.token").nth(2).click()
    window.wait_until_idle()
    seen = page.get_by_role("region", name="Attention", exact=True)
    shown = seen.locator("ol .number").all_inner_texts()
    assert shown == [f"{item:.4f}" for item in truth["steps"][2]["attention"][0]["weights"][0]]
    window.press("]")
    assert seen.locator("ol .number").all_inner_texts() == [
        f"{item:.4f}" for item in truth["steps"][2]["attention"][1]["weights"][0]
    ]
    assert "not why the model answered" in seen.inner_text()
    cache = page.get_by_role("region", name="KV cache")
    assert "1 token computed in every layer" in cache.inner_text()
    assert "The logits differ by at most" in page.locator("main").inner_text()
    window.screenshot("generate")


def test_the_last_of_eleven_tokens_has_its_attention(open_window):
    """Positions go from 0 to 10: a step after the last one was "There is no token 11"."""
    window = open_window(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=11")
    page = window.page
    page.get_by_role("button", name="Generate", exact=True).click()
    page.get_by_text("With and without the KV cache").wait_for()
    window.wait_until_idle()
    assert len(tokens(page)) == 11
    last = window.request("trace", model="writer", text=TEXT, max_tokens=11, top=8)["steps"][-1]
    page.locator(".tokens button.token:not(.caret)").last.click()
    window.wait_until_idle()
    shown = page.get_by_role("region", name="Attention", exact=True).locator("ol .number")
    assert shown.all_inner_texts() == [f"{item:.4f}" for item in last["attention"][0]["weights"][0]]
    window.press("ArrowRight", "ArrowRight")
    page.reload()
    window.wait_until_idle()
    assert page.get_by_role("alert").count() == 0
    assert len(tokens(page)) == 11


def test_sampling_sliders_change_the_probabilities(open_window):
    window = open_window(f"/generate?m=writer&t={quote(TEXT)}&temp=1")
    page = window.page
    plain = window.request("next-token", model="writer", text=TEXT, temperature=1.0)
    assert [item[0] for item in probabilities(page)] == [f"{item['probability']:.3f}" for item in plain["choices"]]
    page.get_by_label("temperature").focus()
    window.press(*["ArrowLeft"] * 10)
    page.get_by_label("top-k").focus()
    window.press(*["ArrowRight"] * 3)
    assert (window.state["temp"], window.state["topk"]) == ("0.5", "3")
    adjusted = window.request("next-token", model="writer", text=TEXT, temperature=0.5, top_k=3)
    expected = [
        "cut" if item["adjusted_probability"] == 0 else f"{item['adjusted_probability']:.3f}"
        for item in adjusted["choices"]
    ]
    assert [item[1] for item in probabilities(page)] == expected
    assert expected.count("cut") == len(expected) - adjusted["num_candidates"]
    assert f"{adjusted['num_candidates']:,} of 300 tokens" in page.get_by_text("tokens can be sampled").inner_text()


@pytest.mark.slow
def test_user_chooses_the_token(open_window):
    window = open_window(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=3")
    page = window.page
    third = window.request("next-token", model="writer", text=TEXT, temperature=0.0)["choices"][2]
    page.locator("ol.candidates button").nth(2).click()
    page.locator(".tokens button.token:not(.caret)").first.wait_for()
    window.wait_until_idle()
    assert tokens(page) == [third["piece"]]
    after = window.request("next-token", model="writer", text=TEXT, temperature=0.0, generated_ids=[third["id"]])[
        "choices"
    ]
    assert page.locator("ol.candidates bdi").all_inner_texts() == [item["piece"] for item in after]


def test_arrow_keys_move_while_a_button_is_focused(open_window):
    window = open_window(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=5")
    page = window.page
    page.get_by_role("button", name="One token").click()
    page.locator(".tokens button.token:not(.caret)").first.wait_for()
    window.wait_until_idle()
    window.press("ArrowLeft")
    assert page.locator(".tokens button[aria-pressed=true]").inner_text() == tokens(page)[0]


@pytest.mark.slow
def test_keyboard_and_reload(open_window):
    window = open_window(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=5")
    page = window.page
    window.press("n", "n")
    page.locator(".tokens button.token:not(.caret)").nth(1).wait_for()
    window.wait_until_idle()
    first = tokens(page)
    window.press("ArrowLeft")
    assert page.locator(".tokens button[aria-pressed=true]").inner_text() == first[-1]
    page.reload()
    window.wait_until_idle()
    page.locator(".tokens button.token:not(.caret)").nth(1).wait_for()
    assert tokens(page) == first
    window.press(" ")
    page.locator(".tokens button.token:not(.caret)").nth(4).wait_for()
    window.press("g", "w")
    assert page.evaluate("location.pathname") == "/work", "leaving ends what was going on"


@pytest.mark.slow
def test_accessibility(open_window):
    window = open_window(f"/generate?m=writer&t={quote(TEXT)}&temp=0&n=3&at=3", bypass_csp=True, color_scheme="dark")
    window.wait_until_idle()
    assert serious_violations(window.page) == []


@pytest.mark.slow
def test_hostile_prompts_are_inert(open_window):
    window = open_window("/generate?m=writer&t=a+word")
    window.expected_errors = ("status of 4",)
    assert_hostile_texts_are_inert(window, "/generate?m=writer&n=2&at=2&t=", HOSTILE, scripts="script")
