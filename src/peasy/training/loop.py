"""The one loop of training: a generator of events. Closing it is stopping, and stopping saves."""

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
"""Lets a model write; called with the number of steps it has learned."""

_FULL = 50
"""The last validation may look at so many times as much as those before it."""

_GLANCE = 16
"""On the way at most one token is looked at for so many that were learned from."""

_LATE = 0.1
"""The last validation of a run of minutes may take this share of them again, and no more."""

_SAVE_SECONDS = 600.0
"""However long a run is, at most so much of it is lost."""


@dataclass(frozen=True)
class Task:
    """What the loop needs: a run folder, a recipe, a model to change, and where batches and samples come from.

    `answers` is the tokenizer of a translator's targets, where that is another one.
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
    """Train, from where the run folder stands, and tell what happens.

    Whoever closes the generator stops the run: what belongs to the last step is finished, and a checkpoint written.
    """
    with locked(task.run):
        clean(task.run)
        with Run(task) as run:
            yield from run.events()


class Run:
    """A run while it runs. What several processes do in another way are the methods without an underscore."""

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
        """A learner, and the state that the run folder holds."""
        self.learner = _choose_learner(self.task, self.precision)
        self.saved, damaged = latest_state(self.task.run)
        self.warning = " ".join(filter(None, (damaged, self.task.warning))) or None
        self.place = Place() if self.saved is None else load_state(self.saved, self.model, self.learner.optimizer)

    def open(self) -> None:
        """The records, cut to where the run stands."""
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
        """Everything that happens until the budget is used up."""
        yield self.tell(self._started())
        while self.done < 1.0:
            happening = self._step()
            for event in happening:
                try:
                    yield event
                except GeneratorExit:
                    for _ in happening:  # a step is saved with all that belongs to it, so that nothing is missed
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
        if due(self.recipe.validate, before, self.done) and (found := self._validate()) is not None:
            yield self.tell(found)
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
        factor = self.recipe.schedule.factor(self._middle(before))
        learned = self.learner.learn(_parts(batch, self.recipe.accumulate, self.device), place.step + 1, factor)
        tokens = batch["ids"].numel() + (batch["source"].numel() if "source" in batch else 0)
        elapsed = self.budget.elapsed
        self.place = Place(place.step + 1, position + rows, context, place.tokens + tokens, elapsed)
        self.done, self.loss = self.budget.done(self.place.step), learned.loss
        seconds = max(self.task.clock() - start, 1e-9)
        self.seconds_per_step = 0.9 * self.seconds_per_step + 0.1 * seconds if self.seconds_per_step else seconds
        left = self.budget.left(self.place.step, self.seconds_per_step)
        lr = self.recipe.optimizer.lr * factor
        rate = tokens / self.seconds_per_step
        return Step(self.place.step, learned.loss, lr, learned.norm, self.place.tokens, rate, elapsed, left)

    def _middle(self, before: float) -> float:
        """A step that is counted stands for its middle: the first is not of size 0, nor the last."""
        return before if self.budget.steps is None else before + 0.5 / self.budget.steps

    @torch.inference_mode()
    def _validate(self) -> Validated | None:
        """The mean loss over held-out samples: some of them on the way, as many as is sensible at the end."""
        objective, total, count = self.task.objective, 0.0, 0
        last = self.done >= 1.0
        context = self.recipe.context if last else self.place.context
        most = self._to_validate(last)
        rows = max(1, min(2 * self.recipe.batch, 16_384 // context))
        latest = math.inf if self.budget.seconds is None else self.budget.elapsed + _LATE * self.budget.seconds
        self.model.eval()
        for number, batch in enumerate(self.task.feed.held_out(rows, context)):
            batch = objective.prepare(batch, self.model.config, generator(self.recipe.seed, 0, number))
            batch = {name: array.to(self.device) for name, array in batch.items()}
            with cast(self.precision, self.device):
                total += float(objective.total(self.model, batch))
            count += objective.count(batch)
            if count >= most or (count >= min(most, self.recipe.valid_tokens) and self.budget.elapsed > latest):
                break
        self.model.train()
        if not count or not math.isfinite(total):
            return None
        self.valid = total / count
        return Validated(self.place.step, self.valid, count, self.budget.elapsed)

    def _to_validate(self, last: bool) -> int:
        """How many held-out tokens to look at: in a small run few, so that looking never takes longer than learning."""
        wanted, learned = self.recipe.valid_tokens, self.place.tokens
        return min(_FULL * wanted, max(wanted, learned)) if last else min(wanted, learned // _GLANCE)

    def sample(self, write: Write) -> Sampled:
        """What the model writes now; weights that are no numbers are told as such."""
        check_weights(self.model, self.place.step)
        self.model.eval()
        found = write(self.model, self.place.step)
        self.model.train()
        return found

    def watch(self, stopped: bool = False) -> None:
        """Where the model looks now, if there is a sentence to look at; of a run that is stopped, out of turn."""
        if self.task.sentence is not None:
            self.model.eval()
            self.record(self.task.sentence, stopped)
            self.model.train()

    def record(self, sentence: attention.Sentence, stopped: bool) -> None:
        """The weights of that sentence, in a file."""
        attention.record(self.task.run, self.place.step, self.model, sentence, stopped=stopped)

    def save(self) -> Saved:
        """Metrics first, then the checkpoint that vouches for them."""
        self.place = replace(self.place, elapsed=self.budget.elapsed)
        self.metrics.keep()
        self.samples.keep()
        recipe, place = self.recipe, self.place
        optimizer = self.learner.optimizer
        cut = self.task.tokenizer, self.task.answers
        self.saved = save_state(self.task.run, self.model, optimizer, place, *cut, keep=recipe.keep)
        self.last_save = self.budget.elapsed
        event = Saved(place.step, self.saved, weights_hash(self.model.state_dict()))
        self.tell(event)
        return event

    def tell(self, event: Event) -> Event:
        """Write an event down, and hand it on."""
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
    if steps is None and recipe.minutes is None:  # once through the data
        rows, context = recipe.rows_and_context(1.0)
        steps = max(1, task.feed.samples(context) // rows)
    return Budget(steps, recipe.minutes, spent=place.elapsed, clock=task.clock)


def _moved(place: Place, rows: int, context: int) -> int:
    """Where the next batch starts: where the last one ended, counted in samples of the present length."""
    position = place.position
    if place.context not in (0, context):
        position = -(-position * place.context // context)
    return position + -position % rows


def _parts(batch: Batch, parts: int, device: str) -> list[Batch]:
    """A batch in equal parts, where the model is."""
    there = batch if device == "cpu" else {name: array.to(device) for name, array in batch.items()}
    if parts == 1:
        return [there]
    cut = {name: array.chunk(parts) for name, array in there.items()}
    return [{name: pieces[i] for name, pieces in cut.items()} for i in range(len(next(iter(cut.values()))))]
