"""`long-or-parallel`: n-gram, RNN, CNN and Transformer with the same budget: recall distance and speed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.datasets import Corpus, Probe
from peasy.datasets.puzzles import Recall, RecallConfig
from peasy.datasets.synthetic import SyntheticCorpus
from peasy.experiments.pronoun import pronoun_stories, story_accuracy
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status
from peasy.extras import require_extra
from peasy.views.document import Curves, DocumentPart, Table

if TYPE_CHECKING:
    from peasy.models.protocol import Model

QUESTION = "Long-range dependencies or parallel training? N-gram model, RNN, CNN and Transformer with the same budget."
KINDS = {"n-gram": "ngram", "RNN": "rnn", "CNN": "cnn", "Transformer": "gpt"}
MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    "n-gram": {"order": 3},
    "RNN": {"d_model": 104},
    "CNN": {"d_model": 64, "num_layers": 4},
    "Transformer": {"d_model": 64},
}
"""About 100,000 parameters each; those of the n-gram model are counts."""
RECALL_DISTANCES = (6, 12, 24, 48)
SEQUENCE_LENGTHS = (32, 128, 512)
MIN_RECALL = 0.9
BATCH_SIZE = 32
TOKENS_PER_STEP = 2048
"""Tokens per training step, for every sequence length."""


class RecallCorpus(SyntheticCorpus):
    """The `recall` task with two keys, queried at one of several distances."""

    name = "recall"
    description = "recall the value of a key given some words earlier"

    def __init__(self, distances: Sequence[int], *, seed: int, size: int = 1) -> None:
        super().__init__(seed=seed, num_train=size, num_valid=400)
        self.distances = tuple(distances)
        self.suggested_settings = MappingProxyType(
            {
                "sample_unit": "documents",
                "seq_len": max(distances) + 8,
                "seq_len_warmup": None,
                "batch_size": BATCH_SIZE,
            }
        )

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Choose a distance, then a sample of `recall`."""
        return recall_task(rng.choice(self.distances)).draw(rng)


@cache
def recall_task(distance: int) -> Recall:
    """The `recall` task at one distance."""
    return Recall(RecallConfig(distance=distance, num_pairs=2))


@dataclass
class ArchitectureResult:
    """Results of one architecture: recall accuracy by distance, accuracy of story endings; by sequence length, tokens
    per second in training and seconds per generated token."""

    parameters: int
    recall: dict[int, float]
    ending_accuracy: float
    layers: int = 1
    tokens_per_second: dict[int, float] = field(default_factory=dict)
    seconds_per_token: dict[int, float] = field(default_factory=dict)

    @property
    def recall_distance(self) -> int:
        """Longest distance up to which recall succeeds; 0 if it never does."""
        reached = 0
        for distance, share in sorted(self.recall.items()):
            if share < MIN_RECALL:
                break
            reached = distance
        return reached


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 800, probes: int = 96,
    distances: Sequence[int] = RECALL_DISTANCES, lengths: Sequence[int] = SEQUENCE_LENGTHS,
    models: Sequence[str] = tuple(KINDS),
) -> ExperimentResult:  # fmt: skip
    """Train each architecture on both tasks, then measure speed by sequence length."""
    require_extra("torch")
    from peasy.experiments.train_small import stories_for_steps

    results = {}
    puzzles, stories = RecallCorpus(distances, seed=seed, size=steps * BATCH_SIZE), stories_for_steps(steps)
    for name in models:
        recaller = train_architecture(name, puzzles, 64, seed, steps, on_status)
        recall = {
            distance: story_accuracy(recaller, validation_probes(distance, probes, seed)) for distance in distances
        }
        writer = train_architecture(name, stories, 512, seed, steps, on_status)
        endings = story_accuracy(writer, pronoun_stories(probes, seed))
        kind = ArchitectureResult(writer.model.count_parameters(), recall, endings, num_layers(writer.model))
        for length in lengths:
            on_status(f"{name}: sequences of {length} tokens ...")
            model = build_untrained(name, max(lengths) + 64)
            kind.tokens_per_second[length], kind.seconds_per_token[length] = (
                training_speed(model, length),
                seconds_per_token(model, length),
            )
        results[name] = kind
    return conclude(results, seed)


def train_architecture(name: str, data: Corpus, vocab_size: int, seed: int, steps: int, on_status: OnStatus) -> Any:
    """Train one architecture on one corpus; an n-gram model only counts."""
    from peasy.experiments.train_small import train_temporary

    settings: dict[str, Any] = {
        "model": MODEL_SETTINGS[name],
        "tokenizer": {"algorithm": "words", "vocab_size": vocab_size},
    }
    return train_temporary(
        KINDS[name], data, f"{name}, {data.name}", on_status, steps=steps, seed=seed, settings=settings
    ).model


def num_layers(model: "Model") -> int:
    """Number of layers that a sequence passes one after another."""
    config: Any = model.config
    return (
        1
        if model.trained_by == "counts"
        else config.num_layers
        if hasattr(config, "num_layers")
        else config.stack.num_layers
    )


def validation_probes(distance: int, count: int, seed: int) -> list[Probe]:
    """Return validation samples at one distance."""
    corpus = RecallCorpus([distance], seed=seed)
    return [corpus.probe(number, "valid") for number in range(count)]


def build_untrained(name: str, max_seq_len: int) -> "Model":
    """Build the same architecture with random weights: speed does not depend on training."""
    from peasy.models.build import build
    from peasy.models.preset import preset

    overrides = {"max_seq_len": max_seq_len} if name == "Transformer" else {}
    return build(preset(f"{KINDS[name]}-tiny", vocab_size=512, **MODEL_SETTINGS[name], **overrides), seed=0)


def training_speed(model: "Model", length: int, repeats: int = 5) -> float:
    """Return tokens per second of full training steps with a fixed number of tokens."""
    import torch

    ids = torch.randint(5, 512, (TOKENS_PER_STEP // length, length), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        if model.trained_by == "counts":
            model.add_counts(ids)  # type: ignore[operator]
            return
        logits = model(ids[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()

    step()
    return ids.numel() / min(time_call(step) for _ in range(repeats))


def seconds_per_token(model: "Model", length: int, repeats: int = 48) -> float:
    """Return the median time in seconds to generate one token after `length` tokens."""
    import torch

    state = model.new_state(capacity=length + repeats)
    with torch.inference_mode():
        model.forward_varlen([[7] * length], [state])
        times = [time_call(lambda: model.forward_varlen([[7]], [state])) for _ in range(repeats)]
    return float(np.median(times))


def time_call(work: Callable[[], object]) -> float:
    """Return the duration in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def conclude(results: Mapping[str, ArchitectureResult], seed: int) -> ExperimentResult:
    """Holds if the Transformer has the longest recall distance and trains long sequences faster than the RNN."""
    transformer = results["Transformer"]
    others = {name: kind for name, kind in results.items() if name != "Transformer"}
    short, long = min(transformer.tokens_per_second), max(transformer.tokens_per_second)
    furthest = (
        transformer.recall_distance >= max(kind.recall_distance for kind in others.values())
        and transformer.recall_distance > 0
    )
    rnn = results["RNN"]
    parallel = transformer.tokens_per_second[long] > rnn.tokens_per_second[long]
    verdict = (
        f"Recall distance: {_list_by_model(results, lambda kind: _format_distance(kind.recall_distance))}. Accuracy of "
        f"story endings: {_list_by_model(results, lambda kind: f'{kind.ending_accuracy:.0%}')}. Training speed with "
        f"sequences of {long} tokens: {_list_by_model(results, lambda kind: _format_speed(kind, long))}; relative to "
        f"sequences of {short} tokens: {_list_by_model(results, lambda kind: _format_ratio(kind, long, short))}. The "
        f"Transformer {'is both long-range and parallel' if furthest and parallel else _not_both(furthest, parallel)}. "
        f"{_details(results, short, long)}"
    )
    parts: tuple[DocumentPart, ...] = (
        _table(results, short, long),
        Curves(
            "Recall by distance", _curves(results, lambda kind: kind.recall, 1),
            "distance (words)", "accuracy (chance 0.5)",
        ),
        Curves(
            "Training speed by sequence length",
            _curves(results, lambda kind: kind.tokens_per_second, 1e-3, trained_only=True),
            "sequence length (tokens)", "thousand tokens/s",
        ),
        Curves(
            "Generation time per token", _curves(results, lambda kind: kind.seconds_per_token, 1e3),
            "context length (tokens)", "milliseconds",
        ),
    )  # fmt: skip
    caveat = (
        "The same budget means the same steps, data and about as many parameters; each architecture has its own "
        "recipe, and with longer training an RNN or a deeper CNN recalls over longer distances. Two CPU cores are "
        "little to run in parallel on: on a GPU the differences in speed are far larger."
    )
    numbers = {name: {**vars(kind), "recall_distance": kind.recall_distance} for name, kind in results.items()}
    return ExperimentResult("long-or-parallel", QUESTION, parts, verdict, furthest and parallel, caveat, numbers, seed)


def _format_distance(distance: int) -> str:
    return f"{distance} words" if distance else "none"


def _format_speed(kind: ArchitectureResult, length: int) -> str:
    return f"{kind.tokens_per_second[length] / 1e3:,.0f}k tokens/s"


def _format_ratio(kind: ArchitectureResult, long: int, short: int) -> str:
    return f"x{kind.tokens_per_second[long] / kind.tokens_per_second[short]:.2f}"


def _not_both(furthest: bool, parallel: bool) -> str:
    if furthest:
        return "has the longest recall distance, but does not train long sequences faster than the RNN here"
    return (
        "trains long sequences fast, but does not have the longest recall distance" if parallel else "is neither here"
    )


def _details(results: Mapping[str, ArchitectureResult], short: int, long: int) -> str:
    """Sentence on what the simple claim of the lecture notes leaves out."""
    transformer, rnn = results["Transformer"], results["RNN"]

    def slowdown(kind: ArchitectureResult) -> float:
        return kind.seconds_per_token[long] / kind.seconds_per_token[short]

    points = [
        f"generating a token after {long} tokens takes {slowdown(transformer):.1f} times as long as after {short} with "
        f"the Transformer and {slowdown(rnn):.1f} times with the RNN"
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


def _list_by_model(
    results: Mapping[str, ArchitectureResult], format_result: Callable[[ArchitectureResult], str]
) -> str:
    return ", ".join(f"{name} {format_result(kind)}" for name, kind in results.items())


def _curves(
    results: Mapping[str, ArchitectureResult],
    select: Callable[[ArchitectureResult], Mapping[int, float]],
    scale: float,
    trained_only: bool = False,
) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    # An n-gram model counts: it has no training steps to compare.
    shown = {name: kind for name, kind in results.items() if not (trained_only and name == "n-gram")}
    return tuple((name, tuple((float(x), y * scale) for x, y in select(kind).items())) for name, kind in shown.items())


def _table(results: Mapping[str, ArchitectureResult], short: int, long: int) -> Table:
    rows = tuple(
        (
            name, f"{kind.parameters:,}", str(kind.recall_distance), f"{kind.ending_accuracy:.0%}",
            *(f"{kind.tokens_per_second[length] / 1e3:,.0f}" for length in (short, long)),
            *(f"{kind.seconds_per_token[length] * 1e3:.2f}" for length in (short, long)),
        )
        for name, kind in results.items()
    )  # fmt: skip
    columns = (
        "model", "parameters", "recall distance", "endings", f"k tok/s at {short}", f"at {long}", f"ms/tok at {short}",
        f"at {long}",
    )  # fmt: skip
    return Table(columns, rows, "Same tasks, same budget")
