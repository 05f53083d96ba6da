"""The page Train as a person uses it: begin, watch, reload, stop, go on; own texts; kinds compared."""

import json

import pytest
from tests.studio.walker import serious

from peasy.training.lock import held
from peasy.workbench.runs import open_run

pytestmark = pytest.mark.browser

OWN = "the cat sat on the mat and the dog sat under the old tree.\n" * 120


def settings(page, **given):
    for label, value in given.items():
        page.get_by_label(label, exact=True).fill(str(value))


def curves(page):
    """What the table of the curves says, by curve: (step, loss)."""
    page.locator("figure.chart summary").click()
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


def test_a_run_on_an_own_text_is_watched_found_again_stopped_and_continued(visit, at_home, text):
    walker = visit("/train")
    page = walker.page
    page.get_by_label("data").select_option("")
    page.get_by_label("your text").set_input_files(text)
    settings(page, minutes=5, name="own-text")
    page.get_by_text("More", exact=True).click()
    settings(page, **{"sentence whose attention is kept at every checkpoint": "the cat sat on the mat"})
    page.get_by_role("button", name="Start").click()
    page.get_by_text("tokens/s").wait_for()
    folder = at_home / "runs" / "own-text"
    assert held(folder)
    assert walker.state["run"] == "own-text"
    page.reload()  # in the middle of it
    live = page.get_by_role("region", name="What goes on")
    live.get_by_text("Training own-text goes on").wait_for()
    page.get_by_text("learning now").wait_for()
    assert page.get_by_role("button", name="Start").is_disabled()
    walker.keep("train-live")
    live.get_by_role("button", name="Stop and save").click()
    live.get_by_text("was stopped and saved").wait_for()
    assert not held(folder)
    assert list((folder / "checkpoints").iterdir())
    walker.settle()
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe["sentence"] == "the cat sat on the mat"
    assert "uploads" in recipe["data"]
    events = walker.ask("metrics", name="own-text")["events"]
    steps = [(each["step"], f"{each['loss']:.4f}") for each in events if each["event"] == "step"]
    shown = curves(page)["own-text, training"]
    assert shown[-1] == steps[-1]
    assert len(steps) > 100 or shown == steps
    page.get_by_label("minutes in all").fill("0.001")
    page.get_by_role("button", name="Go on").click()
    live.get_by_text("is done").wait_for()
    assert "finished" in open_run(folder).facts().state
    page.get_by_text("· finished").wait_for()


def test_the_film_has_a_slider_over_checkpoints_and_keys(visit, at_home):
    from peasy.workbench.train import train

    train("gpt", "copy", preset="tiny", steps=6, run=at_home / "runs" / "filmed", settings={"save": 3, "batch": 2})
    walker = visit("/train?run=filmed")
    page = walker.page
    film = walker.ask("film", name="filmed")
    assert len(film["steps"]) >= 3
    page.get_by_label("after step", exact=True).first.focus()
    page.keyboard.press("ArrowLeft")
    walker.settle()
    assert walker.state["step"] == str(film["steps"][-2])
    assert page.locator("peasy-maps").evaluate("(maps) => maps.across") == len(film["steps"]) - 2
    page.reload()
    walker.settle()
    page.wait_for_function("(at) => document.querySelector('peasy-maps')?.across === at", arg=len(film["steps"]) - 2)
    page.locator("h1").click()
    page.keyboard.press("ArrowLeft")
    assert page.locator("peasy-maps").evaluate("(maps) => maps.across") == len(film["steps"]) - 3
    walker.keep("train")


def test_nothing_serious_wide_and_narrow(visit, at_home):
    walker = visit("/train?run=filmed", width=360, bypass_csp=True, color_scheme="dark")
    assert serious(walker.page) == []
    assert walker.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_kinds_are_compared_and_their_curves_lie_beside_each_other(visit):
    walker = visit("/train")
    page = walker.page
    page.get_by_role("radio", name="several kinds, compared").check()
    for kind in ("cnn", "ngram"):
        page.get_by_label(kind, exact=True).uncheck()
    page.get_by_label("data").select_option("copy")
    settings(page, steps=10, name="duel")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("region", name="What goes on").get_by_text("is done").wait_for(timeout=180_000)
    walker.settle()
    assert walker.state["with"] == "duel-rnn"
    result = walker.ask("job")["job"]["result"]
    page.get_by_text("the best on").wait_for()
    rows = page.locator("table", has_text="the best on").locator("tbody tr td:first-child").all_inner_texts()
    assert rows == [each["kind"] for each in result["contenders"]]
    assert {"duel-gpt, validation", "duel-rnn, validation"} <= set(curves(page))
