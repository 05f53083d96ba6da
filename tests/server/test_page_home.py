"""Home page in a real browser: the picture of a whole model, its story, and the zoom to one number."""

import re
from itertools import pairwise

import numpy as np
import pytest
from tests.server.browser_window import browser_windows, serious_violations
from tests.server.tiny_server import running_server

from peasy import render
from peasy.commands.forward_pass import forward_pass
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def built_in_studio():
    names = ["stories", "locales-fr", "sentences", "repeats", "locales-fr-2015"]
    registry = ModelRegistry(names, weights="float32")
    with running_server(build_app(registry, pages=True)) as port:
        yield port


@pytest.fixture
def home(browser, built_in_studio):
    with browser_windows(browser, built_in_studio) as open_one:
        yield open_one


def probabilities(page):
    labels = page.locator(".answer li").evaluate_all("bars => bars.map((bar) => bar.getAttribute('aria-label'))")
    return {match[1]: float(match[2]) for label in labels if (match := re.match(r"(.*): probability ([\d.]+)", label))}


def test_first_visit_shows_the_head_that_matters(home):
    window = home("/")
    page = window.page
    page.locator(".flow .head.open").wait_for()
    caption = page.locator(".story").inner_text()
    assert re.fullmatch(
        r"Head 0 of layer 1 looks from it back to pizza \(weight 1\.00\)\. Without this head, .* falls from .*", caption
    )
    assert page.locator(".trail").inner_text().endswith("it › ·pizza")
    weight = page.locator(".zoom-row .key[aria-pressed=true]").get_attribute("aria-label")
    assert weight == "·pizza: weight 1.0000"
    requests = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name.split('/').at(-1))")
    assert requests.count("forward-pass") == 1, "picture, story and arithmetic come together"
    assert "experiments" not in requests, "nothing is requested that is not shown"
    page.get_by_role("button", name="Play", exact=True).first.click()
    page.get_by_role("button", name="Stop", exact=True).wait_for()
    window.screenshot("home-1366")


def test_copying_is_the_work_of_one_induction_head(home):
    page = home("/", width=1920, height=1080).page
    assert page.locator(".flow-frame").evaluate("(one) => one.scrollWidth <= one.clientWidth"), "the picture fits"
    page.get_by_role("button", name="Copy what came before").click()
    page.get_by_text("looks from y back to u").wait_for()
    before, after = map(
        float, re.search(r"falls from (.*) to ([\d.]+)\.", page.locator(".story").inner_text()).groups()
    )
    assert before > 0.9
    assert after < 0.1
    page.get_by_role("button", name=re.compile("weight")).first.click()
    page.locator(".zoom").wait_for()
    page.locator(".zoom").evaluate("""async (zoom) => {
        while (zoom.getBoundingClientRect().top > innerHeight / 2) await new Promise(requestAnimationFrame);
    }""")


def test_arithmetic_of_a_cell_ends_in_its_weight(home):
    window = home("/home?m=stories&l=1&h=2&q=8&k=1")
    page = window.page
    page.locator(".zoom-steps").wait_for()
    for _ in range(4):
        window.press("ArrowRight")
    steps = page.locator(".zoom-steps").inner_text()
    shown = re.search(r"weight = [\d.]+ / [\d.]+ = ([\d.]+)", steps)
    listed = page.locator(".zoom-row .key[aria-pressed=true]").get_attribute("aria-label")
    assert float(shown[1]) == pytest.approx(float(listed.split()[-1]), abs=2e-4)
    assert "sum over all keys" in steps
    assert "s=4" in page.url


def test_the_scale_is_explained_in_a_cell_where_it_matters(home):
    page = home("/").page
    page.locator(".zoom-steps").get_by_role("button", name="scale", exact=True).click()
    current = page.locator(".zoom-steps [aria-current]")
    assert "the weights are the same without the scale" in current.inner_text()
    current.get_by_role("button", name="See where it matters").click()
    sentence = current.get_by_text("Without the scale").inner_text()
    without, weight = map(float, re.search(r"would be ([\d.]+) instead of ([\d.]+)\.", sentence).groups())
    assert without - weight > 0.2
    assert page.locator(".zoom-row .key[aria-pressed=true]").get_attribute("aria-label").endswith(f"{weight:.4f}")


def test_a_training_step_shows_the_gradient_of_a_score(home):
    window = home("/")
    page = window.page
    page.get_by_role("button", name="Gradients of a training step").click()
    current = page.locator(".zoom-steps [aria-current]")
    current.get_by_text("A training step on this sentence").wait_for()
    assert "hardly changes with this score" in current.inner_text(), "a weight of 1 learns nothing"
    current.get_by_role("button", name="See where it matters").click()
    state = window.state
    place = {"text": "The pizza came out of the oven and it", "story": False, "ablations": False, "gradients": True}
    found = window.request("forward-pass", model="stories", head_numbers=["decoder.1.attention.0"], **place)
    steps = {name: np.array(rows, dtype=float) for name, rows in found["head_numbers"][0]["steps"].items()}
    row, key = int(state["q"]), int(state["k"])
    of_weights = steps["value"] @ steps["gradient"][row]
    jacobian = np.diag(steps["weights"][row]) - np.outer(steps["weights"][row], steps["weights"][row])
    expected = (jacobian @ of_weights)[key]
    shown = current.locator(".zoom-softmax .chosen ~ .number").nth(1).inner_text().replace("−", "-")
    assert abs(expected) > 0.1
    assert float(shown) == pytest.approx(expected, abs=2e-4)
    direction = "rises" if expected < 0 else "falls"
    assert f"The loss falls if this score {direction}." in current.inner_text()
    assert f"loss {found['loss']:.4f}" in current.inner_text()
    page.get_by_role("button", name="Gradients of a training step").click()
    window.wait_until_idle()
    assert page.locator(".zoom-steps li").count() == 5
    window.press(".", ",")  # another head, whose numbers have no loss, and back
    page.get_by_role("button", name="Gradients of a training step").click()
    current.get_by_text(f"loss {found['loss']:.4f}").wait_for()


def test_a_new_sentence_begins_without_what_belonged_to_the_old_one(home):
    """The temperature, the KV cache and the training step are those of one sentence."""
    window = home("/home?m=stories&t=The+pizza+came+out+of+the+oven+and+it")
    page = window.page
    page.get_by_role("button", name="One more token").click()
    page.locator(".flow .token.cached").first.wait_for()
    window.wait_until_idle()
    page.get_by_role("slider", name="temperature").fill("0.3")
    page.locator(".answer .was").first.wait_for()
    page.get_by_role("button", name="Gradients of a training step").click()
    page.locator(".zoom-steps [aria-current]").get_by_text("A training step on this sentence").wait_for()
    page.locator('.token[data-token="decoder:2"]').click()
    page.locator(".zoom-row .key", has_text="<bos>").click()
    assert {"q", "k"} <= window.state.keys()
    page.locator("#text").fill("They wanted the pizza")
    page.locator("#text").press("Enter")
    window.wait_until_idle()
    expected = window.request("forward-pass", model="stories", text="They wanted the pizza", story=False)["next_tokens"]
    found = {one["piece"]: round(one["probability"], 2) for one in expected}
    assert probabilities(page) == pytest.approx(found, abs=0.0101)
    assert page.get_by_role("slider", name="temperature").input_value() == "1"
    assert page.get_by_role("button", name="Gradients of a training step").get_attribute("aria-pressed") == "false"
    assert window.state.keys().isdisjoint({"g", "s", "q", "k"})
    assert page.locator(".zoom-row h2 bdi").inner_text() == "·pizza", "the last word, not the row of the old sentence"
    for gone in (".answer .was", ".flow .token.cached", "text=come from the KV cache"):
        assert page.locator(gone).count() == 0, gone


def test_a_link_names_a_cell_and_the_way_back_leads_to_it(home):
    window = home("/home?m=stories&t=The+pizza+came+out&q=2&k=1")
    page = window.page
    assert page.locator(".trail").inner_text().endswith("·pizza › The")
    page.get_by_role("button", name="Copy what came before").click()
    page.get_by_text("looks from y back to u").wait_for()
    page.go_back()
    window.wait_until_idle()
    assert page.locator(".trail").inner_text().endswith("·pizza › The")


def test_the_note_of_a_search_stays_until_its_own_end(home):
    """The head that matters is searched for twice: the end of the first search says nothing about the second."""
    long_text = "The pizza came out of the oven and it " * 3
    window = home()
    page = window.page
    held = []

    def answer(route):
        (held.append if route.request.post_data_json["story"] else type(route).continue_)(route)

    page.route("**/api/forward-pass", answer)
    page.goto(f"{window.origin}/home?m=stories&t={long_text}tasted")
    story = page.locator(".story", has_text="Looking for the head that matters most")
    story.wait_for()
    page.locator("#text").fill(f"{long_text}smelled")
    page.locator(".flow .token", has_text="smelled").wait_for()
    while len(held) < 2:
        page.wait_for_timeout(20)
    story.wait_for()
    held[0].continue_()
    page.wait_for_function("() => document.documentElement.dataset.waiting === '1'")
    page.wait_for_timeout(100)
    assert story.count() == 1, "the second search goes on"
    held[1].continue_()
    window.wait_until_idle()
    assert story.count() == 0


@pytest.mark.parametrize(("path", "width"), [("/?ch=1", 1440), ("/", 1366), ("/", 1920)])
def test_labels_below_the_layers_do_not_overlap_in_lecture_mode(home, path, width):
    window = home(path, width=width)
    window.press("f")
    page = window.page
    assert page.evaluate("document.body.className") == "studio lecture"
    assert not any(page.locator(part).is_visible() for part in ("#rail", "#bar", ".flow-rail", ".presets"))
    boxes = page.locator(".flow .small, .flow .lens text").evaluate_all(
        "(texts) => texts.map((text) => text.getBoundingClientRect().toJSON())"
    )
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            beside = one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1
            assert beside or one["bottom"] <= other["top"] + 4 or other["bottom"] <= one["top"] + 4, (one, other)
    sizes = page.locator(".flow text").evaluate_all("(all) => all.map((one) => getComputedStyle(one).fontSize)")
    assert set(sizes) == {"20px"}
    step = page.locator(".zoom-steps [aria-current] button").first
    window.press("PageDown", "PageDown", "PageUp")
    assert step.inner_text() == "scale", "the keys of a presenter's remote control"
    assert page.locator(".zoom").evaluate("(zoom) => zoom.getBoundingClientRect().top < innerHeight / 2")
    window.press("Escape")
    assert page.evaluate("document.body.className") == "studio"
    window.press("PageDown")
    assert step.inner_text() == "scale", "elsewhere they scroll"


SEEN = """() => [
    document.querySelector(".flow .head.open").dataset.head,
    document.querySelector(".zoom-steps [aria-current] button").textContent,
    document.querySelector(".zoom-row [aria-pressed=true]").textContent,
    document.querySelectorAll(".flow .cached").length,
    document.querySelector(".zoom").getBoundingClientRect().top < innerHeight / 2,
]"""


def test_every_chapter_moves_the_picture_asks_and_links_to_the_glossary(home):
    window = home("/", width=1366, height=768, reduced_motion="reduce")
    page = window.page
    page.get_by_role("button", name="Textbook").click()
    seen, terms = [], set()
    for number in range(1, 11):
        window.wait_until_idle()
        panel = page.get_by_role("complementary", name="Textbook")
        chapter = panel.get_by_role("combobox", name="Chapter").locator("option:checked").inner_text()
        assert chapter == f"{number} of 10: {panel.locator('h2').inner_text()}"
        assert window.state["ch"] == str(number)
        assert len(panel.locator("p").first.inner_text().split()) <= 60
        assert panel.get_by_role("link", name="Is that so? Measure it.").count() == 1
        panel.locator(".row button").first.click()
        assert re.match("✓ Right|Not quite", panel.get_by_role("status").inner_text())
        terms |= set(panel.locator('a[href^="glossary"]').evaluate_all("(all) => all.map((one) => one.href)"))
        seen.append(page.evaluate(SEEN))
        assert page.locator(".textbook h2").evaluate("(one) => one.getBoundingClientRect().top >= 0"), (
            "it stays in view"
        )
        if number < 10:
            page.get_by_role("button", name="Next ▶").click()
    moved = [before != after for before, after in pairwise(seen)]
    assert all(moved), seen
    assert len(terms) >= 8
    for link in sorted(terms):
        window.open(link.removeprefix(window.origin))
        assert page.locator("dt").count() > 0, link


def test_chapters_can_be_chosen_and_a_late_answer_does_not_move_the_next_one(home):
    window = home("/?ch=8", width=1366, height=768, reduced_motion="reduce")
    page = window.page
    held = []
    page.route("**/api/forward-pass", lambda route: held.append(route))  # the gradients of chapter 9
    page.get_by_role("button", name="Next ▶").click()
    page.wait_for_function("() => document.documentElement.dataset.waiting !== '0'")
    page.get_by_role("combobox", name="Chapter").select_option("10 of 10: The cache")
    page.locator(".flow .token.cached").first.wait_for()
    for request in held:
        request.continue_()
    window.wait_until_idle()
    assert page.locator(".zoom-steps li").count() == 5, "no gradient in the chapter on the cache"
    assert page.get_by_role("heading", name="One sentence through a Transformer").evaluate(IN_VIEW)


def test_next_step_stays_below_the_pointer(home):
    page = home("/", width=1366, height=768, reduced_motion="reduce").page
    page.get_by_role("button", name="weight 1.00", exact=True).click()
    box = page.get_by_role("button", name="Next step").bounding_box()
    for step in ("scale", "mask", "softmax", "· V"):
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert page.locator(".zoom-steps [aria-current] button").first.inner_text() == step


def test_switching_a_head_off_changes_the_bars_and_back(home):
    window = home("/home?m=stories&t=The+pizza+came+out+of+the+oven+and+it")
    page = window.page
    page.locator(".flow .head.open").wait_for()
    before = probabilities(page)
    window.press("o")
    page.locator(".flow .head.off").wait_for()
    window.wait_until_idle()
    assert page.locator(".flow .head.off text").text_content() == "off", "a choice, not a mistake"
    after = probabilities(page)
    assert before["·tasted"] - after["·tasted"] > 0.05
    assert page.locator(".answer .was").count() > 0, "the bars before stay visible"
    assert re.search(r"Without layer \d, head \d: .* (falls|rises) from", page.locator(".story").inner_text())
    page.locator(".zoom-steps").get_by_role("button", name="· V").click()
    page.get_by_text("This head is switched off: it hands on zeros").wait_for()
    window.press("o")
    window.wait_until_idle()
    assert probabilities(page) == before


IN_VIEW = (
    "(part) => { const { top, bottom } = part.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; }"
)


def test_on_a_phone_the_switch_its_effect_and_the_textbook_are_in_view(home):
    window = home("/", width=390, height=844)
    page = window.page
    answer = page.get_by_role("list", name="Next token")
    assert "→" not in answer.inner_text()
    page.get_by_role("button", name="Switch this head off").click()
    window.wait_until_idle()
    now = window.request(
        "forward-pass", model="stories", text="The pizza came out of the oven and it", ablations=False,
        edit=[{"kind": "zero", "layer": 1, "head": 0}],
    )["next_tokens"][0]  # fmt: skip
    assert re.fullmatch(rf"{now['piece']}\s+0\.46 → {now['probability']:.2f}", answer.locator("li").first.inner_text())
    for part in (answer, page.get_by_role("button", name="Switch this head on"), page.locator(".story")):
        assert part.evaluate(IN_VIEW), "what is switched and what changes are seen together"
    page.get_by_role("button", name="Textbook").click()
    assert page.get_by_role("heading", name="A summary of the context").evaluate(IN_VIEW)
    page.get_by_role("combobox", name="Chapter").select_option("4 of 10: Scale")
    page.locator(".scores").wait_for()
    page.wait_for_function("""() => {
        const boxOf = (name) => document.querySelector(name).getBoundingClientRect();
        const [part, cover] = [boxOf(".scores"), boxOf(".textbook")];
        return part.top >= 0 && part.bottom <= cover.top;
    }""")  # what the chapter is about is above it
    page.get_by_role("combobox", name="Chapter").select_option("1 of 10: A summary of the context")
    layers = page.evaluate("""() => [".textbook", ".flow-scroll canvas"].map((name) => {
        const part = document.querySelector(name);
        return Number(getComputedStyle(name === ".textbook" ? part.parentElement : part).zIndex);
    })""")
    assert layers[0] > layers[1], "no maps on top of its text"


def test_on_a_phone_each_step_of_the_arithmetic_is_in_view(home):
    page = home("/", width=390, height=844, reduced_motion="reduce").page
    page.get_by_role("button", name="weight 1.00", exact=True).click()
    for picture in (".products", ".scores", ".zoom-mask", ".zoom-softmax"):
        assert page.locator(picture).evaluate(IN_VIEW), picture
        parts = page.locator(f"{picture} text, {picture} .track").evaluate_all(
            "(all) => all.map((one) => [one.tagName, one.getBoundingClientRect().toJSON()])"
        )
        for name, box in parts:
            assert 0 <= box["x"] <= box["right"] <= 390, (picture, name, box)
            assert box["height"] > 12 if name == "text" else box["width"] > 24, (picture, name, box)
        page.get_by_role("button", name="Next step").click()


def test_a_weight_stays_on_one_line_with_its_parentheses(home):
    page = home("/", width=390, height=844).page
    weight = page.get_by_role("button", name="weight 1.00", exact=True)
    lines = """(weight) => {
        const signs = [weight.previousSibling, weight.nextSibling].map((text, after) => {
            const range = document.createRange();
            const at = after ? 0 : text.length - 1;
            range.setStart(text, at);
            range.setEnd(text, at + 1);
            return range.getBoundingClientRect();
        });
        const { top, bottom } = weight.getBoundingClientRect();
        return signs.every((sign) => sign.top < bottom && sign.bottom > top);
    }"""
    found = []
    for broken in (False, True):
        if broken:
            weight.evaluate("(weight) => (weight.parentElement.style.whiteSpace = 'normal')")
        for width in range(320, 440, 8):  # at some of them the line ends here, with any font
            page.set_viewport_size({"width": width, "height": 844})
            found.append((broken, weight.evaluate(lines)))
    assert (False, False) not in found
    assert (True, False) in found, "a broken line would be found"


def test_single_bytes_are_explained_and_a_chapter_links_to_its_experiment(home):
    window = home("/home?m=stories&t=%D0%9F%D0%B8%D1%86%D1%86%D0%B0&ch=1")
    page = window.page
    page.get_by_text("10 tokens are single bytes, such as <D0>").wait_for()
    page.get_by_role("link", name="Is that so? Measure it.").click()
    window.wait_until_idle()
    assert window.state["x"] == "first-word"
    window.open("/generate?m=stories&t=%D0%9F%D0%B8&at=1")
    page.get_by_text("4 tokens are single bytes, such as <D0>").wait_for()


def test_a_head_of_a_translator_is_switched_off_where_its_story_is(home, browser, tmp_path):
    """The next tokens, the logit lens and the temperature are those after the word that the story is about."""
    window = home("/home?m=locales-fr&t=3+days+ago")
    page = window.page
    story, answer = page.locator(".story"), page.get_by_role("list", name="next token after 3")
    before, after = re.search(r"falls from (.*) to ([\d.]+)\.", story.inner_text()).groups()
    assert probabilities(page)["·jours"] == float(before)
    assert f"would say: ·jours {before}" in page.locator(".flow .lens text").last.text_content()
    page.get_by_role("button", name="Switch this head off").click()
    page.locator(".flow .head.off").wait_for()
    window.wait_until_idle()
    told = f"Without layer 1, cross-attention head 1: jours falls from {before} to {after}"
    assert story.inner_text().startswith(told)
    assert probabilities(page)["·jours"] == float(after)
    assert window.state["off"] == "1.1x"
    page.reload()
    answer.wait_for()
    window.wait_until_idle()
    assert probabilities(page)["·jours"] == float(after), "a link shows the same"
    page.get_by_role("slider", name="temperature").fill("0.5")
    window.wait_until_idle()
    colder = probabilities(page)
    assert next(iter(colder)) == "·jours"
    assert colder["·jours"] > float(after)
    page.get_by_role("button", name="Switch this head on").click()
    window.wait_until_idle()
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as one HTML file").click()
    download.value.save_as(tmp_path / "shared.html")
    saved = browser.new_context(offline=True).new_page()
    saved.goto((tmp_path / "shared.html").as_uri())
    saved.get_by_role("button", name="Switch this head off").click()
    saved.get_by_text(f"jours falls from {before} to {after}").wait_for()
    note = saved.get_by_text("With an earlier head off, this head has other numbers")
    for opened, is_earlier in (("attention.0", False), ("cross_attention.1", True)):
        saved.locator(f'[data-head="decoder.1.{opened}"]').click()
        (note if is_earlier else saved.locator(".zoom-steps li").first).wait_for()
        assert note.count() == is_earlier, "cross-attention comes after self-attention"
        if not is_earlier:
            saved.get_by_role("button", name="Switch this head off").click()
            saved.get_by_text("Without layer 1, head 0: ").wait_for()
    saved.context.close()


def test_the_next_tokens_are_in_view_beside_a_picture_that_is_too_wide(home):
    page = home("/home?m=locales-fr&t=3+days+ago", width=900, height=900).page
    frame = page.locator(".flow-frame")
    assert frame.evaluate("(one) => one.scrollWidth > one.clientWidth"), "the picture is scrolled"
    ends = "(one) => [one.getBoundingClientRect().left, one.getBoundingClientRect().right]"
    (left, right), (first, last) = frame.evaluate(ends), page.locator(".answer").evaluate(ends)
    assert left < first < last <= right
    frame.evaluate("(one) => (one.scrollLeft = one.scrollWidth)")
    assert page.locator(".answer").evaluate(ends)[1] <= right


def test_the_ribbons_of_a_long_text_are_those_of_the_chosen_token(home):
    """The maps of a long text are pooled: each of their rows stands for several tokens."""
    text = "The pizza came out of the oven and it tasted good. " * 7
    window = home(f"/home?m=stories&t={text.strip()}&l=1&h=0&q=75")
    page = window.page
    fields = {"text": text.strip(), "story": False, "ablations": False, "head_numbers": ["decoder.1.attention.0"]}
    found = window.request("forward-pass", model="stories", **fields)
    assert found["stacks"][0]["layers"][1]["attentions"][0]["tile"] > 1
    steps = found["head_numbers"][0]["steps"]
    for row in (75, 76):
        page.locator(f'.token[data-token="decoder:{row}"]').click()
        ribbons = page.locator(".flow .ribbon.lit.of-open")
        keys = ribbons.evaluate_all("(all) => all.map((one) => Number(one.dataset.key.split(':')[1]))")
        expected = [key for key, weight in enumerate(steps["weights"][row]) if weight >= 0.08]
        assert sorted(keys) == expected != []


def test_a_space_is_named_in_the_sentence_and_the_legend_says_what_is_there(home):
    window = home("/home?m=locales-fr-2015&t=3+days+ago")
    page = window.page
    assert page.locator(".story").inner_text().startswith("Writing 3 after ·, head 0 of layer 0 looks at 3")
    assert "would say" in page.locator(".flow-legend").inner_text()
    window.open("/home?m=sentences&t=The+food+was+great")
    assert not re.search("would say|dashed", page.locator(".flow-legend").inner_text())


def test_heads_that_cannot_be_switched_off_are_not_offered(home):
    window = home("/home?m=sentences&t=The+food+was+great")
    page = window.page
    page.get_by_text("The mean of all rows is the vector").wait_for()
    page.locator('[data-head$=".attention.1"]').first.click()
    window.wait_until_idle()
    assert not re.search("switch (it|this)", page.locator(".home-main").inner_text(), re.IGNORECASE)
    assert page.locator(".lead").inner_text().startswith("An encoder turns a sentence into one vector.")


def test_hovering_a_token_lights_its_row_everywhere(home):
    window = home("/home?m=stories")
    page = window.page
    page.locator('.token[data-token="decoder:1"]').hover()
    lit = page.locator(".flow .lit")
    assert set(lit.evaluate_all("all => all.map((one) => one.dataset.token ?? one.dataset.query)")) == {"decoder:1"}
    assert page.locator(".flow .stream.lit").count() == 1


@pytest.mark.parametrize("width", [1100, 1366, 390])
def test_the_picture_and_the_switch_stay_where_they_are(home, width):
    """A click on a token or on the switch changes the caption: what is below the pointer must not become another."""
    window = home("/", width=width, height=900)
    page = window.page
    place = (
        "(part) => Math.round(part.getBoundingClientRect().top + document.querySelector('#place').scrollTop + scrollY)"
    )
    tops = set()
    for row in (9, 4, 0, 6):
        page.locator(f'.token[data-token="decoder:{row}"]').click()
        tops.add(page.locator(".flow-frame").evaluate(place))
    page.locator(".story-row").evaluate("(row) => row.scrollIntoView({ block: 'center' })")
    box = page.get_by_role("button", name="Switch this head off").bounding_box()
    for count in (1, 0):
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        window.wait_until_idle()
        assert page.locator(".flow .head.off").count() == count, "a second click at the same place takes it back"
        tops.add(page.locator(".flow-frame").evaluate(place))
    assert len(tops) == 1, tops


def test_the_way_back_to_the_picture_leads_to_the_cell_that_was_left(home):
    page = home("/").page
    page.locator(".zoom-steps").get_by_role("button", name="scale", exact=True).click()
    page.get_by_role("button", name="See where it matters").click()
    assert "·out › The" in page.locator(".trail").inner_text()
    page.get_by_role("button", name="↑ Picture").click()
    assert page.locator(".story").inner_text().startswith("Head 0 of layer 1 looks from it back to pizza")
    assert page.locator(".trail").inner_text().endswith("·it › ·pizza")


def test_the_row_adds_up_and_its_numbers_come_with_their_step(home):
    page = home("/home?m=stories&l=0&h=0&q=9").page
    steps = page.locator(".zoom-steps")
    steps.get_by_role("button", name="softmax", exact=True).click()
    more, power, weight = re.fullmatch(
        r"(\d+) more, together: e\^\(.*\) ([\d.]+), weight ([\d.]+)", page.locator(".zoom-softmax .quiet").inner_text()
    ).groups()
    rows = page.locator(".zoom-softmax .number").all_inner_texts()
    assert int(more) == 10 - len(rows) // 3
    assert sum(map(float, rows[2::3])) + float(weight) == pytest.approx(1, abs=5e-4)
    assert float(power) > 0
    page.get_by_role("slider", name="Step of the arithmetic").fill("84")  # halfway through the softmax
    halfway = page.locator(".zoom-softmax .number").all_inner_texts()
    assert halfway[::3] == rows[::3], "the scores are known"
    assert set(halfway[1::3] + halfway[2::3]) == {""}, "no final number beside a bar that still grows"
    listed = "() => getComputedStyle(document.querySelector('.zoom-row .number')).visibility"
    steps.get_by_role("button", name="q · k", exact=True).click()
    assert page.evaluate(listed) == "visible"
    shown = page.evaluate(f"""() => {{
        const [button] = [...document.querySelectorAll(".zoom .main")].filter((one) => one.textContent === "Play");
        button.click();
        const early = ({listed})();
        button.click();
        return [early, ({listed})()];
    }}""")
    assert shown == ["hidden", "visible"], "while it plays, the weights come with the softmax"


def test_the_arithmetic_says_where_q_k_and_the_mask_come_from_and_names_the_dots(home):
    page = home("/").page
    current = page.locator(".zoom-steps [aria-current]")
    origin = current.locator("p", has_text="W_q")
    assert origin.inner_text().startswith("query q comes from W_q × vector of ·it, key k from W_k × vector of ·pizza")
    assert origin.get_by_role("link", name="query").get_attribute("href") == "glossary?term=query"
    page.locator('.token[data-token="decoder:4"]').click()
    assert "vector of ·out" in origin.inner_text()
    page.locator('.token[data-token="decoder:9"]').click()
    page.locator(".zoom-steps").get_by_role("button", name="scale", exact=True).click()
    assert "Longer vectors add up more products to larger scores" in current.inner_text()
    names = page.locator(".scores text").all_text_contents()
    assert any(name.startswith("·pizza ") for name in names)
    assert len(names) > 3 + 1, "other dots are named, too, where there is room"
    boxes = page.locator(".scores text").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().toJSON())")
    for number, one in enumerate(boxes[3:]):
        assert all(one["right"] <= two["left"] or two["right"] <= one["left"] for two in boxes[3:][:number])
    page.locator(".zoom-steps").get_by_role("button", name="mask", exact=True).click()
    assert "M is added: minus infinity for keys that a token must not see" in current.inner_text()


def test_a_head_that_is_off_has_no_weights_and_what_it_changed_is_marked(home):
    window = home("/")
    page = window.page
    assert page.locator(".flow .weight.lit").count() == 1
    assert page.locator(".flow .lens.changed").count() == 0
    before = page.locator(".flow .lens title").all_text_contents()
    window.press("o")
    page.locator(".flow .head.off").wait_for()
    window.wait_until_idle()
    assert page.locator(".flow .weight").count() == 0
    after = page.locator(".flow .lens title").all_text_contents()
    assert page.locator(".flow .lens").evaluate_all("(all) => all.map((one) => one.matches('.changed'))") == [
        one != other for one, other in zip(before, after, strict=True)
    ] == [False, True, True]  # fmt: skip
    assert "bold: changed" in page.locator(".flow-legend").inner_text()


def test_split_words_headings_and_translations_are_named(home):
    window = home("/home?m=stories&t=The+astronaut+tasted+soup")
    page = window.page
    page.get_by_text("1 word is split into pieces: this model's vocabulary does not have them.").wait_for()
    page.get_by_role("button", name="What does “it” mean?").click()
    page.get_by_text("looks from it back to pizza").wait_for()
    assert page.get_by_text("split into pieces").count() == 0
    page.get_by_role("button", name="Copy what came before").click()
    page.get_by_role("heading", name="A row of letters through a Transformer").wait_for()
    page.get_by_role("button", name="3 days ago → French").click()
    page.locator(".lead", has_text="a decoder writes another, word by word: “il y a 3 jours”.").wait_for()
    page.get_by_role("heading", name="One sentence through a Transformer").wait_for()


def test_the_textbook_can_be_closed_and_lecture_mode_says_how_to_leave(home):
    window = home("/?ch=2", width=390, height=844)
    page = window.page
    panel = page.get_by_role("complementary", name="Textbook")
    panel.get_by_role("button", name="Close the textbook").click()
    window.wait_until_idle()
    assert panel.count() == 0
    assert "ch" not in window.state
    page.get_by_role("button", name="Textbook").click()
    panel.wait_for()
    window.press("f")
    assert "Esc" in page.locator("h1").evaluate("(one) => getComputedStyle(one, '::after').content")
    window.press("Escape")
    assert panel.count() == 1, "one thing at a time"
    window.press("Escape")
    assert panel.count() == 0


def test_look_names_the_stack_of_a_translator_and_shows_one_head_in_all_its_maps(home):
    window = home("/look?m=locales-fr&t=3+days+ago")
    page = window.page
    page.locator("peasy-maps[data-ready]").nth(2).wait_for()
    switch = page.get_by_role("button", name=re.compile("^Switch decoder: self-attention, layer"))
    heads = "(all) => all.map((maps) => `${maps.mapRow}, head ${maps.mapColumn}`)"
    page.wait_for_function(
        "() => new Set([...document.querySelectorAll('peasy-maps')].map((m) => m.mapIndex)).size === 1"
    )
    assert f"layer {page.locator('peasy-maps').evaluate_all(heads)[0]} off" in switch.inner_text()
    page.locator("peasy-maps").nth(1).get_by_role("button", name="layer 1, head 2").click()
    window.wait_until_idle()
    assert page.locator("peasy-maps").evaluate_all(heads) == ["1, head 2"] * 3
    assert switch.inner_text() == "Switch decoder: self-attention, layer 1, head 2 off"


def test_one_more_token_grows_the_text_and_marks_cached_rows(home):
    window = home("/home?m=stories&t=The+pizza+came+out")
    page = window.page
    page.locator(".flow .head.open").wait_for()
    rows = page.locator(".flow .token").count()
    page.get_by_role("button", name="One more token").click()
    page.locator(".flow .token.cached").first.wait_for()
    window.wait_until_idle()
    assert page.locator(".flow .token").count() == rows + 1
    assert page.locator(".flow .token.cached").count() == rows
    assert "t=The+pizza+came+out+" in page.url
    window.open("/home?m=stories&t=The+pizza+was+good.")
    assert next(iter(probabilities(page))) == "<eos>"
    assert page.get_by_role("button", name="One more token").count() == 0, "nothing follows the end"
    window.open("/generate?m=stories&t=The+pizza+was+good.&temp=0&n=3")
    page.get_by_role("button", name="Generate", exact=True).click()
    page.get_by_text("The text has ended").wait_for()
    assert page.locator("ol.candidates").count() == 0


def test_the_sentence_is_about_the_token_that_is_chosen(home):
    window = home("/")
    page = window.page
    story = page.locator(".story")
    page.locator('.token[data-token="decoder:4"]').click()
    window.wait_until_idle()
    shown = re.fullmatch(r"Head 0 of layer 1 looks from out back to The \(weight ([\d.]+)\)\. .*", story.inner_text())
    listed = page.locator(".zoom-row .key[aria-pressed=true]").get_attribute("aria-label")
    assert float(listed.removeprefix("The: weight ")) == pytest.approx(float(shown[1]), abs=5e-3)
    page.locator('.token[data-token="decoder:9"]').click()
    told = "Head 0 of layer 1 looks from it back to pizza (weight 1.00). Without this head"
    assert story.inner_text().startswith(told)
    page.locator(".zoom-steps").get_by_role("button", name="softmax").click()
    page.get_by_role("button", name="See where it matters").click()
    assert "from it" not in story.inner_text()
    page.get_by_role("button", name="Back to ·it → ·pizza").click()
    assert story.inner_text().startswith(told)
    page.get_by_role("button", name="See where it matters").click()
    window.press(".")
    assert page.get_by_role("button", name="Back to").count() == 0, "the cell was one of another head"


def test_a_next_token_says_that_it_is_added_and_can_be_taken_back(home):
    window = home("/")
    page = window.page
    answer = page.locator(".answer")
    assert answer.inner_text().startswith("next token: click to add")
    assert page.get_by_role("button", name="What does “it” mean?").get_attribute("aria-pressed") == "true"
    answer.get_by_role("button", name="·tasted").click()
    page.locator(".flow .token.cached").first.wait_for()
    window.wait_until_idle()
    assert window.state["t"].endswith("and it tasted")
    assert page.get_by_role("button", name="What does “it” mean?").get_attribute("aria-pressed") == "false"
    page.get_by_role("button", name="Undo").click()
    window.wait_until_idle()
    assert page.locator(".flow .token.cached").count() == page.get_by_role("button", name="Undo").count() == 0
    assert page.locator(".story").inner_text().startswith("Head 0 of layer 1 looks from it back to pizza")


def test_gradients_are_not_asked_of_a_model_that_guesses_nothing_and_unknown_words_are_named(home):
    window = home("/home?m=sentences&t=My+phone+broke&g=1&s=5")
    page = window.page
    page.get_by_text("The mean of all rows is the vector").wait_for()
    assert page.locator(".zoom-steps li").count() == 5
    window.open("/home?m=repeats&t=The+pizza+came")
    page.get_by_text("tokens are <unk>, words that this model does not know").wait_for()


def test_a_picture_stays_true_after_failed_requests_and_is_drawn_when_they_succeed(home):
    """A text or an ablation without its numbers neither changes captions nor mixes with the picture that is there."""
    window = home("/home?m=stories&t=The+pizza+came+out+of+the+oven+and+it")
    window.expected_errors = ("ERR_FAILED",)
    page = window.page
    page.locator(".flow .head.open").wait_for()
    caption, rows = page.locator(".story").inner_text(), page.locator(".flow .token").count()
    page.route("**/api/**", lambda route: route.abort())
    window.press("o")
    page.get_by_role("alert").get_by_text("does not respond").wait_for()
    page.get_by_role("button", name="Textbook").click()  # draws again
    window.wait_until_idle()
    assert page.locator(".story").inner_text() == caption
    assert page.locator(".flow .head.off").count() == 0
    page.get_by_role("button", name="One more token").click()
    window.press("ArrowUp", "ArrowDown", "]", "+")  # the window's own check: no exception
    assert page.locator(".flow .token").count() == rows
    page.unroute("**/api/**")
    page.locator(".flow .head").first.click()
    page.locator(".flow .token").nth(rows).wait_for()
    window.wait_until_idle()
    assert page.locator(".flow .token").count() == page.locator(".zoom-row .key").count() == rows + 1
    assert page.get_by_role("alert").count() == 0


def test_translator_encoder_textbook_and_phone(home):
    window = home("/home?m=locales-fr&t=3+days+ago")
    page = window.page
    page.locator(".flow .head.open").wait_for()
    assert page.locator(".story").inner_text().startswith("Writing jours after 3, head 1 of layer 1 looks at days")
    page.get_by_role("button", name="Which sentences are alike?").click()
    page.get_by_text("The mean of all rows is the vector").wait_for()
    page.get_by_role("button", name="Textbook").click()
    page.get_by_role("button", name="a large weight").click()
    assert page.get_by_text("✓ Right.").count() == 1
    page.set_viewport_size({"width": 390, "height": 800})
    window.open("/home?m=stories")
    page.locator(".flow .head.open").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    window.screenshot("home-390")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_accessibility(home, theme):
    window = home("/home?m=stories", bypass_csp=True)
    page = window.page
    page.evaluate("theme => (document.documentElement.dataset.theme = theme)", theme)
    page.locator(".flow .head.open").wait_for()
    assert serious_violations(page) == []


def test_translate_says_what_it_knows_and_marks_what_it_does_not(home):
    window = home("/translate?t=The+pizza+came+out+of+the+oven&a=locales-fr&m=locales-fr")
    page = window.page
    page.get_by_text("Probably outside of what this model knows").first.wait_for()
    assert "dates, units and amounts of money" in page.locator("#place").inner_text()
    window.open("/translate?t=3+days+ago&a=locales-fr&m=locales-fr")
    page.get_by_text("il y a 3 jours").first.wait_for()
    assert page.get_by_text("Probably outside").count() == 0


def test_no_next_tokens_are_offered_after_the_end_of_a_text(home):
    window = home("/generate?m=stories&t=The+pizza+came+out+of+the+oven+and+it&temp=0&n=60&at=60")
    page = window.page
    page.locator(".tokens button.token", has_text="<eos>").wait_for()
    window.press("ArrowRight")
    page.get_by_role("heading", name="The text has ended").wait_for()
    assert page.locator(".candidates").count() == 0
    count = page.locator(".tokens button.token").count()
    window.press("n")
    assert page.locator(".tokens button.token").count() == count
    assert page.get_by_role("alert").count() == 0


@pytest.mark.parametrize("path", ["look?m=stories", "generate?m=stories&n=1&at=1"])
def test_letters_outside_of_the_vocabulary_are_explained(home, path):
    text = home(f"/{path}&t=%D0%BC%D0%B8%D1%80").page.locator("#place").inner_text()
    assert "tokens are single bytes, such as <D0>: letters that are not in the vocabulary" in text


def test_shared_file_is_clickable_without_a_server(home, browser, tmp_path):
    window = home("/home?m=stories&t=The+pizza+came+out+of+the+oven+and+it")
    page = window.page
    page.locator(".flow .head.open").wait_for()
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as one HTML file").click()
    path = tmp_path / "shared.html"
    download.value.save_as(path)
    complaints, requests = [], []
    saved = browser.new_context(offline=True, viewport={"width": 390, "height": 800}).new_page()
    saved.on("console", lambda message: complaints.append(message.text))
    saved.on("pageerror", lambda error: complaints.append(str(error)))
    saved.on("request", lambda request: requests.append(request.url))
    saved.goto(path.as_uri())
    saved.get_by_text("Head 0 of layer 1 looks from it back to pizza").wait_for()
    assert saved.locator(".trail").inner_text().endswith("it › ·pizza")
    legends = [one.locator(".flow-legend").inner_text() for one in (page, saved)]
    assert ["temperature" in legend for legend in legends] == [True, False], "a saved page has none"
    for _ in range(3):
        saved.get_by_role("button", name="Next step").click()
    assert re.search(r"weight = [\d.]+ / [\d.]+ = 1\.0000", saved.locator(".zoom-steps").inner_text())
    window.press("Escape", "o")
    saved.get_by_role("button", name="Switch this head off").click()
    saved.get_by_text(
        "Without layer 1, head 0: tasted falls from 0.18 to 0.07, was rises from 0.46 to 0.56."
    ).wait_for()
    drawn = ".flow .lens, .flow .ribbon, .flow .mlp"
    texts = "(parts) => parts.map((part) => part.textContent)"
    live = page.locator(drawn).evaluate_all(texts)
    assert "would say: ·was 0.56" in " ".join(live)
    assert saved.locator(drawn).evaluate_all(texts) == live, "the saved picture without a head is that of the studio"
    answers = [one.locator(".answer li").evaluate_all(texts) for one in (saved, page)]
    assert answers[0] == answers[1][: len(answers[0])] != []
    assert saved.evaluate("document.documentElement.scrollWidth") <= 390
    assert serious_violations(saved) == []
    saved.context.close()
    assert (complaints, requests) == ([], [path.as_uri()])


def test_a_shared_file_opens_as_it_was_seen(home, browser, tmp_path):
    """The open head, its row and step, and what is off: numbers without a head never pass for those of the model."""
    window = home("/home?m=stories&t=The+pizza+came+out+of+the+oven+and+it&l=2&h=1&q=6&k=2&s=3&off=1.0")
    page = window.page
    for heads in ("1.0", "1.0,2.1"):
        window.open(f"/home?m=stories&t=The+pizza+came+out+of+the+oven+and+it&l=2&h=1&q=6&k=2&s=3&off={heads}")
        page.locator(".zoom-steps").wait_for()
        page.get_by_role("button", name="Share").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as one HTML file").click()
        download.value.save_as(tmp_path / "seen.html")
        saved = browser.new_context(offline=True, viewport={"width": 1440, "height": 900}).new_page()
        saved.goto((tmp_path / "seen.html").as_uri())
        saved.locator(".flow .head.open").wait_for()
        places = ".trail, .zoom-row h2, .flow .lens" if heads == "1.0,2.1" else ".story, .flow .lens, .flow .head.off"
        texts = [one.locator(places).all_text_contents() for one in (page, saved)]
        assert texts[0] == texts[1] != []
        numbers = [[one[-4:] for one in at.locator(".answer .number").all_inner_texts()] for at in (page, saved)]
        assert numbers[0] == numbers[1]
        if heads == "1.0,2.1":
            assert saved.locator(".flow-rail").inner_text().count("Intervention: ") == 2, "the page says what it is of"
            assert saved.locator(".zoom-steps [aria-current] button").first.inner_text() == "softmax"
        saved.context.close()


def test_gradients_of_a_saved_page_are_those_of_the_model_with_all_heads(browser, tmp_path):
    """They change when a head is switched off, but the page has only those without."""
    result = forward_pass("stories", "The pizza came out of the oven and it", gradients=True)
    path = render.save(result.document(), tmp_path / "saved.html")
    page = browser.new_context(offline=True).new_page()
    page.goto(path.as_uri())
    page.locator(".zoom-steps").get_by_role("button", name="gradient").click()
    current = page.locator(".zoom-steps [aria-current]")
    assert f"loss {result.loss:.4f}" in current.inner_text()
    page.get_by_role("button", name="Switch this head off").click()
    page.get_by_text("Without layer 1, head 0").wait_for()
    assert page.locator(".zoom-steps li").count() == 5
    page.get_by_role("button", name="Switch this head on").click()
    page.get_by_text("looks from it back to pizza").wait_for()
    assert page.locator(".zoom-steps li").count() == 6
    page.context.close()
