"""Kinds side by side: trained alike, measured alike, ranked by what they share."""

import pytest

from peasy.checkpoint import home
from peasy.errors import UsageError
from peasy.views.comparison import ComparisonFacts, Contender, comparison_document
from peasy.views.document import Curves
from peasy.workbench.compare import compare

SMALL = {"batch": 4, "context": 16, "validate": 2, "sample": 0, "corpus": {"size": 200, "held_out": 20}}


def test_kinds_on_the_same_work():
    heard = []
    found = compare(
        ["ngram", "rnn"], "copy:3", preset="tiny", steps=3, seed=5, name="both", settings=SMALL, limit=4,
        hear=lambda kind, event: heard.append(kind),
    )  # fmt: skip
    contenders = {each.kind: each for each in found.facts.contenders}
    assert set(contenders) == {"ngram", "rnn"} == set(heard)
    assert found.facts.measure == "bits per byte"
    shared = [{n: v for n, v, _ in each.measures}["bits per byte"] for each in found.facts.contenders]
    assert shared == sorted(shared)
    assert set(home.runs()) == {"both-ngram", "both-rnn"}
    assert contenders["rnn"].tokens == 3 * 4 * 16
    curve = contenders["rnn"].curve
    measured = {n: v for n, v, _ in contenders["rnn"].measures}
    assert curve[-1][1] == pytest.approx(measured["bits per byte"], rel=0.02)
    assert [type(part) for part in found.document().parts].count(Curves) == 1
    assert found.data()["seed"] == 5


def test_the_best_stands_first_whatever_is_measured():
    one = Contender("a", "r-a", 1, 1, 1.0, (("exact match", 0.5, True),))
    page = comparison_document(ComparisonFacts("d", "1 step", 0, "exact match", (one,)))
    assert "50.00%" in str(page)


@pytest.mark.parametrize("kinds", [["gpt"], ["gpt", "gpt", "rnn"], []])
def test_there_must_be_something_to_compare(kinds):
    with pytest.raises(UsageError):
        compare(kinds, "copy")
