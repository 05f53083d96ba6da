"""Page Experiments: run one, see its verdict, find it again."""

import re

import pytest
from tests.server.browser_window import serious_violations

from peasy.experiments.result import EXPERIMENTS, load_result
from peasy.experiments.stored import stored_result

pytestmark = pytest.mark.browser


def test_a_claim_is_guessed_then_measured_and_found_again(open_tiny_studio):
    window = open_tiny_studio("/experiments")
    page = window.page
    claim = EXPERIMENTS["matrix-form"].claim
    card = page.locator("article", has_text=claim)
    assert card.locator("h2").inner_text() == claim, "the claim is a sentence"
    assert card.locator(".verdict").count() == 0, "the card does not tell before the guess"
    window.press("c")
    page.get_by_role("menuitem", name="Numbers as JSON").click()
    page.get_by_text("There is nothing to copy yet.").wait_for()
    page.get_by_role("button", name=f"It does not: {claim}").click()
    window.wait_until_idle()
    result = page.get_by_role("region", name="Result")
    stored = stored_result("matrix-form")
    assert f"✓ {stored.outcome.capitalize()}" in result.inner_text(), "a result comes with the package"
    assert stored.verdict not in result.inner_text(), "its many numbers are folded"
    with page.expect_download() as saved:
        window.press("e")
        page.get_by_role("menuitem", name="SVG").click()
    picture = saved.value.path().read_text(encoding="utf-8")
    assert f"Stored result ({len(stored.seeds)} seeds): {stored.outcome}" in picture, "with its verdict"
    compared = result.locator("figure.compared").inner_text()
    assert "(less is better)" in compared
    assert all(name in compared for name in EXPERIMENTS["matrix-form"].labels.values()), "in plain words"
    assert "You said: it does not." in result.inner_text()
    measured = page.get_by_role("button", name="Run matrix-form")
    assert re.fullmatch(r"(Run again|Measure it here) \(about \d+ s\)", measured.inner_text()), "a measured duration"
    measured.click()
    page.get_by_role("region", name="Job").get_by_text("is done").wait_for()
    window.wait_until_idle()
    finding, _ = load_result("matrix-form")
    result.get_by_text(finding.verdict).first.wait_for()
    page.wait_for_function("() => document.activeElement.tagName === 'H2'")
    assert page.evaluate("document.activeElement.textContent") == claim, "focus moves to the result"
    parts = result.evaluate("(section) => [...section.children].map((child) => child.className || child.tagName)")
    assert parts.index("verdict good" if finding.holds else "verdict bad") == 1, "the verdict is on top"
    folded = result.locator("details", has_text="Last run on this machine")
    assert folded.count() == 1
    assert not folded.evaluate("(one) => one.open")
    assert finding.caveat in result.inner_text()
    assert window.state["x"] == "matrix-form"
    window.screenshot("experiments")
    page.reload()
    window.wait_until_idle()
    assert finding.verdict in result.inner_text()


def test_accessibility_wide_and_narrow(open_tiny_studio):
    window = open_tiny_studio("/experiments", width=360, bypass_csp=True)
    assert serious_violations(window.page) == []
    assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
