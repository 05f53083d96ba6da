"""Application shell: navigation, keys, URL, themes, window sizes, file sizes."""

import re
from contextlib import ExitStack
from itertools import pairwise

import pytest
from tests.server.browser_window import browser_windows, serious_violations
from tests.server.tiny_server import running_server

from peasy.experiments.result import EXPERIMENTS
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry
from peasy.server.static import PAGES, list_files

pytestmark = pytest.mark.browser

LETTERS = dict(zip(PAGES, "hwlgtmeroy", strict=True))


def test_navigation_keys_and_back_button(open_window):
    window = open_window("/work")
    page = window.page
    for name in PAGES:
        window.press("g", LETTERS[name])
        page.wait_for_selector("#place h1")
        assert page.evaluate("location.pathname") == f"/{name}"
        assert page.locator("#rail [aria-current=page]").inner_text().split()[0].lower() == name
        assert page.title().lower().startswith(name)
        window.wait_until_idle()
        page.wait_for_selector("#place h1:not(.skeleton)")
        levels = page.locator("#place").evaluate(
            "(place) => [...place.querySelectorAll('h1, h2, h3, h4')].map(({ tagName }) => Number(tagName[1]))"
        )
        assert levels[0] == 1, name
        assert all(after <= before + 1 for before, after in pairwise(levels)), f"{name}: {levels}"
    page.go_back()
    window.wait_until_idle()
    assert page.evaluate("location.pathname") == f"/{PAGES[-2]}"
    page.locator("#rail a", has_text="Look").click()
    window.wait_until_idle()
    assert page.evaluate("location.pathname") == "/look"


@pytest.mark.slow
def test_key_list_themes_and_link(open_window):
    window = open_window("/work?s=5")
    page = window.page
    window.press("?")
    listed_keys = page.get_by_role("dialog", name="Keys")
    assert {"g w", "g o", "/", "e", "c", "t", "?", "space", "[", "]"} <= set(
        listed_keys.locator("kbd").all_inner_texts()
    )
    window.press("Escape")
    seen = []
    for _ in range(4):
        window.press("t")
        seen.append(
            page.evaluate("[document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor]")
        )
    assert [name for name, _ in seen] == ["light", "dark", "contrast", None]
    assert seen[0][1] != seen[1][1]
    window.press("t", "t")
    page.reload()
    window.wait_until_idle()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark", "the choice is kept on this machine"
    window.press("c")
    page.get_by_role("menuitem", name="Link to this view").click()
    page.get_by_text("Copied: link.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    window.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "what has the focus can be seen"


@pytest.mark.parametrize("width", [360, pytest.param(3840, marks=pytest.mark.slow)])
def test_narrow_and_wide_windows(open_window, width):
    window = open_window(width=width, height=800)
    for path in (
        "/home?m=writer&t=the+pizza+came",
        "/work?s=3",
        "/look?m=writer&t=the+pizza+came",
        "/generate?m=writer&t=the+pizza&temp=0&n=2&at=2",
        "/glossary",  # the last of the list
    ):
        window.open(path)
        assert window.page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} scrolls sideways"
        place = window.page.locator("#rail [aria-current]").bounding_box()
        assert 0 <= place["x"] <= width - place["width"], "the page is seen in the list of pages"
        window.screenshot(f"{path[1:].partition('?')[0]}-{width}")


@pytest.mark.slow
def test_server_error_is_shown_and_other_pages_open(open_window):
    window = open_window()
    window.expected_errors = ("status of 404",)
    window.open("/look?m=no-such-model&t=a+word")
    alert = window.page.get_by_role("alert").first
    alert.wait_for()
    assert 'No model "no-such-model"' in alert.inner_text()
    window.press("g", "w")
    assert window.page.get_by_role("alert").count() == 0


@pytest.mark.slow
def test_reduced_motion(open_window):
    page = open_window("/work", reduced_motion="reduce").page
    assert page.evaluate("getComputedStyle(document.body, '::before').animationName") == "none"


@pytest.mark.slow
def test_accessibility_in_high_contrast(open_window):
    window = open_window("/work", bypass_csp=True)
    window.press("t", "t", "t")
    assert serious_violations(window.page) == []


def test_files_are_small_and_load_nothing_external(client):
    files = {name: file.read_bytes() for name, file in list_files().items()}
    assert sum(map(len, files.values())) < 400_000, "as written, with comments"
    assert sum(len(client.get(name).content) for name in files if name != "/index.html") < 370_000, "as browsers get it"
    for name, content in files.items():
        text = content.decode()
        assert not re.search(r"""(src|href|from|import)\s*[=(]?\s*["'](https?:)?//""", text), f"{name} reaches outside"
        assert "innerHTML" not in text, f"{name} makes markup of text"
        assert name.endswith(".html") or "eval(" not in text


def test_pages_match_the_navigation_rail():
    files = {name: file.read_text(encoding="utf-8") for name, file in list_files().items()}
    rail = re.findall(r'name: "(\w+)", title: "(\w+)", letter: "(\w)"', files["/pages.js"])
    assert {name: letter for name, _, letter in rail} == LETTERS
    assert tuple(name for name, _, _ in rail) == tuple(LETTERS)
    assert {f"/page/{name}.js" for name in LETTERS} == {name for name in files if name.startswith("/page/")}
    assert all("\nexport class Page " in files[f"/page/{name}.js"] for name in LETTERS)


def test_all_modules_of_a_page_are_requested_at_once_and_its_links_lead_somewhere(open_window, client):
    window = open_window("/home?m=writer&t=the+pizza+came")
    waited_for = (
        "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('.js')).map(({ name }) => name)"
    )
    requested = {url.removeprefix(window.origin) for url in window.page.evaluate(waited_for)}
    listed = set(re.findall(r'modulepreload" href="(.*?)"', client.get("/home").text))
    assert {path[1:] for path in requested} == listed | {"early.js"}
    chapters = client.post("/api/textbook", json={}).json()["result"]["chapters"]
    measured = [chapter["experiment"] for chapter in chapters]
    assert len(measured) == 10
    assert set(measured) <= set(EXPERIMENTS)


WITHOUT_DATA = "#place:not(:has(.skeleton, noscript))"
"""The module of the page is there; its data may not be."""

KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", *"[],. osnb+"]
PRESS = """(keys) => keys.forEach((key) => document.body.dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })))"""


def test_keys_do_nothing_before_a_page_has_its_data(open_window):
    """A slow server: every key of every page is pressed while the first request waits."""
    window = open_window()
    page = window.page
    held = []
    page.route("**/api/**", lambda route: held.append(route))
    for name in PAGES:
        page.goto(f"{window.origin}/{name}", wait_until="commit")
        page.wait_for_selector(WITHOUT_DATA, state="attached")
        page.evaluate(PRESS, KEYS)
    page.goto(f"{window.origin}/generate", wait_until="commit")
    page.wait_for_selector("#place > h1")  # the page is there and has its keys, but no data
    page.keyboard.press("n")
    page.keyboard.press(" ")
    page.wait_for_timeout(300)
    assert not [route.request.url for route in held if "stream" in route.request.url], "Generate has not begun"
    page.unroute_all(behavior="ignoreErrors")
    window.open("/work")  # the window's own check: no exception in any page


REFUSALS = {
    "does not respond": lambda route: route.abort(),
    "status 502": lambda route: route.fulfill(status=502, content_type="text/html", body="<h1>Bad gateway</h1>"),
    "Out of luck": lambda route: route.fulfill(status=500, json={"ok": False, "error": {"message": "Out of luck."}}),
    "not from peasy studio": lambda route: route.fulfill(status=200, content_type="text/html", body="<p>Hello"),
}


def test_a_server_that_is_gone_or_fails_offers_to_reload(open_window):
    window = open_window("/glossary")
    window.expected_errors = ("ERR_FAILED", "Failed to load resource")
    page = window.page
    for message, refuse in REFUSALS.items():
        page.unroute("**/api/**")
        page.route("**/api/**", refuse)
        for name in PAGES:
            page.locator(f'#rail a[data-page="{name}"]').click()
            alert = page.locator("#place [role=alert]").first
            alert.wait_for()
            assert message in alert.inner_text(), name
            assert alert.get_by_role("button", name="Reload").is_visible(), name
            window.wait_until_idle()


def test_controls_of_a_page_without_its_data_do_no_harm(open_tiny_studio):
    """The first request of the page failed; what was typed or chosen then raised exceptions."""
    window = open_tiny_studio("/work")
    window.expected_errors = ("ERR_FAILED",)
    page = window.page
    page.route("**/api/**", lambda route: route.abort())
    page.locator('#rail a[data-page="glossary"]').click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("filter").fill("head")
    page.goto(f"{window.origin}/meaning")
    page.get_by_role("alert").first.wait_for()
    window.press("e")
    assert page.get_by_role("menuitem").all_inner_texts() == ["Nothing here yet"]
    window.press("Escape")
    page.unroute_all()
    page.get_by_role("tab", name="Texts on a map").click()
    page.locator("path.point").first.wait_for()
    assert page.get_by_role("alert").count() == 0, "what succeeds takes the message away"


def test_a_page_that_was_left_fills_no_menu(open_tiny_studio):
    """Its list of models comes when another page is open, whose menus are its own."""
    window = open_tiny_studio("/work")
    page, held = window.page, []
    page.route("**/api/models", lambda route: held.append(route))
    page.locator('#rail a[data-page="meaning"]').click()
    while not held:
        page.wait_for_timeout(20)
    page.locator('#rail a[data-page="glossary"]').click()
    page.get_by_label("filter").wait_for()
    held[0].continue_()
    window.wait_until_idle()
    page.locator("#place h1").click()
    window.press("e")
    assert page.get_by_role("menuitem").all_inner_texts() == ["Nothing here yet"]


ACTIONS = {
    "/work?s=3": lambda page: page.locator("#text").fill("two cats sat"),
    "/look?m=writer&t=the+pizza": lambda page: page.get_by_role("tab", name="Heads").click(),
    "/generate?m=writer&t=the+pizza": lambda page: page.get_by_role("button", name="Generate", exact=True).click(),
    "/experiments?x=why-root-dk": lambda page: page.get_by_role("button", name="Run why-root-dk").click(),
    "/train?kind=gpt": lambda page: page.get_by_role("button", name="Start").click(),
    "/models?m=writer&tab=prove": lambda page: page.get_by_role("button", name="Prove", exact=True).click(),
}


def test_an_action_after_the_network_is_gone_offers_to_reload(open_window):
    window = open_window()
    window.expected_errors = ("ERR_INTERNET_DISCONNECTED",)
    for path, act in ACTIONS.items():
        page = window.open(path)
        window.context.set_offline(True)
        act(page)
        alert = page.get_by_role("alert").first
        alert.get_by_text("The server does not respond.").wait_for()
        assert alert.get_by_role("button", name="Reload").is_visible(), path
        window.context.set_offline(False)


def test_a_server_that_was_stopped_or_restarted_offers_to_reload(browser, folders):
    """The token of the page is unknown to the new server: a reload gets another one."""

    def start(port=0):
        return running_server(build_app(ModelRegistry(folders[:1], weights="float32"), pages=True), port=port)

    def reload(page, message, drawn):
        page.get_by_role("alert").get_by_text(message).wait_for()
        page.get_by_role("button", name="Reload").click()
        page.wait_for_selector(drawn)
        assert page.get_by_role("alert").count() == 0

    with ExitStack() as running:
        with start() as port:
            window = running.enter_context(browser_windows(browser, port))("/look?m=writer&t=the+pizza")
        window.expected_errors = ("Failed to load resource",)
        window.press("g", "h")
        window.page.get_by_role("alert").wait_for()
        with start(port):
            reload(window.page, "The server does not respond.", ".flow .token")
        with start(port):
            window.press("g", "l")
            reload(window.page, "This page is older than the server.", ".next .chip")


def test_a_slow_server_leaves_no_page_blank(open_window):
    window = open_window()
    held = []
    window.page.route("**/api/**", lambda route: held.append(route))
    for name in PAGES:
        window.page.goto(f"{window.origin}/{name}", wait_until="commit")
        window.page.wait_for_selector(WITHOUT_DATA, state="attached")
        drawn = window.page.locator("#place").evaluate(
            "(place) => place.querySelector('.card:not([hidden]) > *, table, form, dl, .skeleton') !== null"
            " || getComputedStyle(place, '::after').height !== 'auto'"
        )
        assert drawn, f"{name} is blank"
    window.page.unroute_all(behavior="ignoreErrors")


def test_a_mistyped_address_is_a_page(open_window, client):
    assert client.get("/experimets", headers={"accept": "text/html"}).status_code == 404
    window = open_window()
    window.expected_errors = ("status of 404",)
    window.open("/experimets")
    assert "There is no page" in window.page.get_by_role("alert").first.inner_text()
    assert window.page.locator("#rail a", has_text="Experiments").is_visible()


def test_the_model_is_carried_to_pages_that_can_use_it(open_window):
    window = open_window("/look?m=writer&t=the+pizza")
    page = window.page
    page.locator("#rail a", has_text="Generate").click()
    window.wait_until_idle()
    assert "m=writer" in page.url
    assert page.get_by_label("Model").input_value() == "writer"
    for name in PAGES:  # those that cannot use it, too
        page.locator(f'#rail a[data-page="{name}"]').click()
        window.wait_until_idle()
        assert (window.state["m"], window.state["t"]) == ("writer", "the pizza"), name


def test_the_translator_in_use_is_on_the_right_beside_another(open_tiny_studio):
    window = open_tiny_studio("/models?m=then")
    page = window.page
    page.locator("#rail a", has_text="Translate").click()
    window.wait_until_idle()
    chosen = {side: page.get_by_label(side, exact=True).and_(page.locator("select")) for side in ("left", "right")}
    assert chosen["right"].input_value() == "then"
    assert chosen["left"].input_value() != "then"
    chosen["right"].select_option("now")
    window.wait_until_idle()
    page.locator("#rail a", has_text="Look").click()
    window.wait_until_idle()
    assert page.get_by_label("Model").input_value() == "now"


def test_copy_before_there_is_a_result_says_so_and_copies_nothing(open_window):
    """An experiment that was not chosen has no numbers: the clipboard keeps what it had, never "undefined"."""
    page = open_window("/experiments").page
    page.evaluate("navigator.clipboard.writeText('before')")
    page.keyboard.press("c")
    page.get_by_role("menuitem", name="Numbers as JSON").click()
    page.get_by_text("There is nothing to copy yet.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "before"
