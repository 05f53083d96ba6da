"""`long-or-parallel`: counting, recurrence, convolution and attention on the same work, by the same budget."""

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

QUESTION = "Long dependency or parallel? What counting, an RNN, a CNN and a Transformer can do with the same budget."
KINDS = {"n-gram": "ngram", "RNN": "rnn", "CNN": "cnn", "Transformer": "gpt"}
SIZES: dict[str, dict[str, Any]] = {
    "n-gram": {"order": 3},
    "RNN": {"d_model": 104},
    "CNN": {"d_model": 64, "layers": 4},
    "Transformer": {"d_model": 64},
}
"""About a hundred thousand weights each; the n-gram's are counts."""
DISTANCES = (6, 12, 24, 48)
LENGTHS = (32, 128, 512)
REACHED = 0.9
BATCH = 32
TOKENS = 2048
"""So many tokens in one step of training, whatever the length of a text."""


class AnyDistance(Generated):
    """`recall` with two keys, asked for at one of several distances."""

    name = "recall"
    says = "the value of a key that was told some words ago"

    def __init__(self, distances: Sequence[int], *, seed: int, size: int = 1) -> None:
        super().__init__(seed=seed, size=size, held_out=400)
        self.distances = tuple(distances)
        self.suggests = MappingProxyType(
            {"rows": "documents", "context": max(distances) + 8, "short": None, "batch": BATCH}
        )

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """One of the distances, then a text of `recall`."""
        return puzzle(rng.choice(self.distances)).draw(rng)


@cache
def puzzle(distance: int) -> Recall:
    """`recall` at one distance."""
    return Recall(RecallOptions(distance=distance, pairs=2))


@dataclass
class Kind:
    """What one kind did. Shares of right answers by distance, and of right endings; tokens a second in training and
    seconds for one more token by length."""

    parameters: int
    recall: dict[int, float]
    stories: float
    layers: int = 1
    rate: dict[int, float] = field(default_factory=dict)
    more: dict[int, float] = field(default_factory=dict)

    @property
    def reach(self) -> int:
        """The longest distance up to which all are answered; 0 where none is."""
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
    """Train each kind on both, then measure it by the length of texts."""
    need("torch")
    from peasy.workbench.experiments.learning import some_stories

    found = {}
    puzzles, tales = AnyDistance(distances, seed=seed, size=steps * BATCH), some_stories(steps)
    for name in kinds:
        learned = train(name, puzzles, 64, seed, steps, hear)
        recalled = {each: right(learned, held_out(each, probes, seed)) for each in distances}
        stories = train(name, tales, 512, seed, steps, hear)
        endings = right(stories, stories_about_it(probes, seed))
        kind = Kind(stories.model.count_parameters(), recalled, endings, layers(stories.model))
        for length in lengths:
            hear(f"{name}: texts of {length} tokens ...")
            model = fresh(name, max(lengths) + 64)
            kind.rate[length], kind.more[length] = training_rate(model, length), one_more(model, length)
        found[name] = kind
    return conclude(found, seed)


def train(name: str, data: Corpus, vocabulary: int, seed: int, steps: int, hear: Hear) -> Any:
    """One kind on one corpus; an n-gram model only counts."""
    from peasy.workbench.experiments.learning import learn

    settings: dict[str, Any] = {"model": SIZES[name], "tokenizer": {"by": "words", "vocabulary": vocabulary}}
    return learn(KINDS[name], data, f"{name}, {data.name}", hear, steps=steps, seed=seed, settings=settings).model


def layers(model: "Model") -> int:
    """How many layers a text goes through, one after another."""
    config: Any = model.config
    return 1 if model.learns == "counts" else config.layers if hasattr(config, "layers") else config.stack.layers


def held_out(distance: int, count: int, seed: int) -> list[Probe]:
    """Questions at one distance that nobody was trained on."""
    corpus = AnyDistance([distance], seed=seed)
    return [corpus.probe(number, "valid") for number in range(count)]


def fresh(name: str, context: int) -> "Model":
    """The same kind with fresh weights: time does not depend on what was learned."""
    from peasy.models.build import build
    from peasy.models.preset import preset

    room = {"context": context} if name == "Transformer" else {}
    return build(preset(f"{KINDS[name]}-tiny", vocabulary=512, **SIZES[name], **room), seed=0)


def training_rate(model: "Model", length: int, rounds: int = 5) -> float:
    """Tokens a second of whole steps of training, as many tokens in each."""
    import torch

    ids = torch.randint(5, 512, (TOKENS // length, length), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        if model.learns == "counts":
            model.observe(ids)  # type: ignore[operator]
            return
        scores = model(ids[:, :-1])
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten()).backward()

    step()
    return ids.numel() / min(timed(step) for _ in range(rounds))


def one_more(model: "Model", length: int, rounds: int = 48) -> float:
    """Seconds for one more token after so many."""
    import torch

    memory = model.start(room=length + rounds)
    with torch.inference_mode():
        model.read([[7] * length], [memory])
        times = [timed(lambda: model.read([[7]], [memory])) for _ in range(rounds)]
    return float(np.median(times))


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def conclude(found: Mapping[str, Kind], seed: int) -> Finding:
    """The Transformer must reach furthest and train long texts fastest of those that reach beyond a few words."""
    ours = found["Transformer"]
    others = {name: kind for name, kind in found.items() if name != "Transformer"}
    near, far = min(ours.rate), max(ours.rate)
    furthest = ours.reach >= max(kind.reach for kind in others.values()) and ours.reach > 0
    rnn = found["RNN"]
    parallel = ours.rate[far] > rnn.rate[far]
    verdict = (
        f"Asked for a value some words back, {_listed(found, lambda kind: _words(kind.reach))}; right endings of "
        f"stories: {_listed(found, lambda kind: f'{kind.stories:.0%}')}. In training on texts of {far} tokens: "
        f"{_listed(found, lambda kind: f'{kind.rate[far] / 1e3:,.0f}k tokens/s')}; against texts of {near} that is "
        f"{_listed(found, lambda kind: f'x{kind.rate[far] / kind.rate[near]:.2f}')}. The Transformer "
        f"{'is long and parallel' if furthest and parallel else _but(furthest, parallel)}. {_simple(found, near, far)}"
    )
    parts: tuple[Part, ...] = (
        _table(found, near, far),
        Curves("Recall by distance", _lines(found, lambda kind: kind.recall, 1), "words back", "right (chance 0.5)"),
        Curves(
            "Training by length of text", _lines(found, lambda k: k.rate, 1e-3, learns=True), "tokens in a text",
            "thousand tokens/s",
        ),
        Curves("One more token", _lines(found, lambda kind: kind.more, 1e3), "tokens before it", "milliseconds"),
    )  # fmt: skip
    caveat = (
        "Equal budgets are equal steps, texts and about equal weights; each kind has its own recipe, and a longer "
        "training lets an RNN and a deeper CNN reach further. Two cores are little to be parallel on: on a graphics "
        "card the distance between the kinds is far larger."
    )
    numbers = {name: {**vars(kind), "reach": kind.reach} for name, kind in found.items()}
    return Finding("long-or-parallel", QUESTION, parts, verdict, furthest and parallel, caveat, numbers, seed)


def _words(reach: int) -> str:
    return f"reaches {reach} words" if reach else "reaches none"


def _but(furthest: bool, parallel: bool) -> str:
    if furthest:
        return "reaches furthest, but does not train long texts faster than the RNN here"
    return "trains long texts fast, but does not reach furthest" if parallel else "is neither here"


def _simple(found: Mapping[str, Kind], near: int, far: int) -> str:
    """Where a slide with two ticks says too little."""
    ours, rnn = found["Transformer"], found["RNN"]
    said = [
        f"One more token after {far} takes {ours.more[far] / ours.more[near]:.1f} times as long as after {near} with "
        f"the Transformer and {rnn.more[far] / rnn.more[near]:.1f} times with the RNN"
    ]
    if ours.more[far] > rnn.more[far]:
        said.append("in generation the RNN is the cheaper one")
    if rnn.reach >= ours.reach:
        said.append("at these distances the RNN reaches as far")
    if ours.rate[far] < 0.8 * ours.rate[near]:
        said.append("in training the Transformer pays for length, too")
    waits = f"{far * rnn.layers:,} steps of the RNN and {ours.layers} of the Transformer"
    said.append(f"what is parallel can be counted, too: {waits} wait for each other in a text of {far}")
    return f"Too simple is: {'; '.join(said)}."


def _listed(found: Mapping[str, Kind], say: Callable[[Kind], str]) -> str:
    return ", ".join(f"{name} {say(kind)}" for name, kind in found.items())


def _lines(
    found: Mapping[str, Kind], of: Callable[[Kind], Mapping[int, float]], scale: float, learns: bool = False
) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    shown = {name: kind for name, kind in found.items() if not (learns and name == "n-gram")}  # counting is no training
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
        "kind", "weights", "words back", "endings", f"k tok/s at {near}", f"at {far}", f"ms/tok at {near}", f"at {far}",
    )  # fmt: skip
    return Table(columns, rows, "The same work, the same budget")
