"""The page Experiments as a person uses it: run one, see its verdict, find it again later."""

import pytest
from tests.studio.walker import serious

from peasy.workbench.experiments.memory import recall

pytestmark = pytest.mark.browser


def test_one_is_run_live_and_stays_with_its_numbers(visit):
    walker = visit("/experiments")
    page = walker.page
    card = page.locator("article", has_text="matrix-form")
    assert "Not run here yet" in card.inner_text()
    page.get_by_role("button", name="Run matrix-form").click()
    page.get_by_role("region", name="What goes on").get_by_text("is done").wait_for()
    walker.settle()
    finding, _ = recall("matrix-form")
    result = page.get_by_role("region", name="Result")
    result.get_by_text(finding.verdict).wait_for()
    assert ("✓ the claim came out" if finding.holds else "✗") in card.inner_text()
    rows = result.locator("figure.table tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((c) => c.textContent))"
    )
    assert rows == [list(row) for row in finding.parts[0].rows]
    assert walker.state["x"] == "matrix-form"
    page.reload()
    walker.settle()
    assert finding.caveat in result.inner_text()
    walker.keep("experiments")


def test_nothing_serious_wide_and_narrow(visit):
    walker = visit("/experiments", width=360, bypass_csp=True)
    assert serious(walker.page) == []
    assert walker.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
