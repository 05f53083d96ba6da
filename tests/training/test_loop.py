"""Training loop: events and files, stopping, and resuming as if never interrupted."""

import shutil

import pytest
import torch

from peasy.checkpoint.manifest import is_intact
from peasy.training import loop
from peasy.training.attention_snapshots import read_snapshots
from peasy.training.event import Finished, Saved, Started, TrainStep, Validated
from peasy.training.lock import RunLocked
from peasy.training.loop import train


def kinds(events) -> list[str]:
    return [event.event for event in events]


def test_events_are_in_order(task, finish):
    it = task(steps=4, save=2)
    events = finish(it)
    assert kinds(events) == [
        "started", "step", "step", "validated", "sampled", "saved", "step", "step", "validated", "sampled", "saved",
        "finished",
    ]  # fmt: skip
    assert isinstance(events[0], Started)
    assert (events[0].seed, events[0].step, events[0].steps) == (3, 0, 4)
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.folder.name == "step-000004"
    assert is_intact(last.folder)


def test_loss_decreases(task, finish):
    events = finish(task(steps=60, save=0, sample=0))
    losses = [event.loss for event in events if isinstance(event, TrainStep)]
    valid = [event.loss for event in events if isinstance(event, Validated)]
    assert losses[0] > 3
    assert losses[-1] < 2.3
    assert valid[-1] < valid[0]


@pytest.mark.parametrize("cuts", [(1,), (3,), (5, 6), (11,)])
def test_resumed_run_equals_uninterrupted_run(task, finish, outcome, cuts):
    whole = task("whole", short={"context": 8, "until": 0.5}, accumulate=2)
    finish(whole)
    for cut in cuts:
        stop_at(task("cut", short={"context": 8, "until": 0.5}, accumulate=2), cut)
    again = task("cut", short={"context": 8, "until": 0.5}, accumulate=2)
    finish(again)
    assert outcome(again.run) == outcome(whole.run)


def stop_at(it, step: int) -> None:
    events = train(it)
    for event in events:
        if isinstance(event, TrainStep) and event.step == step:
            events.close()
            return
    raise AssertionError(f"there was no step {step}")


def test_dropout_must_be_seeded_per_step(task, finish, outcome, monkeypatch):
    """The inverse: with dropout not seeded by the step, the resumed run differs."""
    whole = task("whole")
    finish(whole)
    monkeypatch.setattr("peasy.training.learner.drawing", lambda seed, step: __import__("contextlib").nullcontext())
    stop_at(task("cut"), 5)
    torch.rand(17)
    again = task("cut")
    finish(again)
    assert outcome(again.run)["weights"] != outcome(whole.run)["weights"]


def test_global_random_state_is_restored(task, finish):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    finish(task(steps=2))
    assert torch.equal(torch.rand(3), expected)


def test_damaged_checkpoint_falls_back_with_warning(task, finish, outcome):
    whole = task("whole")
    finish(whole)
    stop_at(task("cut"), 8)
    newest = task("cut").run / "checkpoints" / "step-000008"
    damage(newest / "state.safetensors")
    again = task("cut")
    events = finish(again)
    assert events[0].step == 6
    assert "step-000008 is damaged; step-000006 is used instead" in events[0].warning
    assert outcome(again.run) == outcome(whole.run)


def damage(path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_training_starts_over_if_all_checkpoints_are_damaged(task, finish, outcome):
    whole = task("whole", steps=6)
    finish(whole)
    stop_at(task("cut", steps=6), 4)
    for folder in (whole.run.parent / "cut" / "checkpoints").iterdir():
        damage(folder / "model.safetensors")
    again = task("cut", steps=6)
    events = finish(again)
    assert events[0].step == 0
    assert "training starts over" in events[0].warning
    assert outcome(again.run) == outcome(whole.run)


def test_finished_run_stays_finished(task, finish):
    finish(task(steps=4))
    events = finish(task(steps=4))
    assert kinds(events) == ["started", "finished"]
    assert events[0].step == 4


def test_longer_budget_continues_a_finished_run(task, finish):
    finish(task(steps=4))
    events = finish(task(steps=6))
    assert [event.step for event in events if isinstance(event, TrainStep)] == [5, 6]


def test_only_newest_checkpoints_are_kept(task, finish):
    it = task(steps=12, save=12, keep=2)
    finish(it)
    assert sorted(folder.name for folder in (it.run / "checkpoints").iterdir()) == ["step-000011", "step-000012"]


def test_second_process_on_one_run_is_rejected(task):
    first = train(task())
    next(first)
    with pytest.raises(RunLocked):
        next(train(task()))
    first.close()
    next(train(task()))


def test_closing_saves_the_current_step(task):
    it = task(save=0)
    stop_at(it, 7)
    assert [folder.name for folder in (it.run / "checkpoints").iterdir()] == ["step-000007"]


def test_closing_before_the_first_step_saves_nothing(task):
    it = task()
    events = train(it)
    next(events)
    events.close()
    assert not list((it.run / "checkpoints").iterdir())


class Ticking:
    """Clock that advances by `tick` at each call."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def test_time_budget_ends_run_and_schedule(task, finish):
    events = finish(task(minutes=1.0, clock=Ticking(0.5), save=2, validate=0, sample=0, schedule={"floor": 0.0}))
    steps = [event for event in events if isinstance(event, TrainStep)]
    assert 60 <= events[-1].elapsed < 66
    assert len(steps) > 10
    assert steps[-1].lr < 0.1 * max(step.lr for step in steps)
    assert steps[0].left > steps[-1].left


def test_final_validation_is_bounded_under_a_time_budget(task, finish):
    given = {"minutes": 0.2, "save": 0, "validate": 1, "sample": 0, "valid_tokens": 16, "batch": 1}
    slow_clock = finish(task("hasty", clock=Ticking(0.5), **given))
    fast_clock = finish(task("patient", clock=Ticking(0.0001), **given | {"minutes": 0.0005}))
    tokens = [event.tokens for events in (slow_clock, fast_clock) for event in events if isinstance(event, Validated)]
    assert 16 <= tokens[0] < tokens[-1] == len(task().feed.valid) - 1


def test_small_run_trains_on_more_tokens_than_it_validates(task, finish):
    """Few validation tokens during the run; at the end no more than were trained on."""
    it = task(steps=10, validate=5, valid_tokens=10_000, save=0, sample=0, batch=1)
    validation_tokens = [event.tokens for event in finish(it) if isinstance(event, Validated)]
    assert len(validation_tokens) == 5
    assert max(validation_tokens[:-1]) <= 2 * it.recipe.context  # one batch of validation windows
    assert validation_tokens[-1] == len(it.feed.valid) - 1


def test_resumed_run_has_the_remaining_time(task, finish):
    clock = Ticking(0.5)
    given = {"minutes": 1.0, "save": 0, "validate": 0, "sample": 0}
    whole = [event for event in finish(task("whole", clock=Ticking(0.5), **given)) if isinstance(event, TrainStep)]
    stop_at(task("cut", clock=clock, **given), 5)
    clock.now += 10_000  # time between stopping and resuming
    rest = [event for event in finish(task("cut", clock=clock, **given)) if isinstance(event, TrainStep)]
    assert rest[0].step == 6
    assert abs(rest[-1].step - whole[-1].step) <= 2
    assert rest[-1].elapsed < 66


def test_sequence_length_warmup(task, finish):
    it = task(steps=4, short={"context": 4, "until": 0.5}, save=0, sample=0, validate=0)
    seen = []
    batch = it.feed.batch
    it.feed.batch = lambda position, rows, context: (
        seen.append((position, rows, context)) or batch(position, rows, context)
    )
    finish(it)
    assert seen == [(0, 16, 4), (16, 16, 4), (8, 4, 16), (12, 4, 16)]  # 32 windows of 4 are 8 of 16


def test_attention_snapshots_are_recorded(task, finish):
    it = task(steps=4, save=4)
    finish(it)
    records = read_snapshots(it.run)
    assert [record.step for record in records] == [1, 2, 3, 4]
    weights = records[0].weights["decoder.0.attention"]
    assert weights.shape == (2, 4, 4)
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(2, 4), atol=2e-3, rtol=0)
    assert records[0].sentence.pieces == ("a", "b", "c", "d")
    assert not torch.equal(weights, records[-1].weights["decoder.0.attention"])


@pytest.mark.parametrize("save", [1, 3])
def test_stopped_run_records_a_snapshot(task, finish, save):
    """The snapshot is deleted on resume; regular snapshots remain, once each."""
    it = task(steps=9, save=save)
    stop_at(it, 3)
    assert [record.step for record in read_snapshots(it.run)] == [3]
    finish(task(steps=9, save=save))
    assert [record.step for record in read_snapshots(it.run)] == ([9] if save == 1 else [3, 6, 9])


def test_leftovers_of_killed_writer_are_removed(task, finish):
    it = task(steps=2)
    shutil.copytree(it.run, it.run / "checkpoints" / ".step-000001.part-1-ab", ignore=lambda *_: ["checkpoints"])
    finish(it)
    assert not list((it.run / "checkpoints").glob(".*"))


def test_crashes_skip_and_repeat_no_sample(task, finish):
    """Only unsaved steps are repeated; the final weights have seen each sample once."""
    steps, seen = 24, {}
    for crash in [*range(2, 22, 2), None]:
        it = task(steps=steps, save=steps, sample=0, validate=0)
        batch = it.feed.batch
        asked = []
        it.feed.batch = lambda position, rows, context, ask=asked, padding_mask=batch: (
            ask.append(range(position, position + rows)) or real(position, rows, context)
        )
        events = train(it)
        try:
            for event in events:
                if isinstance(event, TrainStep):
                    seen[event.step] = asked[-1]
                    if event.step == crash:
                        events.throw(RuntimeError("crash"))  # before this step could be saved
        except RuntimeError:
            continue
    assert [place for step in sorted(seen) for place in seen[step]] == list(range(4 * steps))


def test_bfloat16_resumes_bit_exactly(task, finish, outcome):
    whole, cut = task("whole", precision="bfloat16", steps=6), task("cut", precision="bfloat16", steps=6)
    events = finish(whole)
    assert events[0].precision == "bfloat16"
    stop_at(cut, 3)
    again = task("cut", precision="bfloat16", steps=6)
    finish(again)
    assert outcome(again.run) == outcome(whole.run)
    assert next(again.model.parameters()).dtype == torch.float32


def test_sinks_receive_every_event(task, finish):
    received = []
    events = finish(task(steps=3, sinks=[received.append]))
    assert received == events


def test_long_run_saves_without_request(task, finish, monkeypatch):
    monkeypatch.setattr(loop, "_MAX_SAVE_INTERVAL", 5.0)
    events = finish(task(steps=10, save=0, validate=0, sample=0, clock=Ticking(1.0)))
    assert len([event for event in events if isinstance(event, Saved)]) > 2
