"""Data-parallel training (DDP or FSDP2); rank 0 logs and saves.

DDP replicates the weights, FSDP2 shards them. The global batch does not depend on the number of processes, so neither
does the loss curve, and a run may resume with another number of processes.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from peasy.checkpoint.store import read_checkpoint
from peasy.checkpoint.tensors import TensorFile
from peasy.corpora import share
from peasy.errors import InvalidInput
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model
from peasy.training import attention, loop, sharded
from peasy.training.chance import drawing
from peasy.training.crew import Crew
from peasy.training.event import Event, Finished, Sampled, Saved
from peasy.training.finite import Diverged, broken
from peasy.training.learner import GradientLearner, Learned
from peasy.training.lock import locked
from peasy.training.objective import Batch, Contrastive, Counting, Objective
from peasy.training.optimizer import Optimizer
from peasy.training.precision import cast
from peasy.training.state import CHECKPOINTS, STATE, Place, clean, latest_state, load_state, save_state, weights_hash


def train(task: loop.Task, crew: Crew) -> Iterator[Event]:
    """Train like `loop.train`, in one or several processes; the recipe chooses DDP or FSDP."""
    if crew.alone:
        yield from loop.train(task)
        return
    if isinstance(task.objective, Counting):
        raise InvalidInput(
            "An n-gram model is trained in a single process.", hint="Run without torchrun and --processes."
        )
    crew.wish = crew.stopping = False
    with locked(task.run) if crew.lead else contextlib.nullcontext():
        if crew.lead:
            clean(task.run)
        crew.meet()
        with SharedRun(replace(task, clock=crew.clock), crew) as run:
            yield from _until_closed(run.events(), crew)


def _until_closed(events: Iterator[Event], crew: Crew) -> Iterator[Event]:
    """Turn closing the generator into a stop request; all ranks stop together after the same step."""
    for event in events:
        try:
            yield event
        except GeneratorExit:
            crew.wish = True
            for _ in events:
                pass
            raise


class Asked(nn.Module):
    """Model and objective as one module (batch in, summed loss out), to be wrapped by DDP or FSDP."""

    def __init__(self, model: Model, objective: Objective, crew: Crew) -> None:
        super().__init__()
        self.model, self.objective, self.crew = model, objective, crew

    def forward(self, batch: Batch) -> Tensor:
        """Return the summed loss of these sequences."""
        if isinstance(self.objective, Contrastive) and torch.is_grad_enabled():
            return self._among_all(batch)
        return self.objective.total(self.model, batch)

    def _among_all(self, batch: Batch) -> Tensor:
        """Use the texts of all ranks as negatives: full loss on each rank, gradients for its own rows."""
        model: Any = self.model
        embed = model.embed
        model.embed = lambda *ids, **more: self.crew.gather(embed(*ids, **more))
        try:
            total = self.objective.total(model, batch)
        finally:
            del model.embed
        return total.detach() / self.crew.size + (total - total.detach())


class SharedLearner(GradientLearner):
    """Gradient learner of one rank: computes its rows of every micro-batch; gradients are summed over all ranks."""

    def __init__(self, crew: Crew, asked: nn.Module, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.crew, self.asked = crew, asked

    def learn(self, parts: Sequence[Batch], step: int, factor: float) -> Learned:
        """Do one training step on all ranks."""
        count = sum(map(self.objective.count, parts))
        local_parts = [rows_of(part, self.crew) for part in parts]
        self.optimizer.forget_gradients()
        loss = 0.0
        with self._compiled(), self._drawing(step), self.crew.watched():
            for number, part in enumerate(local_parts):
                with self._quietly(number + 1 < len(local_parts)), cast(self.precision, self.device):
                    total = self.asked(part) / count
                    (total * self.crew.size).backward()  # DDP and FSDP average gradients over ranks
                loss += float(total.detach())
            norm = float(self.optimizer.clip(self.clip))
        loss = self.crew.settle(loss)
        if broken(loss) or broken(norm):
            raise self._blame(parts, count, step)
        with self.crew.watched():
            self.optimizer.step(factor)
        return Learned(loss, norm)

    def _drawing(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Seed dropout differently on each rank."""
        return drawing(self.seed + self.crew.rank, step) if self._draws else contextlib.nullcontext()

    def _quietly(self, more_to_come: bool) -> contextlib.AbstractContextManager[None]:
        """Skip gradient synchronisation except for the last micro-batch."""
        if more_to_come and isinstance(self.asked, DistributedDataParallel):
            return self.asked.no_sync()
        return contextlib.nullcontext()

    def _blame(self, parts: Sequence[Batch], count: int, step: int) -> Diverged:
        if isinstance(self.asked, DistributedDataParallel):
            return super()._blame(parts, count, step)
        hint = "Lower the learning rate (--set optimizer.lr=...), and continue from the last checkpoint with --resume."
        return Diverged(f"Step {step}: the loss or its gradient is NaN or infinite.", hint=hint)


class _Together(Objective):
    """Validation objective: splits the rows over the ranks if possible; every rank gets the sum."""

    kind = "together"

    def __init__(self, objective: Objective, asked: nn.Module, crew: Crew) -> None:
        self.inner, self.asked, self.crew = objective, asked, crew

    def prepare(self, batch: Batch, config: Any, chance: torch.Generator) -> Batch:
        return self.inner.prepare(batch, config, chance)

    def count(self, batch: Batch) -> int:
        return self.inner.count(batch)

    def total(self, model: Model, batch: Batch) -> Tensor:
        loss_module = self.asked.module if isinstance(self.asked, DistributedDataParallel) else self.asked
        rows = len(batch["ids"])
        if rows % self.crew.size or isinstance(self.inner, Contrastive):
            return loss_module(batch)
        return self.crew.add(loss_module(rows_of(batch, self.crew)).detach().clone())


def rows_of(batch: Batch, crew: Crew) -> Batch:
    """Return this rank's rows of a batch; labels are kept whole."""
    rows = share(len(batch["ids"]), world=crew.size, rank=crew.rank)
    return {name: array if name == "label" else array[rows] for name, array in batch.items()}


class SharedRun(loop.Run):
    """Training loop of one rank: all ranks do the same steps, only rank 0 writes."""

    def __init__(self, task: loop.Task, crew: Crew) -> None:
        self.crew, self.way = crew, task.recipe.parallel
        self.digest = ""
        super().__init__(task)

    def take_up(self) -> None:
        """Restore rank 0's latest checkpoint on all ranks, then wrap the model and create the optimizer."""
        task, crew = self.task, self.crew
        folder, self.warning = latest_state(task.run) if crew.lead else (None, None)
        path = crew.agree("" if folder is None else str(folder))
        self.saved = Path(path) if path else None
        self.place = Place() if self.saved is None else load_state(self.saved, task.model, None)
        self.digest = weights_hash(task.model.state_dict()) if crew.lead else ""
        loss_module = self._share(Asked(task.model, task.objective, crew))
        learner = self._learner(loss_module)
        if self.saved is not None:
            file = TensorFile(read_checkpoint(self.saved, verified=True).folder, STATE)
            learner.optimizer.restore({name: file.tensor(name) for name in file.info})
        self.learner = learner
        self.task = replace(task, objective=_Together(task.objective, loss_module, crew))

    def _share(self, asked: Asked) -> nn.Module:
        if self.way == "fsdp":
            sharded.shard(asked, self.device)
            return asked
        with self.crew.watched():
            # Not every objective uses an encoder's pooler or head.
            unused = isinstance(self.model, Encoder)
            return DistributedDataParallel(asked, find_unused_parameters=unused)

    def _learner(self, asked: nn.Module) -> SharedLearner:
        recipe, objective = self.recipe, self.task.objective
        optimizer_class = sharded.ShardedOptimizer if self.way == "fsdp" else Optimizer
        optimizer = optimizer_class(self.model, recipe.optimizer, bfloat16=self.precision == "bfloat16")
        return SharedLearner(
            self.crew, asked, self.model, objective, optimizer, seed=recipe.seed, clip=recipe.clip,
            precision=self.precision, compile=recipe.compile and self.way == "ddp",
        )  # fmt: skip

    def open(self) -> None:
        """Open the logs on rank 0 only."""
        if self.crew.lead:
            super().open()

    def __exit__(self, *error: object) -> None:
        if self.crew.lead:
            super().__exit__(*error)

    def events(self) -> Iterator[Event]:
        """Yield all events until the budget is used up or all ranks agree to stop."""
        yield self.tell(self._started())
        while self.done < 1.0:
            yield from self._step()
            if self.crew.stopping:
                self.save()
                return
        folder = self.saved or self.save().folder
        step, tokens, elapsed = self.place.step, self.place.tokens, self.budget.elapsed
        yield self.tell(Finished(step, folder, self.digest, self.loss, self.valid, tokens, elapsed))

    def sample(self, write: loop.Write) -> Sampled:
        """Generate samples on rank 0; the other ranks only take part in gathering the model."""
        model = self._whole()
        sampled = Sampled(self.place.step, (), ()) if model is None else write(model, self.place.step)
        self.crew.agree()
        self.model.train()
        return sampled

    def record(self, sentence: attention.Sentence, stopped: bool) -> None:
        """Write the attention snapshot on rank 0."""
        model = self._whole()
        if model is not None:
            attention.record(self.task.run, self.place.step, model, sentence, stopped=stopped)
        self.crew.agree()

    def _whole(self) -> Model | None:
        """Return the full model in eval mode on rank 0; all ranks must call it."""
        if self.way == "fsdp":
            with self.crew.watched():
                return sharded.gather(self.model, keep=self.crew.lead)
        return self.model.eval() if self.crew.lead else None

    def tell(self, event: Event) -> Event:
        """Emit the event on rank 0 only."""
        return super().tell(event) if self.crew.lead else event

    def save(self) -> Saved:
        """Write one checkpoint on rank 0, identical to that of a single process."""
        self.place = replace(self.place, elapsed=self.budget.elapsed)
        target = self.task.run / CHECKPOINTS / f"step-{self.place.step:06}"
        model, optimizer = self._gathered(target)
        self.saved, self.last_save = target, self.budget.elapsed
        if self.crew.lead:
            self.metrics.keep()
            self.samples.keep()
            tokenizers = self.task.tokenizer, self.task.answers
            save_state(self.task.run, model, optimizer, self.place, *tokenizers, keep=self.recipe.keep)
            self.digest = weights_hash(model.state_dict())
        self.crew.agree()  # the other ranks wait until rank 0 has written
        event = Saved(self.place.step, target, self.digest)
        self.tell(event)
        return event

    def _gathered(self, target: Path) -> tuple[Any, Any]:
        optimizer = self.learner.optimizer
        assert optimizer is not None
        if self.way == "ddp":
            return self.model, optimizer
        with self.crew.watched():
            shards = target.with_name(f".{target.name}.part-shards")
            gathered = sharded.consolidate(shards, self.model, optimizer, lead=self.crew.lead)
        return gathered or (None, None)
