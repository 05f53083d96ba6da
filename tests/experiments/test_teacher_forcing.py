"""One pass equals one by one; the verdict follows from times and accuracies."""

import pytest

from peasy.commands.load import load
from peasy.experiments import teacher_forcing
from peasy.experiments.models import untrained
from peasy.experiments.statistics import Outcome


def concluded(difference=0.0, parallel=1e-3, serial=1e-2, forced=(True, True), free=(True, False)):
    return teacher_forcing.conclude(
        [teacher_forcing.ForcedText(difference, parallel, serial, forced, free)] * 8, 0
    ).outcome


def test_each_part_can_fail():
    assert concluded() is Outcome.SUPPORTED
    assert concluded(difference=0.1) is Outcome.NOT_SUPPORTED
    assert concluded(parallel=1e-1) is Outcome.CONDITIONS
    assert concluded(free=(True, True)) is Outcome.CONDITIONS
    assert concluded(parallel=1e-1, free=(True, True)) is Outcome.NOT_SUPPORTED


@pytest.mark.parametrize("trained", [True, False])
def test_untrained_model_changes_verdict(trained):
    model = load("stories") if trained else untrained(load("stories"), 3)
    result = teacher_forcing.run(model=model, texts=6)
    assert result.comparisons[0].outcome is Outcome.SUPPORTED, "an identity, trained or not"
    assert (result.comparisons[2].outcome is Outcome.SUPPORTED) is trained, result.verdict
