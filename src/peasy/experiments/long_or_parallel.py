"""`long-or-parallel`: n-gram, RNN, CNN and Transformer with the same budget: recall distance and speed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.commands.load import LoadedModel
from peasy.datasets import Corpus, Probe
from peasy.datasets.corpus import SyntheticConfig, SyntheticCorpus
from peasy.datasets.puzzles import Recall, RecallConfig
from peasy.experiments.models import time_call, train_temporary
from peasy.experiments.pronoun import story_hits
from peasy.experiments.result import ExperimentResult, OnStatus, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, least_above_chance
from peasy.extras import require_extra

if TYPE_CHECKING:
    from peasy.models.protocol import Model

KINDS = {"n-gram": "ngram", "RNN": "rnn", "CNN": "cnn", "Transformer": "gpt"}
_MODEL_SETTINGS: dict[str, dict[str, object]] = {
    "n-gram": {"order": 3},
    "RNN": {"d_model": 104},
    "CNN": {"d_model": 64, "num_layers": 4},
    "Transformer": {"d_model": 64},
}
"""About 100,000 parameters each; those of the n-gram model are counts."""
_RECALL_DISTANCES = (6, 12, 24, 48)
_SEQUENCE_LENGTHS = (32, 128, 512)
_CHANCE = 0.5
"""One of two values is right."""
_BATCH_SIZE = 32
_TOKENS_PER_STEP = 2048
"""Tokens per training step, for every sequence length."""


class _RecallCorpus(SyntheticCorpus[SyntheticConfig]):
    """The `recall` task with two keys, queried at one of several distances."""

    name = "recall"
    description = "recall the value of a key given some words earlier"

    def __init__(self, distances: Sequence[int], *, seed: int, size: int = 1) -> None:
        super().__init__(SyntheticConfig(num_train=size, num_valid=400), seed=seed)
        self.distances = tuple(distances)
        self.tasks = {distance: Recall(RecallConfig(distance=distance, num_pairs=2)) for distance in distances}
        settings = {"sample_unit": "documents", "seq_len": max(distances) + 8, "seq_len_warmup": None}
        self.suggested_settings = MappingProxyType({**settings, "batch_size": _BATCH_SIZE})

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Choose a distance, then a sample of `recall`."""
        return self.tasks[rng.choice(self.distances)].draw(rng)


@dataclass
class ArchitectureResult:
    """Results of one architecture: recalled samples by distance; by sequence length, seconds of training steps and per
    generated token."""

    parameters: int
    hits: dict[int, tuple[bool, ...]]
    layers: int = 1
    step_seconds: dict[int, tuple[float, ...]] = field(default_factory=dict)
    seconds_per_token: dict[int, float] = field(default_factory=dict)

    @property
    def recall(self) -> dict[int, float]:
        """Accuracy of recall by distance."""
        return {distance: float(np.mean(hits)) for distance, hits in self.hits.items()}

    @property
    def tokens_per_second(self) -> dict[int, float]:
        """Tokens per second in training, by sequence length; the fastest step counts, free of interruptions."""
        return {length: _TOKENS_PER_STEP / min(seconds) for length, seconds in self.step_seconds.items()}

    @property
    def recall_distance(self) -> int:
        """Longest distance up to which recall is significantly above chance; 0 if it never is."""

        def succeeds(distance: int) -> bool:
            return self.recall[distance] >= least_above_chance(len(self.hits[distance]), _CHANCE)

        reached = [*takewhile(succeeds, sorted(self.hits))]
        return reached[-1] if reached else 0


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 800, probes: int = 96,
    distances: Sequence[int] = _RECALL_DISTANCES, lengths: Sequence[int] = _SEQUENCE_LENGTHS,
    models: Sequence[str] = tuple(KINDS),
) -> ExperimentResult:  # fmt: skip
    """Train each architecture on the task, then measure speed by sequence length."""
    require_extra("torch")
    results = {}
    puzzles = _RecallCorpus(distances, seed=seed, size=steps * _BATCH_SIZE)
    for name in models:
        recaller = _train_architecture(name, puzzles, seed, steps, on_status)
        hits = {n: tuple(story_hits(recaller, validation_probes(n, probes, seed))) for n in distances}
        config: Any = recaller.model.config  # of one of the four architectures
        num_layers = 1 if recaller.model.trained_by == "counts" else int(getattr(config, "stack", config).num_layers)
        results[name] = ArchitectureResult(recaller.model.count_parameters(), hits, num_layers)
    for length in lengths:
        on_status(f"speed with sequences of {length} tokens ...")
        _measure_speed(results, length, max(lengths))
    return conclude(results, seed)


def _measure_speed(results: Mapping[str, ArchitectureResult], length: int, longest: int, repeats: int = 8) -> None:
    """Time training steps of all architectures in turn, so that other load slows all of them alike; then generation.

    Weights are random: speed does not depend on training.
    """
    from peasy.models.build import build
    from peasy.models.preset import preset

    models = {}
    for name in results:
        overrides = _MODEL_SETTINGS[name] | ({"max_seq_len": longest + 64} if name == "Transformer" else {})
        models[name] = build(preset(f"{KINDS[name]}-tiny", vocab_size=512, **overrides), seed=0)
    steps = {name: _training_step(model, length) for name, model in models.items()}
    for step in steps.values():
        step()  # the first step also allocates memory
    rounds = [{name: time_call(step) for name, step in steps.items()} for _ in range(repeats)]
    for name, result in results.items():
        result.step_seconds[length] = tuple(one[name] for one in rounds)
        result.seconds_per_token[length] = _seconds_per_token(models[name], length)


def _train_architecture(name: str, data: Corpus, seed: int, steps: int, on_status: OnStatus) -> LoadedModel:
    """Train one architecture; an n-gram model only counts."""
    tokenizer = {"algorithm": "words", "vocab_size": 64}
    settings = {"model": _MODEL_SETTINGS[name], "tokenizer": tokenizer}
    label = f"{name}, {data.name}"
    return train_temporary(KINDS[name], data, label, on_status, steps=steps, seed=seed, settings=settings).model


def validation_probes(distance: int, count: int, seed: int) -> list[Probe]:
    """Return validation samples at one distance."""
    corpus = _RecallCorpus([distance], seed=seed)
    return [corpus.probe(number, "valid") for number in range(count)]


def _training_step(model: "Model", length: int) -> Callable[[], None]:
    """Return a full training step with a fixed number of tokens."""
    import torch

    ids = torch.randint(5, 512, (_TOKENS_PER_STEP // length, length), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        if model.trained_by == "counts":
            model.add_counts(ids)  # type: ignore[operator]
            return
        logits = model(ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        torch.autograd.backward(loss)

    return step


def _seconds_per_token(model: "Model", length: int, repeats: int = 48) -> float:
    """Return the median time in seconds to generate one token after `length` tokens."""
    import torch

    state = model.new_state(capacity=length + repeats)
    with torch.inference_mode():
        model.forward_varlen([[7] * length], [state])
        times = [time_call(lambda: model.forward_varlen([[7]], [state])) for _ in range(repeats)]
    return float(np.median(times))


def conclude(results: Mapping[str, ArchitectureResult], seed: int) -> ExperimentResult:
    """At the longest distance the Transformer must recall more than chance and than a CNN, and its training steps on
    long sequences be faster than an RNN's. Sequential steps are counted: the claim where cores are few."""
    transformer, rnn, cnn = (results[name] for name in ("Transformer", "RNN", "CNN"))
    short, long, furthest = min(rnn.step_seconds), max(rnn.step_seconds), max(transformer.hits)
    hits = transformer.hits[furthest]
    where = f"recall over {furthest} words"
    comparisons = (
        Comparison(
            f"fewer sequential steps for {long} tokens", "Transformer", transformer.layers, "RNN", rnn.layers * long,
            lower=True, exact=True,
        ),
        Comparison.of_pairs("recalls over long distances", where, hits, "chance", [_CHANCE] * len(hits)),
        Comparison.of_pairs("recalls further than a CNN", where, hits, "CNN", cnn.hits[furthest]),
        Comparison.of_pairs(
            "trains long sequences faster", "seconds per step", transformer.step_seconds[long],
            "RNN", rnn.step_seconds[long], lower=True,
        ),
    )  # fmt: skip

    def listed(format_result: Callable[[ArchitectureResult], str]) -> str:
        return ", ".join(f"{name} {format_result(kind)}" for name, kind in results.items())

    distances = listed(lambda kind: f"{kind.recall_distance} words" if kind.recall_distance else "none")
    ratios = listed(lambda kind: f"x{kind.tokens_per_second[long] / kind.tokens_per_second[short]:.2f}")
    verdict = (
        f"Recall distance: {distances}. Training speed with sequences of {long} "
        f"tokens: {listed(lambda kind: f'{kind.tokens_per_second[long] / 1e3:,.0f}k tokens/s')}; relative to "
        f"sequences of {short} tokens: {ratios}. {_details(transformer, rnn, short, long)}"
    )
    columns = [
        ("model", ""), ("parameters", ","), ("recall distance", ""),
        (f"k tok/s at {short}", ",.0f"), (f"at {long}", ",.0f"), (f"ms/tok at {short}", ".2f"), (f"at {long}", ".2f"),
    ]  # fmt: skip
    recall = {name: kind.recall for name, kind in results.items()}
    speed = {name: {n: rate / 1e3 for n, rate in kind.tokens_per_second.items()} for name, kind in results.items()}
    times = {name: {n: time * 1e3 for n, time in kind.seconds_per_token.items()} for name, kind in results.items()}
    rows = [
        (
            name, kind.parameters, kind.recall_distance,
            *(by[name][length] for by in (speed, times) for length in (short, long)),
        )
        for name, kind in results.items()
    ]  # fmt: skip
    speed.pop("n-gram", None)  # it counts, and has no training steps to compare
    parts = (
        table("Same task, same budget", columns, rows),
        curves("Recall by distance", recall, "distance (words)", "accuracy (chance 0.5)"),
        curves("Training speed by sequence length", speed, "sequence length (tokens)", "thousand tokens/s"),
        curves("Generation time per token", times, "context length (tokens)", "milliseconds"),
    )
    numbers = {
        name: {
            "parameters": kind.parameters, "recall": kind.recall, "recall_distance": kind.recall_distance,
            "tokens_per_second": kind.tokens_per_second,
            "seconds_per_token": kind.seconds_per_token,
        }
        for name, kind in results.items()
    }  # fmt: skip
    return make_result("long-or-parallel", parts, verdict, comparisons, numbers, seed)


def _details(transformer: ArchitectureResult, rnn: ArchitectureResult, short: int, long: int) -> str:
    """Sentence on what the simple claim of the lecture notes leaves out."""
    slowdown, rnn_slowdown = (
        kind.seconds_per_token[long] / kind.seconds_per_token[short] for kind in (transformer, rnn)
    )
    points = [
        f"generating a token after {long} tokens takes {slowdown:.1f} times as long as after {short} with the "
        f"Transformer and {rnn_slowdown:.1f} times with the RNN"
    ]
    if transformer.seconds_per_token[long] > rnn.seconds_per_token[long]:
        points.append("in generation the RNN is cheaper")
    if rnn.recall_distance >= transformer.recall_distance:
        points.append("at these distances the RNN recalls as far")
    if transformer.tokens_per_second[long] < 0.8 * transformer.tokens_per_second[short]:
        points.append("the Transformer, too, trains more slowly on long sequences")
    sequential = f"{long * rnn.layers:,} in the RNN and {transformer.layers} in the Transformer"
    points.append(f"sequential steps for {long} tokens: {sequential}")
    return f"In detail: {'; '.join(points)}."
