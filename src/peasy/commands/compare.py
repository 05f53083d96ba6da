"""`compare`: train and evaluate several kinds of model on the same data, with the same budget and seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from peasy.checkpoint.paths import find_runs, run_path
from peasy.commands.evaluate import EvaluateResult, EvaluationMetric, evaluate
from peasy.commands.load import load
from peasy.commands.recipe_changes import DataSource, recipe_changes
from peasy.commands.result import JsonDict, Result
from peasy.commands.runs import Run, open_run
from peasy.commands.train import train_events
from peasy.datasets import open_corpus
from peasy.errors import UsageError
from peasy.models.preset import ModelSize
from peasy.parameters import Record
from peasy.training.run_folder import random_run_name
from peasy.views.document import Curves, Document, DocumentPart, Paragraph, Table, format_duration

if TYPE_CHECKING:
    from peasy.training.event import Event

_OnTrainingEvent = Callable[[str, "Event"], None]
"""Called with the kind in training and its training event."""

_LOWER_IS_BETTER = ("bits per byte", "loss")
_MEASURES = ("loss", "bits per byte", "accuracy", "ending accuracy", "BLEU", "exact match",
             "retrieval accuracy", "nearest-neighbour accuracy")  # fmt: skip


class ComparedModel(Record):
    """Trained model in a comparison. `curve` is (seconds, y)."""

    kind: str
    run: str
    parameters: int
    tokens: int
    seconds: float
    metrics: tuple[EvaluationMetric, ...]
    curve: tuple[tuple[float, float], ...] = ()


class CompareResult(Result):
    """Result of `compare`: models ranked by `metric`, best first; `run_folders` are their run folders by kind."""

    dataset: str
    budget: str
    seed: int
    metric: str
    models: tuple[ComparedModel, ...]
    notes: tuple[str, ...] = ()
    run_folders: Mapping[str, Path] = field(default_factory=dict, repr=False)

    @property
    def kinds(self) -> str:
        """The compared kinds, best first."""
        return ", ".join(model.kind for model in self.models)

    def document(self) -> Document:
        """The table of measures and the loss curves."""
        names = list(dict.fromkeys(metric.name for model in self.models for metric in model.metrics))
        rows: list[tuple[str, ...]] = []
        for model in self.models:
            values = {metric.name: metric.short for metric in model.metrics}
            counts = (f"{model.parameters:,}", f"{model.tokens:,}", format_duration(model.seconds))
            rows.append((model.kind, *counts, *(values.get(name, "") for name in names)))
        curve = self.metric if self.metric == "bits per byte" else "loss"  # what is known during training
        lines = tuple((model.kind, model.curve) for model in self.models if model.curve)
        parts: tuple[DocumentPart, ...] = (
            Paragraph(f"{self.dataset}, {self.budget}, seed {self.seed}. Ranked by {self.metric}, best first."),
            Table(("kind", "parameters", "training tokens", "time", *names), tuple(rows)),
            *([Curves(f"Validation {curve}", lines, "seconds", curve)] if lines else []),
            *(Paragraph(note, "note") for note in self.notes),
        )
        return Document(f"{self.kinds} on {self.dataset}", parts)

    def data(self) -> JsonDict:
        plain = super().data()
        models = [
            {name: value for name, value in row.items() if name != "metrics"}
            | {"measures": {metric.name: metric.value for metric in model.metrics}}
            for row, model in zip(plain["models"], self.models, strict=True)
        ]
        return {"measure": plain.pop("metric"), "data": plain.pop("dataset"), **plain, "models": models}

    def __repr__(self) -> str:
        return f"CompareResult({self.kinds} on {self.dataset})"


def compare(
    kinds: Sequence[str],
    data: DataSource,
    *,
    preset: ModelSize | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: str = "auto",
    name: str | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    max_samples: int | None = 500,
    on_event: _OnTrainingEvent | None = None,
) -> CompareResult:
    """Train several kinds on the same data, with the same budget and seed, and evaluate them alike.

    Each becomes a run `NAME-KIND` that can be loaded and inspected. An n-gram model makes one pass over the data,
    whatever the budget: more would not change its counts.

    Args:
        kinds: Model kinds to train, two or more.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        preset: Size of the models; default: small.
        minutes: Training time of each model; default: 1.
        steps: Number of training steps of each model, instead of minutes.
        seed: Random seed of weights, order of samples and dropout.
        name: Prefix of the run names; default: a random name.
        lr: Learning rate: the setting optimizer.lr.
        batch_size: Number of sequences per step: the setting batch_size.
        config: File of settings in TOML or JSON, with the same names as --set.
        settings: Changes to all recipes, as in `train`.
        max_samples: Maximum number of samples to evaluate on.
        on_event: Called with the kind in training and its training event.

    >>> compare(["gpt"], "copy")
    Traceback (most recent call last):
    peasy.errors.UsageError: A comparison needs at least two kinds of model.
    """
    if len(set(kinds)) < 2:
        raise UsageError("A comparison needs at least two kinds of model.", hint="For example: gpt rnn cnn ngram")
    if len(set(kinds)) < len(kinds):
        raise UsageError(f"A kind is given twice: {' '.join(kinds)}.")
    if minutes is None and steps is None:
        minutes = 1.0
    changes = recipe_changes(settings, config=config)
    corpus = open_corpus(data, **changes.get("data_options", {}))
    name = name or random_run_name({run.rpartition("-")[0] for run in find_runs()})
    models: list[ComparedModel] = []
    folders: dict[str, Path] = {}
    for kind in kinds:
        folder = run_path(f"{name}-{kind}")
        one_pass = kind == "ngram"
        for event in train_events(
            kind, data, preset=preset, minutes=None if one_pass else minutes, steps=None if one_pass else steps,
            seed=seed, device=device, run=folder, lr=None if one_pass else lr, batch_size=batch_size, settings=changes,
        ):  # fmt: skip
            if on_event is not None:
                on_event(kind, event)
        folders[kind] = folder
        loaded = load(folder, device=device)
        evaluation, size = evaluate(loaded, corpus, max_samples=max_samples), loaded.model.count_parameters()
        models.append(_compared_model(kind, open_run(folder), evaluation, size))
    # The first measure that all models have.
    values = [{metric.name: metric.value for metric in model.metrics} for model in models]
    shared = set.intersection(*map(set, values))
    measure = next((name for name in ("bits per byte", "exact match", *_MEASURES) if name in shared), "")
    sign = 1 if measure in _LOWER_IS_BETTER else -1
    order = sorted(range(len(models)), key=lambda index: sign * values[index].get(measure, math.inf))
    notes = ["Bits per byte are comparable across tokenizers; loss per token only with the same tokenizer."]
    if "ngram" in kinds:
        notes.append("The n-gram model made one pass over the data.")
    budget = f"{minutes:g} minutes each" if minutes is not None else f"{steps:,} steps each"
    ranked = tuple(models[index] for index in order)
    return CompareResult(corpus.name, budget, seed, measure, ranked, tuple(notes), folders)


def _compared_model(kind: str, run: Run, evaluation: EvaluateResult, size: int) -> ComparedModel:
    facts = run.facts()
    metrics = {metric.name: metric for metric in evaluation.metrics}
    measures = tuple(metrics[name] for name in _MEASURES if name in metrics)
    validations = [line for line in run.metrics if line["event"] == "validated"]
    # From nats per token to bits per byte, for this tokenizer on these data.
    values = evaluation.measures
    scale = values["bits per byte"] / values["loss"] if "bits per byte" in values and values.get("loss") else 1.0
    curve = tuple((line["elapsed_seconds"], line["loss"] * scale) for line in validations)
    return ComparedModel(kind, run.name, size, facts.tokens, facts.elapsed, measures, curve)
