"""Dry run of `plan`: trains a few real steps on the beginning of the data and measures time and memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from peasy.datasets import Corpus, Sample, prepare_shards
from peasy.datasets.sample import sample_texts

if TYPE_CHECKING:
    from peasy.training.estimate import ModelSizes
    from peasy.training.setup import RunSetup


class TruncatedCorpus(Corpus):
    """Corpus view: the first `characters` characters of the train split, a tenth of that of other splits."""

    def __init__(self, corpus: Corpus, characters: int) -> None:
        super().__init__()
        self.inner, self.max_characters = corpus, characters
        self.kind, self.name, self.splits = corpus.kind, corpus.name, corpus.splits

    def read(self, split: str) -> Iterator[Sample]:
        """Yield documents until the limit is reached."""
        return (sample for sample, _ in self.pieces(split))

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        """Yield documents, each with whether it ends there."""
        remaining = self.max_characters if split == "train" else self.max_characters // 10
        for sample, ends in self.inner.pieces(split):
            yield (sample[:remaining] if isinstance(sample, str) else sample), ends
            remaining -= sum(map(len, sample_texts(sample)))
            if remaining <= 0:
                return


@dataclass(frozen=True)
class DryRun:
    """Measurements of a few real training steps."""

    sizes: "ModelSizes | None"
    parameters: int
    activation_bytes: int
    tokens: int
    seconds: float
    tokens_per_character: float
    samples: int


def dry_run(setup: "RunSetup", corpus: Corpus, device: str, count: int = 3) -> DryRun:
    """Build the model, train a few steps on real batches, and discard everything."""
    from peasy.training.data_loader import SpecialTokens, make_data_loader
    from peasy.training.estimate import ModelSizes
    from peasy.training.objective import NGramCounting
    from peasy.training.rng import seeded_generator
    from peasy.training.setup import build_model

    recipe, objective = setup.recipe, setup.recipe.objective
    assert objective is not None, "set by resolve_setup"
    model = build_model(setup).to(device).train()
    learner = _make_learner(model, setup)
    rows, context = recipe.batch_shape(1.0)
    with TemporaryDirectory() as folder:
        shards = prepare_shards(corpus, setup.tokenizer, Path(folder) / "shards")
        loader = make_data_loader(
            shards,
            objective,
            model.config.special_tokens,
            SpecialTokens.from_tokenizer(setup.tokenizer),
            seed=recipe.seed,
            sample_unit=recipe.sample_unit,
        )
        times, tokens, activation_bytes = [], 0, 0
        for step in range(count + 1):
            batch = objective.prepare(
                loader.batch(step * rows, rows, context), model.config, seeded_generator(recipe.seed, step)
            )
            batch = {name: array.to(device) for name, array in batch.items()}
            if step == 0 and not isinstance(objective, NGramCounting):
                activation_bytes = measure_activations(model, objective, batch, recipe.precision)
            start = perf_counter()
            parts = [
                {k: a[i :: recipe.grad_accum_steps] for k, a in batch.items()} for i in range(recipe.grad_accum_steps)
            ]
            learner.step(parts, step + 1, 0.01)
            times.append(perf_counter() - start)
            tokens += batch["ids"].numel() + (batch["source"].numel() if "source" in batch else 0)
        characters = corpus.cached_survey.sizes["train"].characters
        train_tokens, samples = shards.num_tokens("train"), loader.num_samples(context)
    sizes = None if isinstance(objective, NGramCounting) else ModelSizes.of(model, recipe.optimizer)
    activation_bytes //= recipe.grad_accum_steps
    seconds = median(times[1:])
    per_character = train_tokens / max(characters, 1)
    parameters, tokens_per_step = model.count_parameters(), tokens // (count + 1)
    return DryRun(sizes, parameters, activation_bytes, tokens_per_step, seconds, per_character, samples)


def _make_learner(model: Any, setup: "RunSetup") -> Any:
    from peasy.training.learner import CountingLearner, GradientLearner
    from peasy.training.objective import NGramCounting
    from peasy.training.optimizer import Optimizer

    recipe, objective = setup.recipe, setup.recipe.objective
    if isinstance(objective, NGramCounting):
        return CountingLearner(model, objective)
    assert objective is not None
    optimizer = Optimizer(model, recipe.optimizer, bfloat16=recipe.precision == "bfloat16")
    return GradientLearner(
        model, objective, optimizer, seed=recipe.seed, grad_clip=recipe.grad_clip, precision=recipe.precision
    )


def measure_activations(model: Any, objective: Any, batch: Any, precision: str) -> int:
    """Return the bytes that autograd saves for the backward pass, without the weights."""
    import torch

    from peasy.training.precision import autocast

    weights = {weight.untyped_storage().data_ptr() for weight in model.state_dict().values()}
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast(precision, str(model.device)):
        objective.loss_sum(model, batch)
    return sum(saved.values())
