"""Training loop: a generator of events. Closing it stops training and saves a checkpoint."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from peasy.models.protocol import Model
from peasy.text import Tokenizer
from peasy.training import attention
from peasy.training.chance import generator
from peasy.training.event import Event, Finished, Sampled, Saved, Started, Step, Validated, data
from peasy.training.feed import Feed
from peasy.training.finite import check_weights
from peasy.training.journal import Journal, trim
from peasy.training.learner import CountingLearner, GradientLearner, Learner
from peasy.training.lock import locked
from peasy.training.objective import Batch, Counting, Objective
from peasy.training.optimizer import Optimizer
from peasy.training.precision import cast, choose_precision
from peasy.training.recipe import Recipe
from peasy.training.schedule import Budget, Clock, due
from peasy.training.sink import Sink, open_sink
from peasy.training.state import Place, clean, latest_state, load_state, save_state, weights_hash

METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
Write = Callable[[Model, int], Sampled]
"""Generates samples from a model; called with the number of steps trained so far."""

_FULL = 50
"""The last validation may use this many times `validation_tokens`."""

_GLANCE = 16
"""Intermediate validations use at most one token per this many training tokens."""

_LATE = 0.1
"""With a time budget, the last validation may take at most this fraction of the budget in addition."""

_SAVE_SECONDS = 600.0
"""Save at least this often, however long the run is."""


@dataclass(frozen=True)
class Task:
    """Inputs of the training loop: run folder, recipe, model, objective, data loader, sampling function.

    `target_tokenizer` is the tokenizer of a translator's targets, if it differs.
    """

    run: Path
    recipe: Recipe
    model: Model
    objective: Objective
    feed: Feed
    tokenizer: Tokenizer | None = None
    write: Write | None = None
    sentence: attention.Sentence | None = None
    sinks: Sequence[Sink | str] = ()
    clock: Clock = time.monotonic
    warning: str | None = None
    answers: Tokenizer | None = None


def train(task: Task) -> Iterator[Event]:
    """Train from the state of the run folder and yield events.

    Closing the generator stops the run: the current step is completed and a checkpoint written.
    """
    with locked(task.run):
        clean(task.run)
        with Run(task) as run:
            yield from run.events()


class Run:
    """Running training loop. Public methods are overridden by the distributed loop."""

    learner: Learner
    place: Place
    saved: Path | None
    warning: str | None

    def __init__(self, task: Task) -> None:
        self.task, self.recipe, self.model = task, task.recipe, task.model
        self.device = str(task.model.device)
        self.precision = choose_precision(task.recipe.precision, self.device)
        self.take_up()
        self.budget = _budget(task, self.place)
        self.done = self.budget.done(self.place.step)
        self.seconds_per_step, self.last_save = 0.0, self.budget.elapsed
        self.loss: float | None = None
        self.valid: float | None = None
        self.sinks: list[Sink] = []
        self.open()

    def take_up(self) -> None:
        """Create the learner and restore the latest checkpoint of the run folder."""
        self.learner = _choose_learner(self.task, self.precision)
        self.saved, damaged = latest_state(self.task.run)
        self.warning = " ".join(filter(None, (damaged, self.task.warning))) or None
        self.place = Place() if self.saved is None else load_state(self.saved, self.model, self.learner.optimizer)

    def open(self) -> None:
        """Open the logs, truncated to the restored step."""
        run, recipe = self.task.run, self.recipe
        for name in (METRICS, SAMPLES):
            trim(run / name, self.place.step)
        attention.trim_records(run, self.place.step)
        self.metrics, self.samples = Journal(run / METRICS), Journal(run / SAMPLES)
        self.sinks = [open_sink(sink, run) for sink in (*recipe.sinks, *self.task.sinks)]

    def __enter__(self) -> Self:
        self.model.train()
        return self

    def __exit__(self, *error: object) -> None:
        self.metrics.close()
        self.samples.close()
        self.model.eval()

    def events(self) -> Iterator[Event]:
        """Yield all events until the budget is used up."""
        yield self.tell(self._started())
        while self.done < 1.0:
            step_events = self._step()
            for event in step_events:
                try:
                    yield event
                except GeneratorExit:
                    for _ in step_events:  # complete the step before saving, so that no event is lost
                        pass
                    self.save()
                    self.watch(stopped=True)
                    raise
        folder = self.saved or self.save().folder
        digest, place = weights_hash(self.model.state_dict()), self.place
        yield self.tell(Finished(place.step, folder, digest, self.loss, self.valid, place.tokens, self.budget.elapsed))

    def _started(self) -> Started:
        recipe, minutes = self.recipe, self.recipe.minutes
        return Started(
            self.task.run, self.place.step, recipe.seed, self.model.count_parameters(),
            self.budget.steps, minutes, self.precision, self.device, self.warning,
        )  # fmt: skip

    def _step(self) -> Iterator[Event]:
        before = self.done
        yield self.tell(self._learn(before))
        if due(self.recipe.validate, before, self.done) and (validated := self._validate()) is not None:
            yield self.tell(validated)
        if self.task.write is not None and due(self.recipe.sample, before, self.done):
            yield self.tell(self.sample(self.task.write))
        if due(self.recipe.save, before, self.done):
            self.watch()
        late = self.budget.elapsed - self.last_save > _SAVE_SECONDS
        if late or self.done >= 1.0 or due(self.recipe.save, before, self.done):
            yield self.save()

    def _learn(self, before: float) -> Step:
        start, place = self.task.clock(), self.place
        rows, context = self.recipe.rows_and_context(before)
        position = _moved(place, rows, context)
        batch = self.task.feed.batch(position, rows, context)
        batch = self.task.objective.prepare(batch, self.model.config, generator(self.recipe.seed, position))
        lr_scale = self.recipe.schedule.factor(self._middle(before))
        result = self.learner.learn(_parts(batch, self.recipe.accumulate, self.device), place.step + 1, lr_scale)
        tokens = batch["ids"].numel() + (batch["source"].numel() if "source" in batch else 0)
        elapsed = self.budget.elapsed
        self.place = Place(place.step + 1, position + rows, context, place.tokens + tokens, elapsed)
        self.done, self.loss = self.budget.done(self.place.step), result.loss
        seconds = max(self.task.clock() - start, 1e-9)
        self.seconds_per_step = 0.9 * self.seconds_per_step + 0.1 * seconds if self.seconds_per_step else seconds
        left = self.budget.left(self.place.step, self.seconds_per_step)
        lr = self.recipe.optimizer.lr * lr_scale
        rate = tokens / self.seconds_per_step
        return Step(self.place.step, result.loss, lr, result.norm, self.place.tokens, rate, elapsed, left)

    def _middle(self, before: float) -> float:
        """Evaluate the schedule at the middle of a step, so that no step has learning rate 0."""
        return before if self.budget.steps is None else before + 0.5 / self.budget.steps

    @torch.inference_mode()
    def _validate(self) -> Validated | None:
        """Return the mean validation loss: on a subset during the run, on more at the end."""
        objective, total, count = self.task.objective, 0.0, 0
        last = self.done >= 1.0
        context = self.recipe.context if last else self.place.context
        max_tokens = self._to_validate(last)
        rows = max(1, min(2 * self.recipe.batch, 16_384 // context))
        deadline = math.inf if self.budget.seconds is None else self.budget.elapsed + _LATE * self.budget.seconds
        self.model.eval()
        for number, batch in enumerate(self.task.feed.held_out(rows, context)):
            batch = objective.prepare(batch, self.model.config, generator(self.recipe.seed, 0, number))
            batch = {name: array.to(self.device) for name, array in batch.items()}
            with cast(self.precision, self.device):
                total += float(objective.total(self.model, batch))
            count += objective.count(batch)
            if count >= max_tokens or (
                count >= min(max_tokens, self.recipe.valid_tokens) and self.budget.elapsed > deadline
            ):
                break
        self.model.train()
        if not count or not math.isfinite(total):
            return None
        self.valid = total / count
        return Validated(self.place.step, self.valid, count, self.budget.elapsed)

    def _to_validate(self, last: bool) -> int:
        """Number of validation tokens: few in a small run, so that validation never takes longer than training."""
        configured, trained = self.recipe.valid_tokens, self.place.tokens
        return min(_FULL * configured, max(configured, trained)) if last else min(configured, trained // _GLANCE)

    def sample(self, write: Write) -> Sampled:
        """Generate samples; raise if the weights are NaN or infinite."""
        check_weights(self.model, self.place.step)
        self.model.eval()
        sampled = write(self.model, self.place.step)
        self.model.train()
        return sampled

    def watch(self, stopped: bool = False) -> None:
        """Record the attention of the tracked sentence, if any; `stopped` marks the snapshot of an interrupted run."""
        if self.task.sentence is not None:
            self.model.eval()
            self.record(self.task.sentence, stopped)
            self.model.train()

    def record(self, sentence: attention.Sentence, stopped: bool) -> None:
        """Write the attention weights of that sentence to a file."""
        attention.record(self.task.run, self.place.step, self.model, sentence, stopped=stopped)

    def save(self) -> Saved:
        """Flush the metrics first, then write the checkpoint that refers to them."""
        self.place = replace(self.place, elapsed=self.budget.elapsed)
        self.metrics.keep()
        self.samples.keep()
        recipe, place = self.recipe, self.place
        optimizer = self.learner.optimizer
        tokenizers = self.task.tokenizer, self.task.answers
        self.saved = save_state(self.task.run, self.model, optimizer, place, *tokenizers, keep=recipe.keep)
        self.last_save = self.budget.elapsed
        event = Saved(place.step, self.saved, weights_hash(self.model.state_dict()))
        self.tell(event)
        return event

    def tell(self, event: Event) -> Event:
        """Log an event, pass it to the sinks, and return it."""
        (self.samples if isinstance(event, Sampled) else self.metrics).write(data(event))
        for sink in self.sinks:
            sink(event)
        return event


def _choose_learner(task: Task, precision: str) -> Learner:
    if isinstance(task.objective, Counting):
        return CountingLearner(task.model, task.objective)
    recipe = task.recipe
    optimizer = Optimizer(task.model, recipe.optimizer, bfloat16=precision == "bfloat16")
    return GradientLearner(
        task.model,
        task.objective,
        optimizer,
        seed=recipe.seed,
        clip=recipe.clip,
        precision=precision,
        compile=recipe.compile,
    )


def _budget(task: Task, place: Place) -> Budget:
    recipe, steps = task.recipe, task.recipe.steps
    if steps is None and recipe.minutes is None:  # one epoch
        rows, context = recipe.rows_and_context(1.0)
        steps = max(1, task.feed.samples(context) // rows)
    return Budget(steps, recipe.minutes, spent=place.elapsed, clock=task.clock)


def _moved(place: Place, rows: int, context: int) -> int:
    """Start of the next batch: the end of the last one, converted to samples of the current length."""
    position = place.position
    if place.context not in (0, context):
        position = -(-position * place.context // context)
    return position + -position % rows


def _parts(batch: Batch, parts: int, device: str) -> list[Batch]:
    """Split a batch into equal micro-batches on the model's device."""
    on_device = batch if device == "cpu" else {name: array.to(device) for name, array in batch.items()}
    if parts == 1:
        return [on_device]
    chunks = {name: array.chunk(parts) for name, array in on_device.items()}
    return [{name: pieces[i] for name, pieces in chunks.items()} for i in range(len(next(iter(chunks.values()))))]
