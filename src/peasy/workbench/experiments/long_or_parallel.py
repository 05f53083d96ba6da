"""`long-or-parallel`: n-gram, RNN, CNN and Transformer with the same budget: recall distance and speed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.corpora import Corpus, Probe
from peasy.corpora.generated import Generated
from peasy.corpora.puzzles import Recall, RecallOptions
from peasy.parts import need
from peasy.views.document import Curves, Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.it import right, stories_about_it

if TYPE_CHECKING:
    from peasy.models.protocol import Model

QUESTION = "Long-range dependencies or parallel training? N-gram model, RNN, CNN and Transformer with the same budget."
KINDS = {"n-gram": "ngram", "RNN": "rnn", "CNN": "cnn", "Transformer": "gpt"}
SIZES: dict[str, dict[str, Any]] = {
    "n-gram": {"order": 3},
    "RNN": {"d_model": 104},
    "CNN": {"d_model": 64, "layers": 4},
    "Transformer": {"d_model": 64},
}
"""About 100,000 parameters each; those of the n-gram model are counts."""
DISTANCES = (6, 12, 24, 48)
LENGTHS = (32, 128, 512)
REACHED = 0.9
BATCH = 32
TOKENS = 2048
"""Tokens per training step, for every sequence length."""


class AnyDistance(Generated):
    """The `recall` task with two keys, queried at one of several distances."""

    name = "recall"
    says = "recall the value of a key given some words earlier"

    def __init__(self, distances: Sequence[int], *, seed: int, size: int = 1) -> None:
        super().__init__(seed=seed, size=size, held_out=400)
        self.distances = tuple(distances)
        self.suggests = MappingProxyType(
            {"rows": "documents", "context": max(distances) + 8, "short": None, "batch": BATCH}
        )

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Choose a distance, then a sample of `recall`."""
        return puzzle(rng.choice(self.distances)).draw(rng)


@cache
def puzzle(distance: int) -> Recall:
    """The `recall` task at one distance."""
    return Recall(RecallOptions(distance=distance, pairs=2))


@dataclass
class Kind:
    """Results of one architecture: recall accuracy by distance, accuracy of story endings; by sequence length, tokens
    per second in training and seconds per generated token."""

    parameters: int
    recall: dict[int, float]
    stories: float
    layers: int = 1
    rate: dict[int, float] = field(default_factory=dict)
    more: dict[int, float] = field(default_factory=dict)

    @property
    def reach(self) -> int:
        """Longest distance up to which recall succeeds; 0 if it never does."""
        reached = 0
        for distance, share in sorted(self.recall.items()):
            if share < REACHED:
                break
            reached = distance
        return reached


def run(
    seed: int = 0, hear: Hear = unheard, steps: int = 800, probes: int = 96,
    distances: Sequence[int] = DISTANCES, lengths: Sequence[int] = LENGTHS, kinds: Sequence[str] = tuple(KINDS),
) -> Finding:  # fmt: skip
    """Train each architecture on both tasks, then measure speed by sequence length."""
    need("torch")
    from peasy.workbench.experiments.learning import some_stories

    results = {}
    puzzles, stories = AnyDistance(distances, seed=seed, size=steps * BATCH), some_stories(steps)
    for name in kinds:
        recaller = train(name, puzzles, 64, seed, steps, hear)
        recall = {distance: right(recaller, held_out(distance, probes, seed)) for distance in distances}
        writer = train(name, stories, 512, seed, steps, hear)
        endings = right(writer, stories_about_it(probes, seed))
        kind = Kind(writer.model.count_parameters(), recall, endings, layers(writer.model))
        for length in lengths:
            hear(f"{name}: sequences of {length} tokens ...")
            model = fresh(name, max(lengths) + 64)
            kind.rate[length], kind.more[length] = training_rate(model, length), one_more(model, length)
        results[name] = kind
    return conclude(results, seed)


def train(name: str, data: Corpus, vocabulary: int, seed: int, steps: int, hear: Hear) -> Any:
    """Train one architecture on one corpus; an n-gram model only counts."""
    from peasy.workbench.experiments.learning import learn

    settings: dict[str, Any] = {"model": SIZES[name], "tokenizer": {"by": "words", "vocabulary": vocabulary}}
    return learn(KINDS[name], data, f"{name}, {data.name}", hear, steps=steps, seed=seed, settings=settings).model


def layers(model: "Model") -> int:
    """Number of layers that a sequence passes one after another."""
    config: Any = model.config
    return 1 if model.learns == "counts" else config.layers if hasattr(config, "layers") else config.stack.layers


def held_out(distance: int, count: int, seed: int) -> list[Probe]:
    """Return validation samples at one distance."""
    corpus = AnyDistance([distance], seed=seed)
    return [corpus.probe(number, "valid") for number in range(count)]


def fresh(name: str, context: int) -> "Model":
    """Build the same architecture with random weights: speed does not depend on training."""
    from peasy.models.build import build
    from peasy.models.preset import preset

    overrides = {"context": context} if name == "Transformer" else {}
    return build(preset(f"{KINDS[name]}-tiny", vocabulary=512, **SIZES[name], **overrides), seed=0)


def training_rate(model: "Model", length: int, rounds: int = 5) -> float:
    """Return tokens per second of full training steps with a fixed number of tokens."""
    import torch

    ids = torch.randint(5, 512, (TOKENS // length, length), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        if model.learns == "counts":
            model.observe(ids)  # type: ignore[operator]
            return
        logits = model(ids[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()

    step()
    return ids.numel() / min(timed(step) for _ in range(rounds))


def one_more(model: "Model", length: int, rounds: int = 48) -> float:
    """Return the median time in seconds to generate one token after `length` tokens."""
    import torch

    state = model.start(room=length + rounds)
    with torch.inference_mode():
        model.read([[7] * length], [state])
        times = [timed(lambda: model.read([[7]], [state])) for _ in range(rounds)]
    return float(np.median(times))


def timed(work: Callable[[], object]) -> float:
    """Return the duration in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def conclude(found: Mapping[str, Kind], seed: int) -> Finding:
    """Holds if the Transformer has the longest recall distance and trains long sequences faster than the RNN."""
    transformer = found["Transformer"]
    others = {name: kind for name, kind in found.items() if name != "Transformer"}
    short, long = min(transformer.rate), max(transformer.rate)
    furthest = transformer.reach >= max(kind.reach for kind in others.values()) and transformer.reach > 0
    rnn = found["RNN"]
    parallel = transformer.rate[long] > rnn.rate[long]
    verdict = (
        f"Recall distance: {_listed(found, lambda kind: _words(kind.reach))}. Accuracy of story endings: "
        f"{_listed(found, lambda kind: f'{kind.stories:.0%}')}. Training speed with sequences of {long} tokens: "
        f"{_listed(found, lambda kind: f'{kind.rate[long] / 1e3:,.0f}k tokens/s')}; relative to sequences of {short} "
        f"tokens: {_listed(found, lambda kind: f'x{kind.rate[long] / kind.rate[short]:.2f}')}. The Transformer "
        f"{'is both long-range and parallel' if furthest and parallel else _but(furthest, parallel)}. "
        f"{_simple(found, short, long)}"
    )
    parts: tuple[Part, ...] = (
        _table(found, short, long),
        Curves("Recall by distance", _lines(found, lambda k: k.recall, 1), "distance (words)", "accuracy (chance 0.5)"),
        Curves(
            "Training speed by sequence length", _lines(found, lambda k: k.rate, 1e-3, learns=True),
            "sequence length (tokens)", "thousand tokens/s",
        ),
        Curves(
            "Generation time per token", _lines(found, lambda kind: kind.more, 1e3), "context length (tokens)",
            "milliseconds",
        ),
    )  # fmt: skip
    caveat = (
        "The same budget means the same steps, data and about as many parameters; each architecture has its own "
        "recipe, and with longer training an RNN or a deeper CNN recalls over longer distances. Two CPU cores are "
        "little to run in parallel on: on a GPU the differences in speed are far larger."
    )
    numbers = {name: {**vars(kind), "reach": kind.reach} for name, kind in found.items()}
    return Finding("long-or-parallel", QUESTION, parts, verdict, furthest and parallel, caveat, numbers, seed)


def _words(reach: int) -> str:
    return f"{reach} words" if reach else "none"


def _but(furthest: bool, parallel: bool) -> str:
    if furthest:
        return "has the longest recall distance, but does not train long sequences faster than the RNN here"
    return (
        "trains long sequences fast, but does not have the longest recall distance" if parallel else "is neither here"
    )


def _simple(found: Mapping[str, Kind], near: int, far: int) -> str:
    """Sentence on what the simple claim of the lecture notes leaves out."""
    transformer, rnn = found["Transformer"], found["RNN"]
    points = [
        f"generating a token after {far} tokens takes {transformer.more[far] / transformer.more[near]:.1f} times as "
        f"long as after {near} with the Transformer and {rnn.more[far] / rnn.more[near]:.1f} times with the RNN"
    ]
    if transformer.more[far] > rnn.more[far]:
        points.append("in generation the RNN is cheaper")
    if rnn.reach >= transformer.reach:
        points.append("at these distances the RNN recalls as far")
    if transformer.rate[far] < 0.8 * transformer.rate[near]:
        points.append("the Transformer, too, trains more slowly on long sequences")
    sequential = f"{far * rnn.layers:,} in the RNN and {transformer.layers} in the Transformer"
    points.append(f"sequential steps for {far} tokens: {sequential}")
    return f"In detail: {'; '.join(points)}."


def _listed(found: Mapping[str, Kind], say: Callable[[Kind], str]) -> str:
    return ", ".join(f"{name} {say(kind)}" for name, kind in found.items())


def _lines(
    found: Mapping[str, Kind], of: Callable[[Kind], Mapping[int, float]], scale: float, learns: bool = False
) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    # An n-gram model counts: it has no training steps to compare.
    shown = {name: kind for name, kind in found.items() if not (learns and name == "n-gram")}
    return tuple((name, tuple((float(x), y * scale) for x, y in of(kind).items())) for name, kind in shown.items())


def _table(found: Mapping[str, Kind], near: int, far: int) -> Table:
    rows = tuple(
        (
            name, f"{kind.parameters:,}", str(kind.reach), f"{kind.stories:.0%}", f"{kind.rate[near] / 1e3:,.0f}",
            f"{kind.rate[far] / 1e3:,.0f}", f"{kind.more[near] * 1e3:.2f}", f"{kind.more[far] * 1e3:.2f}",
        )
        for name, kind in found.items()
    )  # fmt: skip
    columns = (
        "model", "parameters", "recall distance", "endings", f"k tok/s at {near}", f"at {far}", f"ms/tok at {near}",
        f"at {far}",
    )  # fmt: skip
    return Table(columns, rows, "Same tasks, same budget")
