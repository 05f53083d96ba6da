"""Saved HTML pages in a real browser, offline."""

import pytest
from tests.browser.conftest import RecordedPage
from tests.render.conftest import HOSTILE, every_part

from peasy import render
from peasy.views.document import Document, Matrix

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def saved(worked, tmp_path_factory):
    return render.save(worked, tmp_path_factory.mktemp("page") / "worked.html")


def test_focusing_or_hovering_a_cell_opens_its_arithmetic(browser, saved):
    watched = RecordedPage(browser, saved)
    page = watched.page
    popover, cell = page.locator("#popover"), page.locator("td[data-cell]")
    assert popover.is_hidden()
    cell.nth(0).hover()
    assert "so it comes to x" in popover.inner_text()
    page.mouse.move(0, 0)
    assert popover.is_hidden()
    cell.nth(0).focus()
    assert popover.is_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.cell") == "1-1-1"
    assert "x of love" in popover.inner_text()
    page.keyboard.press("Escape")
    assert popover.is_hidden()
    watched.assert_quiet()


def test_each_table_is_one_tab_stop(browser, saved, worked):
    page = RecordedPage(browser, saved).page
    assert page.locator("td[tabindex='0']").count() == len(worked.matrices())


@pytest.mark.parametrize("many", [12, pytest.param(60, marks=pytest.mark.slow)])
def test_hostile_strings_stay_text(browser, tmp_path, many):
    labels = HOSTILE[:200]
    parts = (
        Matrix("m", tuple((word,) for word in labels), labels, ("c",)),
        *(p for w in HOSTILE[:many] for p in every_part(w)),
    )
    tame = tuple("love" for _ in labels)
    harmless = (
        Matrix("m", tuple((word,) for word in tame), tame, ("c",)),
        *(p for _ in range(many) for p in every_part()),
    )
    counts = []
    for name, given in (("hostile", parts), ("harmless", harmless)):
        watched = RecordedPage(browser, render.save(Document(name, given), tmp_path / f"{name}.html"))
        cells = watched.page.locator("td[data-cell]")
        cells.nth(0).focus()
        cells.nth(cells.count() - 1).focus()
        watched.assert_quiet()
        counts.append(
            watched.page.evaluate("""
            ["script", "img", "iframe", "svg", "td", "h2", "p", "a", "math", "table", "[onload], [onerror]"]
            .map((kind) => document.querySelectorAll(kind).length)""")
        )
    assert counts[0] == counts[1]


@pytest.mark.parametrize("word_range", [range(start, start + 100) for start in range(0, 500, 100)])
def test_hostile_strings_in_cells_and_arithmetic_are_inert(browser, tmp_path, word_range):
    parts = tuple(part for place in word_range for part in every_part(HOSTILE[place])[7:9])
    watched = RecordedPage(browser, render.save(Document("t", parts), tmp_path / "page.html"))
    assert watched.page.locator("img, iframe, a, [onerror], [onload]").count() == 0
    assert watched.page.locator("script").count() == 2
    watched.assert_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_light_and_dark_wide_and_narrow(browser, everything, worked, tmp_path, scheme, width):
    document = Document("All", (*worked.parts, *everything.parts))
    path = render.save(document, tmp_path / "page.html")
    watched = RecordedPage(browser, path, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = watched.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page itself must not scroll sideways"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 21, 28)"}[scheme]
    assert page.screenshot(full_page=True).startswith(b"\x89PNG")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    watched.assert_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, everything, worked, tmp_path, scheme):
    from axe_playwright_python.sync_playwright import Axe

    path = render.save(Document("All", (*worked.parts, *everything.parts)), tmp_path / "page.html")
    page = RecordedPage(browser, path, color_scheme=scheme, bypass_csp=True).page
    found = Axe().run(page).response["violations"]
    serious = [violation for violation in found if violation["impact"] in {"serious", "critical"}]
    assert not serious, [(violation["id"], violation["nodes"][0]["html"]) for violation in serious]


def test_page_is_readable_without_scripts(browser, saved):
    watched = RecordedPage(browser, saved, java_script_enabled=False)
    assert watched.page.locator("td", has_text="0.5760").count() == 1
    assert watched.page.locator("math").count() >= 8
    watched.assert_quiet()


def test_high_contrast_keeps_borders(browser, saved):
    page = RecordedPage(browser, saved, forced_colors="active").page
    assert page.evaluate("getComputedStyle(document.querySelector('td[data-cell]')).borderTopStyle") == "solid"


def test_policy_blocks_injected_scripts(browser, saved, tmp_path):
    """Inverse: a script inserted into the file does not run."""
    path = tmp_path / "spoilt.html"
    path.write_text(
        saved.read_text().replace("<h1>", "<script>alert(1)</script><img src=http://a.example/x.png><h1>", 1)
    )
    watched = RecordedPage(browser, path)
    assert watched.dialogs == []
    assert watched.console_messages
