"""Attention maps in a real browser without network: hover, keys, numbers, themes, widths."""

import re

import numpy as np
import pytest
from tests.quantised import unpack
from tests.render.conftest import looking

from peasy import render
from peasy.render.custom_elements import element_data
from peasy.render.palette import CIVIDIS
from peasy.views.document import Document, Links, Maps, Rows

pytestmark = pytest.mark.browser

WORDS = ("The", "·pizza", "·came", "·out", "⏎")


def softmax(scores):
    raised = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def heads(layers=3, across=4, words=WORDS):
    count = len(words)
    scores = np.random.default_rng(5).normal(size=(layers, across, count, count)) * 2
    seen = np.tril(np.ones((count, count), bool))
    weights = np.where(seen, softmax(np.where(seen, scores, -np.inf)), np.nan)
    names = tuple(map(str, range(layers))), tuple(map(str, range(across)))
    return Maps("Attention weights", weights, words, words, *names, selected=(min(1, layers - 1), min(2, across - 1)))


@pytest.fixture(scope="module")
def maps():
    return heads()


@pytest.fixture(scope="module")
def saved(maps, tmp_path_factory):
    alignment = Links(
        "Alignment", WORDS[:3], WORDS[2:], np.array([[0.9, 0.1, 0], [0.1, 0.8, 0.1], [0, 0.1, 0.9]]), ribbons=True
    )
    return render.save(Document("Heads", (maps, alignment)), tmp_path_factory.mktemp("maps") / "heads.html")


def shown_number(page):
    return float(re.search(r"(-?[\d.]+)$", page.locator("peasy-maps .read").inner_text().strip())[1])


def point_at(page, row, column):
    place = page.evaluate(
        """([row, column]) => {
            const heatMap = document.querySelector("peasy-maps").heatMap;
            const box = heatMap.canvas.getBoundingClientRect();
            const size = heatMap.cellSize;
            const [x, y] = [heatMap.left + size * (column + 0.5), heatMap.top + size * (row + 0.5)];
            return [box.left + x, box.top + y];
        }""",
        [row, column],
    )
    page.mouse.move(*place)


def test_numbers_match_within_the_stated_error(opened, saved, maps):
    page = opened(saved, "peasy-maps").page
    error = page.evaluate("document.querySelector('peasy-maps').numbers.error")
    assert error < 8e-6
    assert f"stored to within {error:.7f}" in page.locator("peasy-maps .frame").inner_text()
    read = page.evaluate(
        "(() => { const { numbers } = document.querySelector('peasy-maps');"
        " return Array.from(numbers.codes, (code, i) => code === numbers.last ? null : numbers.at(i)); })()"
    )
    read = np.array([np.nan if value is None else value for value in read]).reshape(maps.values.shape)
    assert np.array_equal(np.isnan(read), np.isnan(maps.values))
    assert np.nanmax(np.abs(read - maps.values)) <= error * 1.001
    for row, column in ((0, 0), (3, 1), (4, 4)):
        point_at(page, row, column)
        assert shown_number(page) == pytest.approx(maps.values[1, 2, row, column], abs=error + 5e-5)


def test_arrow_and_bracket_keys(opened, saved, maps):
    recorded = opened(saved, "peasy-maps")
    page = recorded.page
    page.locator("peasy-maps .large canvas").focus()
    point_at(page, 2, 1)
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert "query ·out → key ·came" in page.locator("peasy-maps .read").inner_text()
    page.keyboard.press("]")
    page.keyboard.press(".")
    assert "layer 2, head 3: query ·out → key ·came" in page.locator("peasy-maps .read").inner_text()
    assert shown_number(page) == pytest.approx(maps.values[2, 3, 3, 2], abs=1e-4)
    for key in ("[", "[", "[", ","):
        page.keyboard.press(key)
    assert "layer 0, head 2" in page.locator("peasy-maps .read").inner_text()
    recorded.assert_quiet()


def test_overview_has_one_tab_stop_and_arrow_keys(opened, saved):
    page = opened(saved, "peasy-maps").page
    assert page.locator("peasy-maps .overview button").count() == 12
    assert page.locator("peasy-maps .overview button[tabindex='0']").count() == 1
    page.locator("peasy-maps .overview button[tabindex='0']").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    chosen = page.locator("peasy-maps .overview button[aria-pressed='true']")
    assert chosen.get_attribute("aria-label") == "layer 0, head 1"
    page.locator("peasy-maps .overview button").nth(11).click()
    assert "layer 2, head 3" in page.locator("peasy-maps .read").inner_text()


def test_words_and_rows_are_linked(opened, saved):
    page = opened(saved, "peasy-maps").page
    page.locator("peasy-maps svg text[data-side='0']").nth(3).hover()
    assert "query ·out" in page.locator("peasy-maps .read").inner_text()
    assert "·out" in page.locator("peasy-maps .best p").inner_text()
    away = "[...document.querySelector('peasy-maps').shadowRoot.querySelectorAll('.line')]"
    assert page.evaluate(f"{away}.every((line) => (line.dataset.a === '3') !== line.classList.contains('away'))")
    point_at(page, 1, 0)
    assert page.evaluate(f"{away}.every((line) => (line.dataset.a === '1') !== line.classList.contains('away'))")


def test_largest_weights_are_listed(opened, saved, maps):
    page = opened(saved, "peasy-maps").page
    point_at(page, 4, 0)
    listed = page.locator("peasy-maps ol.top li bdi").all_inner_texts()
    order = np.argsort(-maps.values[1, 2, 4])
    assert listed == [WORDS[place] for place in order]


def test_ribbon_keys(opened, saved):
    page = opened(saved, "peasy-links").page
    word = page.locator("peasy-links svg text[data-side]")
    word.nth(0).focus()
    assert "The → ·came 0.9000" in page.locator("peasy-links .read").inner_text()
    page.keyboard.press("ArrowRight")
    assert "·pizza → ·out 0.8000" in page.locator("peasy-links .read").inner_text()
    page.keyboard.press("ArrowDown")
    assert "·out ← ·pizza 0.8000" in page.locator("peasy-links .read").inner_text()


def test_page_without_scripts(opened, saved, maps):
    recorded = opened(saved, java_script_enabled=False)
    page = recorded.page
    assert page.locator("peasy-maps svg image").count() == 12, "every map is there as a still picture"
    assert page.locator("peasy-maps svg image").first.is_visible()
    page.locator("details summary").first.click()
    assert page.locator("td", has_text=f"{maps.values[1, 2, 3, 1]:.4f}").first.is_visible()
    recorded.assert_quiet()


def test_table_stays_with_the_interactive_figure(opened, saved, maps):
    page = opened(saved, "peasy-maps").page
    page.locator("details summary").first.click()
    assert page.locator("td", has_text=f"{maps.values[1, 2, 3, 1]:.4f}").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1100, 3840])
def test_widths_and_themes(opened, tmp_path, saved, scheme, width):
    path = render.save(Document("All", looking()), tmp_path / "all.html")
    for file in (saved, path):
        recorded = opened(file, "peasy-maps", color_scheme=scheme, viewport={"width": width, "height": 900})
        page = recorded.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = """[...document.querySelectorAll("peasy-maps")].map((e) => e.shadowRoot.querySelector(".large"))
            .filter((box) => box.scrollWidth > box.clientWidth + 1).length"""
        assert page.evaluate(cut) == 0, "the large map fits its room"
        recorded.assert_quiet()


def test_the_theme_button_repaints(opened, saved):
    page = opened(saved, "peasy-maps", color_scheme="light").page
    ink = "document.querySelector('peasy-maps').heatMap.inkColour"
    before = page.evaluate(ink)
    for _ in range(2):
        page.locator("#theme").click()
    page.wait_for_function(f"() => {ink} !== '{before}'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(opened, saved, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(saved, "peasy-maps", color_scheme=scheme, bypass_csp=True).page
    violations = Axe().run(page).response["violations"]
    serious = [violation for violation in violations if violation["impact"] in {"serious", "critical"}]
    assert not serious, [(violation["id"], violation["nodes"][0]["html"]) for violation in serious]


def test_long_text_has_tiles_and_a_text_window(opened, tmp_path):
    count, tile = 640, 16
    words = tuple(f"·w{place}" for place in range(count))
    values = np.random.default_rng(1).random((1, 2, 40, 40))
    exact = np.random.default_rng(2).dirichlet(np.ones(count), size=(1, 2, 2))
    maps = Maps(
        "Long",
        values,
        words,
        words,
        ("0",),
        ("0", "1"),
        tile_size=tile,
        reduction="mean",
        exact_rows=Rows((100, 500), exact),
    )
    recorded = opened(render.save(Document("Long", (maps,)), tmp_path / "long.html"), "peasy-maps")
    page = recorded.page
    assert "Each cell is the mean of 16 by 16 tokens." in page.locator("peasy-maps .frame").inner_text()
    assert "·w500 (position 500)" in page.locator("peasy-maps .best p").inner_text(), "the last row that was kept"
    best = int(np.argmax(exact[0, 0, 1]))
    assert page.locator("peasy-maps ol.top li bdi").first.inner_text() == f"·w{best}"
    point_at(page, 2, 7)
    assert "No row of this tile is stored exactly. Stored: 100, 500." in page.locator("peasy-maps .best p").inner_text()
    assert "query 32–47 ·w32… → key 112–127 ·w112…" in page.locator("peasy-maps .read").inner_text()
    assert page.locator("peasy-maps .text span").count() == 240
    recorded.assert_quiet()


def test_page_unpacks_what_python_packs(opened, saved, maps):
    data = element_data(maps, 4)
    assert np.nanmax(np.abs(unpack(data["numbers"]) - maps.values)) <= data["numbers"]["error"] * 1.001
    page = opened(saved, "peasy-maps").page
    page.locator("peasy-maps label", has_text="colours").locator("select").select_option(index=2)
    assert page.evaluate("document.querySelector('peasy-maps').mapAt(0, 0).range.high") == pytest.approx(
        np.nanmax(maps.values), abs=1e-4
    )


def test_page_and_file_use_the_same_colours(opened, saved):
    from peasy.render import palette

    page = opened(saved, "peasy-maps").page
    text = saved.read_text()
    for stops in (palette.CIVIDIS, palette.BLUE_ORANGE):
        assert " ".join(stop[1:] for stop in stops) in text
    drawn = page.evaluate(
        "[...document.querySelector('peasy-maps').heatMap.cellCanvas.getContext('2d').getImageData(0, 0, 1, 1).data]"
    )
    assert "#" + "".join(f"{part:02x}" for part in drawn[:3]) == palette.CIVIDIS[-1], (
        "the first token looks at itself alone"
    )


def test_the_list_of_a_long_map_has_the_largest_weights(opened, tmp_path):
    """Its numbers have one byte each: ranked by them, keys far from the top would be listed."""
    words = tuple(f"w{number}" for number in range(300))
    maps = heads(4, 4, words)
    page = opened(render.save(Document("Long", (maps,)), tmp_path / "long.html"), "peasy-maps").page
    row = maps.values[1, 2, -1]
    best = np.argsort(-row, kind="stable")[:8]
    assert page.locator("peasy-maps .top li bdi").all_inner_texts() == [words[key] for key in best]
    shown = [float(text) for text in page.locator("peasy-maps .top li span").all_inner_texts()]
    np.testing.assert_allclose(shown, row[best], atol=5.1e-5)


def test_a_long_map_is_not_uniformly_dark(opened, tmp_path):
    """Row 0 is always 1: on a scale that ends there, 300 keys with a 300th each were all black."""
    words = tuple(f"w{number}" for number in range(300))
    maps = heads(1, 1, words)
    page = opened(render.save(Document("Long", (maps,)), tmp_path / "long.html"), "peasy-maps").page
    drawn = page.evaluate(
        """() => {
            const { cellCanvas } = document.querySelector("peasy-maps").heatMap;
            return [...cellCanvas.getContext("2d").getImageData(0, 0, cellCanvas.width, cellCanvas.height).data];
        }"""
    )
    # by hand: on a scale from 0 to 1 the contrast is that of the colours of these weights
    stops = np.rint(maps.values[0, 0, 200:, :200] * (len(CIVIDIS) - 1)).astype(int)
    on_unit_scale = np.array([from_hex(stop) for stop in CIVIDIS])[stops]
    assert contrast(np.reshape(drawn, (300, 300, 4))[200:, :200, :3]) > 1.5 > contrast(on_unit_scale)


def from_hex(colour):
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def contrast(colours):
    """Return the contrast of WCAG between bright and dark cells (95th and 10th percentile of the luminance)."""
    parts = np.asarray(colours) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    dark, bright = np.quantile(linear @ [0.2126, 0.7152, 0.0722], [0.1, 0.95])
    return (bright + 0.05) / (dark + 0.05)
