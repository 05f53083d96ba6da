"""Schedules by steps and by time; a resumed run ends when the uninterrupted one would have."""

import pytest

from peasy.errors import InvalidInput
from peasy.training.schedule import Budget, CosineSchedule, WSDSchedule, due


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_cosine_warmup_and_decay():
    schedule = CosineSchedule(warmup=0.1, min_lr_ratio=0.2)
    assert schedule.lr_scale(0.05) == pytest.approx(0.5)
    assert schedule.lr_scale(0.1) == pytest.approx(1.0)
    assert schedule.lr_scale(0.55) == pytest.approx(0.6)  # halfway down
    assert schedule.lr_scale(1.0) == pytest.approx(0.2)
    assert schedule.lr_scale(0.0) > 0


def test_wsd_is_constant_then_linear():
    schedule = WSDSchedule(warmup=0.1, decay=0.4, min_lr_ratio=0.0)
    assert [schedule.lr_scale(done) for done in (0.1, 0.3, 0.6)] == [1.0, 1.0, 1.0]
    assert schedule.lr_scale(0.8) == pytest.approx(0.5)
    assert schedule.lr_scale(1.0) == pytest.approx(0.0)


def test_fractions_are_checked():
    with pytest.raises(InvalidInput, match="warmup is 2"):
        CosineSchedule(warmup=2.0)
    with pytest.raises(InvalidInput, match="decay is -1"):
        WSDSchedule(decay=-1.0)


def test_time_budget_follows_the_clock():
    clock = Clock()
    budget = Budget(minutes=2, clock=clock)
    clock.now += 30
    assert budget.progress(5) == pytest.approx(0.25)
    assert budget.seconds_left(5, 1.0) == pytest.approx(90)
    clock.now += 500
    assert budget.progress(6) == 1.0


def test_resumed_run_counts_earlier_time():
    clock = Clock()
    assert Budget(minutes=2, spent=60, clock=clock).progress(0) == pytest.approx(0.5)


def test_step_budget_ignores_the_clock():
    clock = Clock()
    budget = Budget(steps=10, clock=clock)
    clock.now += 1e6
    assert budget.progress(5) == 0.5
    assert budget.seconds_left(5, 2.0) == 10


@pytest.mark.parametrize(("times", "steps"), [(1, 7), (3, 7), (7, 7), (10, 7), (10, 1000)])
def test_moments_are_evenly_spaced_and_include_the_end(times, steps):
    found = [step + 1 for step in range(steps) if due(times, step / steps, (step + 1) / steps)]
    assert len(found) == min(times, steps)
    assert found[-1] == steps


def test_zero_times_is_never_due():
    assert not due(0, 0.0, 1.0)
