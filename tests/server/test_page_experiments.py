"""Page Experiments: run one, see its verdict, find it again."""

import pytest
from tests.server.browser_window import serious_violations

from peasy.experiments.result import load_result
from peasy.views.document import Table

pytestmark = pytest.mark.browser


def test_run_an_experiment_and_reload(open_tiny_studio):
    window = open_tiny_studio("/experiments")
    page = window.page
    card = page.locator("article", has_text="matrix-form")
    assert "Not run yet" in card.inner_text()
    page.get_by_role("button", name="Run matrix-form").click()
    page.get_by_role("region", name="Job").get_by_text("is done").wait_for()
    window.wait_until_idle()
    finding, _ = load_result("matrix-form")
    result = page.get_by_role("region", name="Result")
    result.get_by_text(finding.verdict).wait_for()
    assert f"{'✓' if finding.holds else '✗'} {finding.outcome}" in card.inner_text()
    rows = result.locator("figure.table tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((c) => c.textContent))"
    )
    tables = [part for part in finding.document().parts if isinstance(part, Table)]
    assert rows == [list(row) for table in tables for row in table.rows]
    assert len(tables) == 3, "measurements, what decides in this run, and the stored seeds"
    assert window.state["x"] == "matrix-form"
    page.reload()
    window.wait_until_idle()
    assert finding.caveat in result.inner_text()
    window.screenshot("experiments")


def test_accessibility_wide_and_narrow(open_tiny_studio):
    window = open_tiny_studio("/experiments", width=360, bypass_csp=True)
    assert serious_violations(window.page) == []
    assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
