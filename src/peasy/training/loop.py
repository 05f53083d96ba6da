"""Training loop: a generator of events. Closing it stops training and saves a checkpoint."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from peasy.models.protocol import Model
from peasy.tokenization import Tokenizer
from peasy.training import attention_snapshots
from peasy.training.data_loader import DataLoader
from peasy.training.event import Event, Finished, Sampled, Saved, Started, TrainStep, Validated, event_data
from peasy.training.learner import CountingLearner, GradientLearner, Learner
from peasy.training.lock import run_lock
from peasy.training.metrics_log import MetricsLog, truncate_log
from peasy.training.nan_check import check_weights_finite
from peasy.training.objective import Batch, NGramCounting, Objective
from peasy.training.optimizer import Optimizer
from peasy.training.precision import autocast, choose_precision
from peasy.training.recipe import Recipe
from peasy.training.rng import seeded_generator
from peasy.training.schedule import Budget, Clock, due
from peasy.training.sink import Sink, open_sink
from peasy.training.state import Progress, latest_state, load_state, remove_leftovers, save_state, weights_hash

METRICS_FILE, SAMPLES_FILE = "metrics.jsonl", "samples.jsonl"
SampleFn = Callable[[Model, int], Sampled]
"""Generates samples from a model; called with the number of steps trained so far."""

_FINAL_VALIDATION_FACTOR = 50
"""The last validation may use this many times `validation_tokens`."""

_TRAIN_TOKENS_PER_VALIDATION_TOKEN = 16
"""Intermediate validations use at most one token per this many training tokens."""

_VALIDATION_OVERTIME = 0.1
"""With a time budget, the last validation may take at most this fraction of the budget in addition."""

_MAX_SAVE_INTERVAL = 600.0
"""Save at least this often, however long the run is."""


@dataclass(frozen=True)
class TrainSpec:
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
    tracked_sentence: attention_snapshots.TrackedSentence | None = None
    sinks: Sequence[Sink | str] = ()
    clock: Clock = time.monotonic
    warning: str | None = None
    target_tokenizer: Tokenizer | None = None


def train(spec: TrainSpec) -> Iterator[Event]:
    """Train from the state of the run folder and yield events.

    Closing the generator stops the run: the current step is completed and a checkpoint written.
    """
    with run_lock(spec.run):
        remove_leftovers(spec.run)
        with TrainLoop(spec) as run:
            yield from run.events()


class TrainLoop:
    """Running training loop. Public methods are overridden by the distributed loop."""

    learner: Learner
    progress: Progress
    last_checkpoint: Path | None
    warning: str | None

    def __init__(self, spec: TrainSpec) -> None:
        self.spec, self.recipe, self.model = spec, spec.recipe, spec.model
        self.device = str(spec.model.device)
        self.precision = choose_precision(spec.recipe.precision, self.device)
        self.restore()
        self.budget = _make_budget(spec, self.progress)
        self.fraction_done = self.budget.progress(self.progress.step)
        self.seconds_per_step, self.last_save_time = 0.0, self.budget.elapsed
        self.loss: float | None = None
        self.validation_loss: float | None = None
        self.sinks: list[Sink] = []
        self.open_logs()

    def restore(self) -> None:
        """Create the learner and restore the latest checkpoint of the run folder."""
        self.learner = _make_learner(self.spec, self.precision)
        self.last_checkpoint, damaged = latest_state(self.spec.run)
        self.warning = " ".join(filter(None, (damaged, self.spec.warning))) or None
        self.progress = (
            Progress()
            if self.last_checkpoint is None
            else load_state(self.last_checkpoint, self.model, self.learner.optimizer)
        )

    def open_logs(self) -> None:
        """Open the logs, truncated to the restored step."""
        run, recipe = self.spec.run, self.recipe
        for name in (METRICS_FILE, SAMPLES_FILE):
            truncate_log(run / name, self.progress.step)
        attention_snapshots.trim_snapshots(run, self.progress.step)
        self.metrics, self.samples = MetricsLog(run / METRICS_FILE), MetricsLog(run / SAMPLES_FILE)
        self.sinks = [open_sink(sink, run) for sink in (*recipe.sinks, *self.spec.sinks)]

    def __enter__(self) -> Self:
        self.model.train()
        return self

    def __exit__(self, *error: object) -> None:
        self.metrics.close()
        self.samples.close()
        self.model.eval()

    def events(self) -> Iterator[Event]:
        """Yield all events until the budget is used up."""
        yield self.emit(self._started())
        while self.fraction_done < 1.0:
            step_events = self._run_step()
            for event in step_events:
                try:
                    yield event
                except GeneratorExit:
                    for _ in step_events:  # complete the step before saving, so that no event is lost
                        pass
                    self.save()
                    self.record_attention(stopped=True)
                    raise
        folder = self.last_checkpoint or self.save().folder
        digest, progress = weights_hash(self.model.state_dict()), self.progress
        yield self.emit(
            Finished(
                progress.step, folder, digest, self.loss, self.validation_loss, progress.tokens, self.budget.elapsed
            )
        )

    def _started(self) -> Started:
        recipe, minutes = self.recipe, self.recipe.minutes
        return Started(
            self.spec.run, self.progress.step, recipe.seed, self.model.count_parameters(),
            self.budget.steps, minutes, self.precision, self.device, self.warning,
        )  # fmt: skip

    def _run_step(self) -> Iterator[Event]:
        before = self.fraction_done
        yield self.emit(self._train_step(before))
        if due(self.recipe.num_validations, before, self.fraction_done) and (validated := self._validate()) is not None:
            yield self.emit(validated)
        if self.spec.sample_fn is not None and due(self.recipe.num_samplings, before, self.fraction_done):
            yield self.emit(self.sample(self.spec.sample_fn))
        if due(self.recipe.num_saves, before, self.fraction_done):
            self.record_attention()
        late = self.budget.elapsed - self.last_save_time > _MAX_SAVE_INTERVAL
        if late or self.fraction_done >= 1.0 or due(self.recipe.num_saves, before, self.fraction_done):
            yield self.save()

    def _train_step(self, fraction_before: float) -> TrainStep:
        start, progress = self.spec.clock(), self.progress
        batch_size, seq_len = self.recipe.batch_shape(fraction_before)
        position = _next_position(progress, batch_size, seq_len)
        batch = self.spec.data_loader.batch(position, batch_size, seq_len)
        batch = self.spec.objective.prepare(batch, self.model.config, seeded_generator(self.recipe.seed, position))
        lr_scale = self.recipe.schedule.lr_scale(self._schedule_position(fraction_before))
        result = self.learner.step(
            _split_batch(batch, self.recipe.grad_accum_steps, self.device), progress.step + 1, lr_scale
        )
        tokens = batch["ids"].numel() + (batch["source"].numel() if "source" in batch else 0)
        elapsed = self.budget.elapsed
        self.progress = Progress(progress.step + 1, position + batch_size, seq_len, progress.tokens + tokens, elapsed)
        self.fraction_done, self.loss = self.budget.progress(self.progress.step), result.loss
        seconds = max(self.spec.clock() - start, 1e-9)
        self.seconds_per_step = 0.9 * self.seconds_per_step + 0.1 * seconds if self.seconds_per_step else seconds
        left = self.budget.seconds_left(self.progress.step, self.seconds_per_step)
        lr = self.recipe.optimizer.lr * lr_scale
        rate = tokens / self.seconds_per_step
        return TrainStep(
            self.progress.step, result.loss, lr, result.grad_norm, self.progress.tokens, rate, elapsed, left
        )

    def _schedule_position(self, fraction_before: float) -> float:
        """Evaluate the schedule at the middle of a step, so that no step has learning rate 0."""
        return fraction_before if self.budget.steps is None else fraction_before + 0.5 / self.budget.steps

    @torch.inference_mode()
    def _validate(self) -> Validated | None:
        """Return the mean validation loss: on a subset during the run, on more at the end."""
        objective, total, count = self.spec.objective, 0.0, 0
        last = self.fraction_done >= 1.0
        seq_len = self.recipe.seq_len if last else self.progress.seq_len
        max_tokens = self._num_validation_tokens(last)
        batch_size = max(1, min(2 * self.recipe.batch_size, 16_384 // seq_len))
        deadline = (
            math.inf
            if self.budget.seconds is None
            else self.budget.elapsed + _VALIDATION_OVERTIME * self.budget.seconds
        )
        self.model.eval()
        for number, batch in enumerate(self.spec.data_loader.validation(batch_size, seq_len)):
            batch = objective.prepare(batch, self.model.config, seeded_generator(self.recipe.seed, 0, number))
            batch = {name: array.to(self.device) for name, array in batch.items()}
            with autocast(self.precision, self.device):
                total += float(objective.loss_sum(self.model, batch))
            count += objective.num_targets(batch)
            if count >= max_tokens or (
                count >= min(max_tokens, self.recipe.validation_tokens) and self.budget.elapsed > deadline
            ):
                break
        self.model.train()
        if not count or not math.isfinite(total):
            return None
        self.validation_loss = total / count
        return Validated(self.progress.step, self.validation_loss, count, self.budget.elapsed)

    def _num_validation_tokens(self, last: bool) -> int:
        """Number of validation tokens: few in a small run, so that validation never takes longer than training."""
        configured, trained = self.recipe.validation_tokens, self.progress.tokens
        return (
            min(_FINAL_VALIDATION_FACTOR * configured, max(configured, trained))
            if last
            else min(configured, trained // _TRAIN_TOKENS_PER_VALIDATION_TOKEN)
        )

    def sample(self, sample_fn: SampleFn) -> Sampled:
        """Generate samples; raise if the weights are NaN or infinite."""
        check_weights_finite(self.model, self.progress.step)
        self.model.eval()
        sampled = sample_fn(self.model, self.progress.step)
        self.model.train()
        return sampled

    def record_attention(self, stopped: bool = False) -> None:
        """Record the attention of the tracked sentence, if any; `stopped` marks the snapshot of an interrupted run."""
        if self.spec.tracked_sentence is not None:
            self.model.eval()
            self.write_attention(self.spec.tracked_sentence, stopped)
            self.model.train()

    def write_attention(self, sentence: attention_snapshots.TrackedSentence, stopped: bool) -> None:
        """Write the attention weights of that sentence to a file."""
        attention_snapshots.write_snapshot(self.spec.run, self.progress.step, self.model, sentence, stopped=stopped)

    def save(self) -> Saved:
        """Flush the metrics first, then write the checkpoint that refers to them."""
        self.progress = replace(self.progress, elapsed=self.budget.elapsed)
        self.metrics.flush()
        self.samples.flush()
        recipe, progress = self.recipe, self.progress
        optimizer = self.learner.optimizer
        tokenizers = self.spec.tokenizer, self.spec.target_tokenizer
        self.last_checkpoint = save_state(
            self.spec.run, self.model, optimizer, progress, *tokenizers, keep=recipe.keep_checkpoints
        )
        self.last_save_time = self.budget.elapsed
        event = Saved(progress.step, self.last_checkpoint, weights_hash(self.model.state_dict()))
        self.emit(event)
        return event

    def emit(self, event: Event) -> Event:
        """Log an event, pass it to the sinks, and return it."""
        (self.samples if isinstance(event, Sampled) else self.metrics).write(event_data(event))
        for sink in self.sinks:
            sink(event)
        return event


def _make_learner(spec: TrainSpec, precision: str) -> Learner:
    if isinstance(spec.objective, NGramCounting):
        return CountingLearner(spec.model, spec.objective)
    recipe = spec.recipe
    optimizer = Optimizer(spec.model, recipe.optimizer, bfloat16=precision == "bfloat16")
    return GradientLearner(
        spec.model,
        spec.objective,
        optimizer,
        seed=recipe.seed,
        grad_clip=recipe.grad_clip,
        precision=precision,
        compile=recipe.compile,
    )


def _make_budget(spec: TrainSpec, progress: Progress) -> Budget:
    recipe, steps = spec.recipe, spec.recipe.steps
    if steps is None and recipe.minutes is None:  # one epoch
        batch_size, seq_len = recipe.batch_shape(1.0)
        steps = max(1, spec.data_loader.num_samples(seq_len) // batch_size)
    return Budget(steps, recipe.minutes, spent=progress.elapsed, clock=spec.clock)


def _next_position(progress: Progress, batch_size: int, seq_len: int) -> int:
    """Start of the next batch: the end of the last one, converted to samples of the current length."""
    position = progress.samples
    if progress.seq_len not in (0, seq_len):
        position = -(-position * progress.seq_len // seq_len)
    return position + -position % batch_size


def _split_batch(batch: Batch, num_parts: int, device: str) -> list[Batch]:
    """Split a batch into equal micro-batches on the model's device."""
    on_device = batch if device == "cpu" else {name: array.to(device) for name, array in batch.items()}
    if num_parts == 1:
        return [on_device]
    chunks = {name: array.chunk(num_parts) for name, array in on_device.items()}
    return [{name: pieces[i] for name, pieces in chunks.items()} for i in range(len(next(iter(chunks.values()))))]
