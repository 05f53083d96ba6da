"""Training loop: a generator of events. Closing it stops training and saves a checkpoint."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from peasy.models.protocol import Model
from peasy.parameters import Record
from peasy.tokenization import Tokenizer
from peasy.training import learner as learning
from peasy.training.attention_snapshots import TrackedSentence, trim_snapshots, write_snapshot
from peasy.training.data_loader import DataLoader
from peasy.training.event import Event, Finished, Sampled, Saved, Started, TrainStep, Validated
from peasy.training.learner import Learner, choose_precision, seeded_generator
from peasy.training.metrics_log import MetricsRecorder, Sink
from peasy.training.objective import Objective
from peasy.training.recipe import Recipe
from peasy.training.run_folder import run_lock
from peasy.training.schedule import Budget, Clock, due
from peasy.training.state import Checkpointer, Progress, latest_state, load_state, remove_leftovers, weights_hash

_FINAL_VALIDATION_FACTOR = 50
"""The last validation may use this many times `validation_tokens`."""

_TRAIN_TOKENS_PER_VALIDATION_TOKEN = 16
"""Intermediate validations use at most one token per this many training tokens, so that they take less time."""

_VALIDATION_OVERTIME = 0.1
"""With a time budget, the last validation may take at most this fraction of the budget in addition."""

SampleFn = Callable[[Model, int], Sampled]
"""Generates samples from a model; called with the number of steps trained so far."""

_MAX_SAVE_INTERVAL = 600.0
"""Save at least this often, however long the run is."""


class TrainSpec(Record):
    """Inputs of the training loop: run folder, recipe, model, objective, data loader, sampling function.

    `target_tokenizer` is the tokenizer of a translator's targets, if it differs.
    """

    run: Path
    recipe: Recipe
    model: Model
    objective: Objective
    data_loader: DataLoader
    tokenizer: Tokenizer | None = None
    sample_fn: SampleFn | None = None
    tracked_sentence: TrackedSentence | None = None
    sinks: Sequence[Sink | str] = ()
    clock: Clock = time.monotonic
    warning: str | None = None
    target_tokenizer: Tokenizer | None = None

    def with_warning(self, warning: str | None) -> "TrainSpec":
        """Return these inputs with a further warning, if there is one."""
        return replace(self, warning=" ".join(filter(None, (warning, self.warning))) or None)


def train(spec: TrainSpec) -> Iterator[Event]:
    """Train from the state of the run folder and yield events.

    Closing the generator stops the run: the current step is completed and a checkpoint written.
    """
    with run_lock(spec.run):
        remove_leftovers(spec.run)
        learner = learning.make_learner(spec.model, spec.objective, spec.recipe)
        folder, damaged = latest_state(spec.run)
        progress = Progress() if folder is None else load_state(folder, spec.model, learner.optimizer)
        trim_snapshots(spec.run, progress.step)
        spec = spec.with_warning(damaged)
        with MetricsRecorder(spec.run, progress.step, (*spec.recipe.sinks, *spec.sinks)) as recorder:
            checkpointer = make_checkpointer(spec, folder)
            yield from TrainLoop(spec, learner, recorder, checkpointer, progress).events()


def make_checkpointer(spec: TrainSpec, newest: Path | None) -> Checkpointer:
    """Return the checkpointer of a run whose model has just been restored from its `newest` checkpoint, if any."""
    sha256 = "" if newest is None else weights_hash(spec.model.state_dict())
    recipe, tokenizers = spec.recipe, (spec.tokenizer, spec.target_tokenizer)
    keep_best = recipe.patience is not None
    return Checkpointer(spec.run, recipe.keep_checkpoints, *tokenizers, newest, sha256, keep_best)


class TrainLoop:
    """Training loop: batch, loss, backward pass, optimizer step, then the validation, samples and checkpoint due."""

    def __init__(
        self,
        spec: TrainSpec,
        learner: Learner,
        recorder: MetricsRecorder,
        checkpointer: Checkpointer,
        progress: Progress,
    ) -> None:
        self.spec, self.learner, self.recorder, self.device = spec, learner, recorder, str(spec.model.device)
        self.checkpointer, self.progress = checkpointer, progress
        recipe, steps = spec.recipe, spec.recipe.steps
        if steps is None and recipe.minutes is None:  # one epoch
            batch_size, seq_len = recipe.batch_shape(1.0)
            steps = max(1, spec.data_loader.num_samples(seq_len) // batch_size)
        self.budget = Budget(steps, recipe.minutes, spent=progress.elapsed, clock=spec.clock)
        self.fraction_done = 1.0 if self._has_converged() else self.budget.progress(progress.step)
        self.seconds_per_step, self.last_save_time = 0.0, self.budget.elapsed
        self.loss: float | None = None
        self.validation_loss: float | None = None

    def events(self) -> Iterator[Event]:
        """Yield all events until the budget is used up, or the run is stopped."""
        self.spec.model.train()
        try:
            recipe = self.spec.recipe
            started = Started(
                self.spec.run, self.progress.step, recipe.seed, self.spec.model.count_parameters(), self.budget.steps,
                recipe.minutes, choose_precision(recipe.precision, self.device), self.device, self.spec.warning,
            )  # fmt: skip
            yield self.recorder.record(started)
            steps = self._steps()
            for event in steps:
                try:
                    yield event
                except GeneratorExit:
                    self.learner.request_stop()
                    for _ in steps:  # complete the step and save, so that no event is lost
                        pass
                    raise
            if not self.learner.stopping:
                yield self.recorder.record(self._finished())
        finally:
            self.spec.model.eval()

    def _steps(self) -> Iterator[Event]:
        while self.fraction_done < 1.0:
            for event in self._step():
                yield self.recorder.record(event)
            if self.learner.stopping:
                yield self.recorder.record(self._save())
                self._write_snapshot(stopped=True)
                return

    def _step(self) -> Iterator[Event]:
        recipe, before = self.spec.recipe, self.fraction_done
        yield self._train_step(before)
        after, last = self.fraction_done, self.fraction_done >= 1.0
        is_best = False
        if due(recipe.num_validations, before, after):
            validated = _validate(self.spec, self.learner, self.progress, self.budget, last=last)
            if validated is not None:
                self.validation_loss = validated.loss
                if recipe.patience is not None:
                    self.progress = self.progress.with_validation(validated.loss)
                    is_best = self.progress.num_worse == 0
                yield validated
                if self._has_converged():
                    self.fraction_done, last = 1.0, True
        if self.spec.sample_fn is not None and due(recipe.num_samplings, before, after):
            yield _sample(self.learner, self.spec.sample_fn, self.progress.step)
        save_due = due(recipe.num_saves, before, after)
        if save_due:
            self._write_snapshot()
        if save_due or last or is_best or self.budget.elapsed - self.last_save_time > _MAX_SAVE_INTERVAL:
            yield self._save()

    def _train_step(self, fraction_before: float) -> TrainStep:
        spec, recipe, progress, start = self.spec, self.spec.recipe, self.progress, self.spec.clock()
        batch_size, seq_len = recipe.batch_shape(fraction_before)
        position = progress.samples  # the end of the last batch, in samples of the current length
        if progress.seq_len not in (0, seq_len):
            position = -(-position * progress.seq_len // seq_len)
        position += -position % batch_size
        batch = spec.data_loader.batch(position, batch_size, seq_len)
        batch = spec.objective.prepare(batch, spec.model.config, seeded_generator(recipe.seed, position))
        # in the middle of a step, so that no step has learning rate 0
        middle = fraction_before if self.budget.steps is None else fraction_before + 0.5 / self.budget.steps
        lr_scale = recipe.schedule.lr_scale(middle)
        micro_batches = learning.split_batch(batch, recipe.grad_accum_steps, self.device)
        self.loss, grad_norm = self.learner.step(micro_batches, progress.step + 1, lr_scale)
        tokens = batch["ids"].numel() + (batch["source"].numel() if "source" in batch else 0)
        elapsed, step = self.budget.elapsed, progress.step + 1
        self.progress = replace(
            progress, step=step, samples=position + batch_size, seq_len=seq_len, tokens=progress.tokens + tokens,
            elapsed=elapsed,
        )  # fmt: skip
        self.fraction_done = self.budget.progress(step)
        seconds = max(spec.clock() - start, 1e-9)
        self.seconds_per_step = 0.9 * self.seconds_per_step + 0.1 * seconds if self.seconds_per_step else seconds
        return TrainStep(
            step, self.loss, recipe.optimizer.lr * lr_scale, grad_norm, self.progress.tokens,
            tokens / self.seconds_per_step, elapsed, self.budget.seconds_left(step, self.seconds_per_step),
        )  # fmt: skip

    def _has_converged(self) -> bool:
        """Return whether early stopping ends the run: too many validations since the one with the lowest loss."""
        patience = self.spec.recipe.patience
        return patience is not None and self.progress.num_worse >= patience

    def _write_snapshot(self, stopped: bool = False) -> None:
        """Record the attention of the tracked sentence, if any; `stopped` marks the snapshot of an interrupted run."""
        sentence = self.spec.tracked_sentence
        if sentence is not None:
            with self.learner.inference_model() as model:
                if model is not None:
                    write_snapshot(self.spec.run, self.progress.step, model, sentence, stopped=stopped)

    def _save(self) -> Saved:
        """Flush the metrics first, then write the checkpoint that refers to them."""
        self.progress = replace(self.progress, elapsed=self.budget.elapsed)
        self.recorder.flush()
        saved = self.checkpointer.save(self.learner, self.progress)
        self.last_save_time = self.budget.elapsed
        return saved

    def _finished(self) -> Finished:
        progress, newest = self.progress, self.checkpointer.newest
        assert newest is not None, "the last step is always saved"
        facts = (self.checkpointer.sha256, self.loss, self.validation_loss, progress.tokens, self.budget.elapsed)
        best = (progress.best_step, progress.best_loss) if self._has_converged() else (None, None)
        return Finished(progress.step, newest, *facts, *best)


@torch.no_grad()  # not inference_mode: FSDP gathers weights in here, and trains with them afterwards
def _validate(spec: TrainSpec, learner: Learner, progress: Progress, budget: Budget, *, last: bool) -> Validated | None:
    """Return the mean validation loss: on a subset during the run, on more at the end.

    None without validation data, or if the loss is not finite.
    """
    recipe, device = spec.recipe, str(spec.model.device)
    seq_len, max_tokens = recipe.seq_len if last else progress.seq_len, recipe.validation_tokens
    if last:
        max_tokens = min(_FINAL_VALIDATION_FACTOR * max_tokens, max(max_tokens, progress.tokens))
    else:
        max_tokens = min(max_tokens, progress.tokens // _TRAIN_TOKENS_PER_VALIDATION_TOKEN)
    batch_size = max(1, min(2 * recipe.batch_size, 16_384 // seq_len))
    deadline = math.inf if budget.seconds is None else budget.elapsed + _VALIDATION_OVERTIME * budget.seconds
    precision = choose_precision(recipe.precision, device)
    total, count = 0.0, 0
    spec.model.eval()
    for number, batch in enumerate(spec.data_loader.validation(batch_size, seq_len)):
        batch = spec.objective.prepare(batch, spec.model.config, seeded_generator(recipe.seed, 0, number))
        batch = {name: array.to(device) for name, array in batch.items()}
        with learning.autocast(precision, device):
            total += float(learner.loss_sum(batch))
        count += spec.objective.num_targets(batch)
        is_enough = count >= min(max_tokens, recipe.validation_tokens)
        if count >= max_tokens or (is_enough and budget.elapsed > deadline):
            break
    spec.model.train()
    if not count or not math.isfinite(total):
        return None
    return Validated(progress.step, total / count, count, budget.elapsed)


def _sample(learner: Learner, sample_fn: SampleFn, step: int) -> Sampled:
    with learner.inference_model() as model:
        if model is None:
            return Sampled(step, (), ())
        learning.check_weights_finite(model, step)
        return sample_fn(model, step)
