"""Page Train: start, follow, reload, stop, resume; uploads; comparison."""

import json
import re

import pytest
from tests.server.browser_window import serious_violations

from peasy.commands.runs import open_run
from peasy.training.run_folder import is_locked

pytestmark = pytest.mark.browser

OWN = "the cat sat on the mat and the dog sat under the old tree.\n" * 120


def settings(page, **given):
    for label, value in given.items():
        page.get_by_label(label, exact=True).fill(str(value))


def curves(page):
    """Return the chart's table as (step, loss) by curve."""
    page.locator("figure.chart summary").click()
    page.locator("figure.chart table tbody tr").first.wait_for()  # filled by the toggle event, after the click
    rows = page.locator("figure.chart table tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((c) => c.textContent))"
    )
    page.locator("figure.chart summary").click()
    found = {}
    for name, step, loss in rows:
        found.setdefault(name, []).append((int(step.replace(",", "")), loss))
    return found


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "my book.txt"
    path.write_text(OWN, encoding="utf-8")
    return path


def open_form(page):
    """Open the form of a new run, which is folded where there are runs."""
    page.locator("details", has=page.locator("form.card")).evaluate("(one) => (one.open = true)")


def test_run_on_an_uploaded_text_is_followed_stopped_and_resumed(open_tiny_studio, data_dir, text):
    window = open_tiny_studio("/train")
    page = window.page
    open_form(page)
    page.get_by_label("data", exact=True).select_option("")
    page.get_by_label("your text").set_input_files(text)
    settings(page, minutes=5, name="own-text")
    page.get_by_text("More", exact=True).click()
    settings(page, **{"sentence whose attention is recorded at every checkpoint": "the cat sat on the mat"})
    page.get_by_role("button", name="Start").click()
    page.get_by_text("tokens/s").wait_for()
    folder = data_dir / "runs" / "own-text"
    assert is_locked(folder)
    assert window.state["run"] == "own-text"
    page.reload()  # while training
    live = page.get_by_role("region", name="Job")
    live.get_by_text("Training own-text is running").wait_for()
    page.get_by_text("· training").wait_for()
    runs = page.locator("table", has_text="validation loss")
    row = runs.locator("tbody tr", has_text="own-text")
    assert row.get_by_text("being trained", exact=True).count() == 1, "the panel above says at which step"
    assert not page.locator("form.card").is_visible(), "results before forms"
    open_form(page)
    assert page.get_by_role("button", name="Start").is_disabled()
    window.screenshot("train-live")
    live.get_by_role("button", name="Stop and save").click()
    live.get_by_text("was stopped and saved").wait_for()
    assert not is_locked(folder)
    assert list((folder / "checkpoints").iterdir())
    window.wait_until_idle()
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe["tracked_sentence"] == "the cat sat on the mat"
    assert "uploads" in recipe["data"]
    events = window.request("metrics", name="own-text")["events"]
    steps = [(item["step"], f"{item['loss']:.4f}") for item in events if item["event"] == "step"]
    shown = curves(page)["own-text, training"]
    assert shown[-1] == steps[-1]
    assert len(steps) > 100 or shown == steps
    labels = page.locator("figure.chart svg text[text-anchor=end]")
    linear = labels.all_text_contents()
    page.get_by_label("logarithmic").check()
    assert labels.all_text_contents() != linear
    assert all(float(label.replace(",", "")) in (1, 2, 5, 10, 20) for label in labels.all_text_contents())
    page.get_by_label("logarithmic").uncheck()
    assert labels.all_text_contents() == linear
    assert "; Resume continues after step" in row.inner_text(), "the name of the button, not of an option"
    page.get_by_label("total minutes").fill("0.001")
    page.get_by_role("button", name="Resume").click()
    live.get_by_text("is done").wait_for()
    assert "finished" in open_run(folder).facts().state
    page.get_by_text("· finished").wait_for()
    assert "book" in row.inner_text()
    assert not re.search("[0-9a-f]{8}", row.inner_text()), "an upload is shown without its hash"


@pytest.fixture(scope="module")
def recorded_run(temporary_root):
    """Name of a run whose attention was recorded at each checkpoint."""
    from peasy.commands.train import train

    folder = temporary_root / "home" / "runs" / "recorded"
    train("gpt", "copy", preset="tiny", steps=6, run=folder, settings={"num_saves": 3, "batch_size": 2})
    return folder.name


def test_attention_history_slider_and_keys(open_tiny_studio, recorded_run):
    window = open_tiny_studio(f"/train?run={recorded_run}")
    page = window.page
    history = window.request("attention-history", name="recorded")
    assert len(history["steps"]) >= 3
    page.get_by_label("after step", exact=True).first.focus()
    page.keyboard.press("ArrowLeft")
    window.wait_until_idle()
    assert window.state["step"] == str(history["steps"][-2])
    assert page.locator("peasy-maps").evaluate("(maps) => maps.mapColumn") == len(history["steps"]) - 2
    page.reload()
    window.wait_until_idle()
    page.wait_for_function(
        "(at) => document.querySelector('peasy-maps')?.mapColumn === at", arg=len(history["steps"]) - 2
    )
    page.locator("h1").click()
    page.keyboard.press("ArrowLeft")
    assert page.locator("peasy-maps").evaluate("(maps) => maps.mapColumn") == len(history["steps"]) - 3
    window.press("c")
    assert page.get_by_role("menuitem").all_inner_texts() == ["Link to this view"], "no command of another run"
    window.screenshot("train")
    kept = window.request("runs", name="recorded")["checkpoints"]
    window.open("/home?m=recorded")
    checkpoint = page.get_by_label("Watch the head form: checkpoint after")
    text = page.get_by_label("Text").input_value()
    checkpoint.focus()
    window.press("ArrowLeft")
    assert window.state["ck"] == str(kept[-2])
    quick = {"story": False, "head_numbers": [], "ablations": False}
    expected = window.request("forward-pass", model=f"recorded@{kept[-2]}", text=text, **quick)["next_tokens"]
    bars = page.locator(".answer li").evaluate_all("bars => bars.map((bar) => bar.getAttribute('aria-label'))")
    assert [bar.partition(":")[0] for bar in bars] == [token["piece"] for token in expected]
    page.reload()
    window.wait_until_idle()
    assert page.locator(".checkpoints output").inner_text() == f"step {kept[-2]}", "the link keeps the checkpoint"


def test_accessibility_wide_and_narrow(open_tiny_studio, recorded_run):
    window = open_tiny_studio(f"/train?run={recorded_run}", width=360, bypass_csp=True, color_scheme="dark")
    assert serious_violations(window.page) == []
    assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_compare_kinds_of_models(open_tiny_studio):
    window = open_tiny_studio("/train")
    page = window.page
    open_form(page)
    page.get_by_role("radio", name="several kinds, compared").check()
    for kind in ("cnn", "ngram"):
        page.get_by_label(kind, exact=True).uncheck()
    page.get_by_label("data", exact=True).select_option("copy")
    settings(page, steps=10, name="duel")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("region", name="Job").get_by_text("Comparing gpt, rnn is done").wait_for(timeout=180_000)
    window.wait_until_idle()
    assert window.state["with"] == "duel-rnn"
    job = window.request("job")["job"]
    result = job["result"]
    assert job["events"] > 0, "progress is reported"
    assert job["last_step"]["kind"] == "rnn"
    page.get_by_text("the best on").wait_for()
    rows = page.locator("table", has_text="the best on").locator("tbody tr td:first-child").all_inner_texts()
    assert rows == [item["kind"] for item in result["models"]]
    assert {"duel-gpt, validation", "duel-rnn, validation"} <= set(curves(page))


def test_a_million_points_do_not_overflow_the_stack(open_window):
    """Points of a long run: as arguments of one function call they would."""
    page = open_window().open("/train")
    ticks = page.evaluate(
        """async () => {
            const { LineChart } = await import("./linechart.js");
            const chart = new LineChart({ title: "Loss", xAxis: "step", yAxis: "loss" });
            document.getElementById("place").append(chart.element);
            const points = Array.from({ length: 1_000_000 }, (_, step) => [step, 1 / (step + 1)]);
            chart.show([{ name: "long", points }]);
            return chart.svg.querySelectorAll("text").length;
        }"""
    )
    assert ticks > 5
