"""What surrounds every page: the rail, the keys, the address, themes, small and large windows, the size of it all."""

import re

import pytest
from tests.studio.walker import serious

from peasy.studio.page import PAGES, listed

pytestmark = pytest.mark.browser

LETTERS = dict(zip(PAGES, "wlgtmero", strict=True))


def test_keys_lead_to_every_page_and_back_leads_back(walk):
    walker = walk("/work")
    page = walker.page
    for name in PAGES:
        walker.press("g", LETTERS[name])
        page.wait_for_selector("#place h1")
        assert page.evaluate("location.pathname") == f"/{name}"
        assert page.locator("#rail [aria-current=page]").inner_text().split()[0].lower() == name
        assert page.title().lower().startswith(name)
    page.go_back()
    walker.settle()
    assert page.evaluate("location.pathname") == "/train"
    page.locator("#rail a", has_text="Look").click()
    walker.settle()
    assert page.evaluate("location.pathname") == "/look"


@pytest.mark.slow
def test_the_list_of_keys_themes_and_the_link(walk):
    walker = walk("/work?s=5")
    page = walker.page
    walker.press("?")
    listed_keys = page.get_by_role("dialog", name="Keys")
    assert {"g w", "g o", "/", "e", "c", "t", "?", "space", "[", "]"} <= set(
        listed_keys.locator("kbd").all_inner_texts()
    )
    walker.press("Escape")
    seen = []
    for _ in range(4):
        walker.press("t")
        seen.append(
            page.evaluate("[document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor]")
        )
    assert [name for name, _ in seen] == ["light", "dark", "contrast", None]
    assert seen[0][1] != seen[1][1]
    walker.press("t", "t")
    page.reload()
    walker.settle()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark", "the choice is kept on this machine"
    walker.press("c")
    page.get_by_role("menuitem", name="Link to this view").click()
    page.get_by_text("Copied: link.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    walker.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "what has the focus can be seen"


@pytest.mark.parametrize("width", [360, pytest.param(3840, marks=pytest.mark.slow)])
def test_narrow_and_wide_windows(walk, width):
    walker = walk(width=width, height=800)
    for path in ("/work?s=3", "/look?m=writer&t=the+pizza+came", "/generate?m=writer&t=the+pizza&temp=0&n=2&at=2"):
        walker.open(path)
        assert walker.page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} scrolls sideways"
        walker.keep(f"{path[1:].partition('?')[0]}-{width}")


@pytest.mark.slow
def test_an_error_of_the_server_is_shown_and_another_page_still_opens(walk):
    walker = walk()
    walker.expected = ("status of 404",)
    walker.open("/look?m=no-such-model&t=a+word")
    alert = walker.page.get_by_role("alert").first
    alert.wait_for()
    assert 'No model "no-such-model"' in alert.inner_text()
    walker.press("g", "w")
    assert walker.page.get_by_role("alert").count() == 0


@pytest.mark.slow
def test_motion_can_be_left_out(walk):
    page = walk("/work", reduced_motion="reduce").page
    assert page.evaluate("getComputedStyle(document.body, '::before').animationName") == "none"


@pytest.mark.slow
def test_axe_in_high_contrast(walk):
    walker = walk("/work", bypass_csp=True)
    walker.press("t", "t", "t")
    assert serious(walker.page) == []


def test_all_of_it_is_small_and_asks_nobody(client):
    files = {name: file.read_bytes() for name, file in listed().items()}
    assert sum(map(len, files.values())) < 300_000
    for name, content in files.items():
        text = content.decode()
        assert not re.search(r"""(src|href|from|import)\s*[=(]?\s*["'](https?:)?//""", text), f"{name} reaches outside"
        assert "innerHTML" not in text, f"{name} makes markup of text"
        assert name.endswith(".html") or "eval(" not in text


def test_every_page_is_what_the_rail_says():
    files = {name: file.read_text(encoding="utf-8") for name, file in listed().items()}
    rail = re.findall(r'name: "(\w+)", title: "(\w+)", letter: "(\w)"', files["/pages.js"])
    assert {name: letter for name, _, letter in rail} == LETTERS
    assert tuple(name for name, _, _ in rail) == tuple(LETTERS)
    for name, title, letter in rail:
        assert (
            f'export const page = {{ name: "{name}", title: "{title}", letter: "{letter}"' in files[f"/page/{name}.js"]
        )
