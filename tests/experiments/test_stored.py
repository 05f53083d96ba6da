"""Stored results: read as written, current, and stale when the code that measures changes."""

from dataclasses import replace

import pytest

from peasy.experiments import stored
from peasy.experiments.experiment import experiment
from peasy.experiments.result import EXPERIMENTS
from peasy.experiments.statistics import SeedsComparison
from peasy.experiments.stored import SeedsResult, code_hash, read_seeds, stored_results

RESULTS = stored_results()


@pytest.fixture
def result():
    parts = (
        SeedsComparison("faster", "seconds", (1.0, 1.1, 1.2, 1.3, 1.4), "loop", (2.0, 2.1, 2.2, 2.3, 2.4), lower=True),
        SeedsComparison("equal", "difference", (0.0,) * 5, "rounding", (1e-6,) * 5, lower=True, exact=True),
    )
    return SeedsResult("matrix-form", (0, 1, 2, 3, 4), parts, code_hash("matrix-form"), {"peasy": "1"}, 1.5)


def test_roundtrip(result, tmp_path):
    read = read_seeds(result.save(tmp_path / "x.json").read_text())
    assert read == result
    assert not read.is_stale


@pytest.mark.parametrize("name", RESULTS)
def test_names_of_what_is_compared_have_plain_words(name):
    """Beside its bar a word such as "half" or "without" says nothing, nor does a label of a name that is gone."""
    labels = EXPERIMENTS[name].labels
    names = {name for part in RESULTS[name].comparisons for name in (part.value_name, part.control_name)}
    assert labels.keys() <= names
    terse = {"half", "without", "rounding", "none", "sum", "difference", "error", "diagonal", "untrained", "values"}
    assert not terse & {labels.get(name, name) for name in names}


def changed(monkeypatch, name, old, new):
    """Return the hash of an experiment after a change of the text of one module."""
    read, count = stored._source, []

    def source(module):
        text = read(module)
        count.append(text.count(old))
        return text.replace(old, new)

    monkeypatch.setattr(stored, "_source", source)
    code_hash.cache_clear()
    hash_ = code_hash(name)
    monkeypatch.undo()
    code_hash.cache_clear()
    assert sum(count) == 1, "the text to change is there once"
    return hash_


@pytest.mark.parametrize(
    ("name", "old", "new", "stale"),
    [
        ("matrix-form", "repeats: int = 8", "repeats: int = 9", True),
        ("matrix-form", "denominator = sum(exponentials)", "denominator = max(exponentials)", True),
        ("heads", "weights.setdefault((path.layer, head), [])", "weights.setdefault((0, head), [])", True),
        ("heads", '"precision": "float32"', '"precision": "auto"', True),
        ("matrix-form", "as by hand.", "as on paper.", False),
        ("matrix-form", "scale, contexts = 1 /", "scale, contexts = (1) /", False),
        ("matrix-form", "(largest difference ", "(at most ", False),
        ("matrix-form", "# A sum of n terms, each", "# A sum", False),
    ],
)
def test_measuring_code_marks_results_as_stale_and_wording_does_not(result, monkeypatch, name, old, new, stale):
    before = code_hash(name)
    assert (changed(monkeypatch, name, old, new) != before) == stale
    assert replace(result, code_hash="other").is_stale
    assert "STALE" in replace(result, code_hash="other").origin


def test_several_seeds():
    result = experiment("matrix-form", seeds=2, tokens=8, repeats=5)
    assert result.seeds == (0, 1)
    assert result.outcome == "cannot tell", "two seeds are too few"
    assert result.is_stale, "options other than the defaults"


def test_live_run_shows_the_stored_result_and_says_which_is_which(result, monkeypatch):
    monkeypatch.setattr("peasy.experiments.result.stored_result", lambda name: result)
    live = experiment("matrix-form", tokens=8, repeats=1)
    shown = " ".join(live.text().split())
    assert "This run (seed 0): cannot tell" in shown
    assert "Stored result (5 seeds): supported" in shown
    assert live.data()["stored"]["outcome"] == "supported"


@pytest.mark.parametrize("name", RESULTS)
def test_stored_results_are_current(name):
    assert name in EXPERIMENTS
    assert len(RESULTS[name].seeds) >= 5
    assert not RESULTS[name].is_stale, f"run again: peasy experiment {name} --seeds 5 --out {name}.json"
    shortest, longest = {"seconds": (0, 60), "a minute": (30, 90), "minutes": (60, 1200)}[EXPERIMENTS[name].duration]
    assert shortest <= RESULTS[name].seconds / len(RESULTS[name].seeds) <= longest, "the promised duration"
    assert stored.stored_result(name) == RESULTS[name]
