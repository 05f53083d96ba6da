"""Training loop: events and files, stopping, and resuming as if never interrupted."""

import shutil
from dataclasses import replace

import pytest
import torch

from peasy.checkpoint.store import is_intact
from peasy.training import loop
from peasy.training.attention_snapshots import read_snapshots
from peasy.training.event import Finished, Saved, Started, TrainStep, Validated
from peasy.training.loop import train
from peasy.training.run_folder import RunLocked


def kinds(events) -> list[str]:
    return [event.event for event in events]


def test_events_are_in_order(make_spec, finish):
    spec = make_spec(steps=4, num_saves=2)
    events = finish(spec)
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


def test_loss_decreases(make_spec, finish):
    events = finish(make_spec(steps=60, num_saves=0, num_samplings=0))
    losses = [event.loss for event in events if isinstance(event, TrainStep)]
    valid = [event.loss for event in events if isinstance(event, Validated)]
    assert losses[0] > 3
    assert losses[-1] < 2.3
    assert valid[-1] < valid[0]


@pytest.mark.parametrize("cuts", [(1,), (3,), (5, 6), (11,)])
def test_resumed_run_equals_uninterrupted_run(make_spec, finish, outcome, cuts):
    whole = make_spec("whole", seq_len_warmup={"seq_len": 8, "until_fraction": 0.5}, grad_accum_steps=2)
    finish(whole)
    for cut in cuts:
        stop_at(make_spec("cut", seq_len_warmup={"seq_len": 8, "until_fraction": 0.5}, grad_accum_steps=2), cut)
    again = make_spec("cut", seq_len_warmup={"seq_len": 8, "until_fraction": 0.5}, grad_accum_steps=2)
    finish(again)
    assert outcome(again.run) == outcome(whole.run)


def stop_at(spec, step: int) -> None:
    events = train(spec)
    for event in events:
        if isinstance(event, TrainStep) and event.step == step:
            events.close()
            return
    raise AssertionError(f"there was no step {step}")


def test_dropout_must_be_seeded_per_step(make_spec, finish, outcome, monkeypatch):
    """The inverse: with dropout not seeded by the step, the resumed run differs."""
    whole = make_spec("whole")
    finish(whole)
    monkeypatch.setattr("peasy.training.learner.seeded_step", lambda seed, step: __import__("contextlib").nullcontext())
    stop_at(make_spec("cut"), 5)
    torch.rand(17)
    again = make_spec("cut")
    finish(again)
    assert outcome(again.run)["weights"] != outcome(whole.run)["weights"]


def test_global_random_state_is_restored(make_spec, finish):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    finish(make_spec(steps=2))
    assert torch.equal(torch.rand(3), expected)


def test_damaged_checkpoint_falls_back_with_warning(make_spec, finish, outcome):
    whole = make_spec("whole")
    finish(whole)
    stop_at(make_spec("cut"), 8)
    newest = make_spec("cut").run / "checkpoints" / "step-000008"
    damage(newest / "state.safetensors")
    again = make_spec("cut")
    events = finish(again)
    assert events[0].step == 6
    assert "step-000008 is damaged; step-000006 is used instead" in events[0].warning
    assert outcome(again.run) == outcome(whole.run)


def damage(path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_training_starts_over_if_all_checkpoints_are_damaged(make_spec, finish, outcome):
    whole = make_spec("whole", steps=6)
    finish(whole)
    stop_at(make_spec("cut", steps=6), 4)
    for folder in (whole.run.parent / "cut" / "checkpoints").iterdir():
        damage(folder / "model.safetensors")
    again = make_spec("cut", steps=6)
    events = finish(again)
    assert events[0].step == 0
    assert "training starts over" in events[0].warning
    assert outcome(again.run) == outcome(whole.run)


def test_finished_run_stays_finished(make_spec, finish):
    finish(make_spec(steps=4))
    events = finish(make_spec(steps=4))
    assert kinds(events) == ["started", "finished"]
    assert events[0].step == 4


def test_longer_budget_continues_a_finished_run(make_spec, finish):
    finish(make_spec(steps=4))
    events = finish(make_spec(steps=6))
    assert [event.step for event in events if isinstance(event, TrainStep)] == [5, 6]


def test_only_newest_checkpoints_are_kept(make_spec, finish):
    spec = make_spec(steps=12, num_saves=12, keep_checkpoints=2)
    finish(spec)
    assert sorted(folder.name for folder in (spec.run / "checkpoints").iterdir()) == ["step-000011", "step-000012"]


def test_second_process_on_one_run_is_rejected(make_spec):
    first = train(make_spec())
    next(first)
    with pytest.raises(RunLocked):
        next(train(make_spec()))
    first.close()
    next(train(make_spec()))


def test_closing_saves_the_current_step(make_spec):
    spec = make_spec(num_saves=0)
    stop_at(spec, 7)
    assert [folder.name for folder in (spec.run / "checkpoints").iterdir()] == ["step-000007"]


def test_closing_before_the_first_step_saves_nothing(make_spec):
    spec = make_spec()
    events = train(spec)
    next(events)
    events.close()
    assert not list((spec.run / "checkpoints").iterdir())


class Ticking:
    """Clock that advances by `tick` at each call."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def test_time_budget_ends_run_and_schedule(make_spec, finish):
    settings = {"num_saves": 2, "num_validations": 0, "num_samplings": 0, "schedule": {"min_lr_ratio": 0.0}}
    events = finish(make_spec(minutes=1.0, clock=Ticking(0.5), **settings))
    steps = [event for event in events if isinstance(event, TrainStep)]
    assert 60 <= events[-1].elapsed_seconds < 66
    assert len(steps) > 10
    assert steps[-1].lr < 0.1 * max(step.lr for step in steps)
    assert steps[0].eta_seconds > steps[-1].eta_seconds


def test_final_validation_is_bounded_under_a_time_budget(make_spec, finish):
    settings = {
        "minutes": 0.2, "num_saves": 0, "num_validations": 1, "num_samplings": 0, "validation_tokens": 16,
        "batch_size": 1,
    }  # fmt: skip
    slow_clock = finish(make_spec("slow", clock=Ticking(0.5), **settings))
    fast_clock = finish(make_spec("fast", clock=Ticking(0.0001), **settings | {"minutes": 0.0005}))
    tokens = [event.tokens for events in (slow_clock, fast_clock) for event in events if isinstance(event, Validated)]
    assert 16 <= tokens[0] < tokens[-1] == len(make_spec().data_loader.valid) - 1


def test_small_run_trains_on_more_tokens_than_it_validates(make_spec, finish):
    """Few validation tokens during the run; at the end no more than were trained on."""
    spec = make_spec(steps=10, num_validations=5, validation_tokens=10_000, num_saves=0, num_samplings=0, batch_size=1)
    validation_tokens = [event.tokens for event in finish(spec) if isinstance(event, Validated)]
    assert len(validation_tokens) == 5
    assert max(validation_tokens[:-1]) <= 2 * spec.recipe.seq_len  # one batch of validation windows
    assert validation_tokens[-1] == len(spec.data_loader.valid) - 1


def test_resumed_run_has_the_remaining_time(make_spec, finish):
    clock = Ticking(0.5)
    settings = {"minutes": 1.0, "num_saves": 0, "num_validations": 0, "num_samplings": 0}
    uninterrupted = finish(make_spec("whole", clock=Ticking(0.5), **settings))
    whole = [event for event in uninterrupted if isinstance(event, TrainStep)]
    stop_at(make_spec("cut", clock=clock, **settings), 5)
    clock.now += 10_000  # time between stopping and resuming
    rest = [event for event in finish(make_spec("cut", clock=clock, **settings)) if isinstance(event, TrainStep)]
    assert rest[0].step == 6
    assert abs(rest[-1].step - whole[-1].step) <= 2
    assert rest[-1].elapsed_seconds < 66


def test_sequence_length_warmup(make_spec, finish):
    warmup = {"seq_len": 4, "until_fraction": 0.5}
    spec = make_spec(steps=4, seq_len_warmup=warmup, num_saves=0, num_samplings=0, num_validations=0)
    seen = []
    batch = spec.data_loader.batch
    spec.data_loader.batch = lambda position, rows, context: (
        seen.append((position, rows, context)) or batch(position, rows, context)
    )
    finish(spec)
    assert seen == [(0, 16, 4), (16, 16, 4), (8, 4, 16), (12, 4, 16)]  # 32 windows of 4 are 8 of 16


def test_attention_snapshots_are_recorded(make_spec, finish):
    spec = make_spec(steps=4, num_saves=4)
    finish(spec)
    records = read_snapshots(spec.run)
    assert [record.step for record in records] == [1, 2, 3, 4]
    weights = records[0].weights["decoder.0.attention"]
    assert weights.shape == (2, 4, 4)
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(2, 4), atol=2e-3, rtol=0)
    assert records[0].sentence.pieces == ("a", "b", "c", "d")
    assert not torch.equal(weights, records[-1].weights["decoder.0.attention"])


@pytest.mark.parametrize("save", [1, 3])
def test_stopped_run_records_a_snapshot(make_spec, finish, save):
    """The snapshot is deleted on resume; regular snapshots remain, once each."""
    spec = make_spec(steps=9, num_saves=save)
    stop_at(spec, 3)
    assert [record.step for record in read_snapshots(spec.run)] == [3]
    finish(make_spec(steps=9, num_saves=save))
    assert [record.step for record in read_snapshots(spec.run)] == ([9] if save == 1 else [3, 6, 9])


def test_leftovers_of_killed_writer_are_removed(make_spec, finish):
    spec = make_spec(steps=2)
    shutil.copytree(spec.run, spec.run / "checkpoints" / ".step-000001.part-1-ab", ignore=lambda *_: ["checkpoints"])
    finish(spec)
    assert not list((spec.run / "checkpoints").glob(".*"))


def test_crashes_skip_and_repeat_no_sample(make_spec, finish):
    """Only unsaved steps are repeated; the final weights have seen each sample once."""
    steps, seen = 24, {}
    for crash in [*range(2, 22, 2), None]:
        spec = make_spec(steps=steps, num_saves=steps, num_samplings=0, num_validations=0)
        batch = spec.data_loader.batch
        requested = []
        spec.data_loader.batch = lambda position, rows, context, requested=requested, batch=batch: (
            requested.append(range(position, position + rows)) or batch(position, rows, context)
        )
        events = train(spec)
        try:
            for event in events:
                if isinstance(event, TrainStep):
                    seen[event.step] = requested[-1]
                    if event.step == crash:
                        events.throw(RuntimeError("crash"))  # before this step could be saved
        except RuntimeError:
            continue
    assert [position for step in sorted(seen) for position in seen[step]] == list(range(4 * steps))


def test_bfloat16_resumes_bit_exactly(make_spec, finish, outcome):
    whole, cut = make_spec("whole", precision="bfloat16", steps=6), make_spec("cut", precision="bfloat16", steps=6)
    events = finish(whole)
    assert events[0].precision == "bfloat16"
    stop_at(cut, 3)
    again = make_spec("cut", precision="bfloat16", steps=6)
    finish(again)
    assert outcome(again.run) == outcome(whole.run)
    assert next(again.model.parameters()).dtype == torch.float32


def test_every_training_step_runs_the_compiled_forward_pass(make_spec, finish, monkeypatch):
    """Validation and sampling do not: their lengths vary, and each would be compiled again."""
    calls = []

    def compiled(function):
        return lambda ids, **inputs: calls.append(ids.shape) or function(ids, **inputs)

    monkeypatch.setattr(torch, "compile", compiled)
    spec = make_spec(steps=3, compile=True)
    finish(spec)
    assert len(calls) == 3
    plain = make_spec("plain", steps=3)
    finish(plain)
    assert len(calls) == 3


def test_sinks_receive_every_event(make_spec, finish):
    received = []
    events = finish(make_spec(steps=3, sinks=[received.append]))
    assert received == events


def test_long_run_saves_without_request(make_spec, finish, monkeypatch):
    monkeypatch.setattr(loop, "_MAX_SAVE_INTERVAL", 5.0)
    events = finish(make_spec(steps=10, num_saves=0, num_validations=0, num_samplings=0, clock=Ticking(1.0)))
    assert len([event for event in events if isinstance(event, Saved)]) > 2


SCRIPTED_LOSSES = [3.0, 2.0, 2.5, 2.1, 1.0, 1.0, 1.0]
EARLY = {"steps": 14, "num_validations": 7, "num_saves": 1, "num_samplings": 0, "keep_checkpoints": 1, "patience": 2}


@pytest.fixture
def scripted_validation(monkeypatch):
    """Every second step is validated, with the losses above."""
    original = loop._validate

    def scripted(spec, learner, progress, *args, **kwargs):
        validated = original(spec, learner, progress, *args, **kwargs)
        return replace(validated, loss=SCRIPTED_LOSSES[progress.step // 2 - 1])

    monkeypatch.setattr(loop, "_validate", scripted)


def checkpoint_names(spec) -> list[str]:
    return sorted(folder.name for folder in (spec.run / "checkpoints").glob("step-*"))


@pytest.mark.usefixtures("scripted_validation")
def test_early_stopping_ends_a_run_that_no_longer_improves(make_spec, finish):
    spec = make_spec(**EARLY)
    events = finish(spec)
    assert [event.loss for event in events if isinstance(event, Validated)] == [3.0, 2.0, 2.5, 2.1]
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.step, last.best_step, last.best_loss) == (8, 4, 2.0)
    assert checkpoint_names(spec) == ["step-000004", "step-000008"]  # the best one, beside the newest
    assert is_intact(last.folder)
    assert last.folder.name == "step-000008"


@pytest.mark.usefixtures("scripted_validation")
@pytest.mark.parametrize("cut", [3, 4, 5, 7])
def test_early_stopping_remembers_validations_before_an_interruption(make_spec, finish, outcome, cut):
    whole = make_spec("whole", **EARLY)
    finish(whole)
    stop_at(make_spec("cut", **EARLY), cut)
    again = make_spec("cut", **EARLY)
    events = finish(again)
    assert events[-1].step == 8
    assert outcome(again.run) == outcome(whole.run)
    assert "step-000004" in checkpoint_names(again)


@pytest.mark.usefixtures("scripted_validation")
def test_a_run_that_stopped_early_goes_on_with_more_patience_only(make_spec, finish):
    finish(make_spec(**EARLY))
    assert [event.event for event in finish(make_spec(**EARLY))] == ["started", "finished"]
    events = finish(make_spec(**EARLY | {"patience": 3}))
    assert [event.loss for event in events if isinstance(event, Validated)] == [1.0, 1.0, 1.0]
    assert (events[-1].step, events[-1].best_step) == (14, None)  # it ended with its budget


@pytest.mark.usefixtures("scripted_validation")
def test_patience_that_is_given_on_resume_counts_from_there(make_spec, finish):
    """No checkpoint was kept for the validations before: none of them is named as the best one."""
    finish(make_spec(**EARLY | {"steps": 8, "num_validations": 4, "patience": None}))
    events = finish(make_spec(**EARLY))
    assert [event.loss for event in events if isinstance(event, Validated)] == [1.0, 1.0, 1.0]
    spec = make_spec(**EARLY)
    assert (events[-1].step, events[-1].best_step, "step-000010" in checkpoint_names(spec)) == (14, 10, True)


def test_without_patience_the_budget_is_used(make_spec, finish):
    spec = make_spec(steps=14, num_validations=7, num_saves=7, num_samplings=0, keep_checkpoints=1)
    events = finish(spec)
    assert (events[-1].step, events[-1].best_step) == (14, None)
    assert checkpoint_names(spec) == ["step-000014"]
