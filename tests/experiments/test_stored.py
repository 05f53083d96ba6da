"""Stored results: read as written, current, and stale when settings change."""

from dataclasses import replace

import pytest

from peasy.experiments import matrix_form, stored
from peasy.experiments.experiment import experiment
from peasy.experiments.result import EXPERIMENTS
from peasy.experiments.statistics import SeedsComparison
from peasy.experiments.stored import SeedsResult, read_seeds, settings_hash, stored_results

RESULTS = stored_results()


@pytest.fixture
def result():
    parts = (
        SeedsComparison("faster", "seconds", (1.0, 1.1, 1.2, 1.3, 1.4), "loop", (2.0, 2.1, 2.2, 2.3, 2.4), lower=True),
        SeedsComparison("equal", "difference", (0.0,) * 5, "rounding", (1e-6,) * 5, lower=True, exact=True),
    )
    return SeedsResult("matrix-form", (0, 1, 2, 3, 4), parts, settings_hash("matrix-form"), {"peasy": "1"}, 1.5)


def test_roundtrip(result, tmp_path):
    read = read_seeds(result.save(tmp_path / "x.json").read_text())
    assert read == result
    assert not read.is_stale


def test_other_settings_are_stale(result, monkeypatch):
    assert replace(result, settings_hash="other").is_stale
    assert "STALE" in replace(result, settings_hash="other").origin
    settings_hash.cache_clear()
    monkeypatch.setattr(matrix_form, "LIMIT", 3, raising=False)
    assert result.is_stale
    settings_hash.cache_clear()


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
