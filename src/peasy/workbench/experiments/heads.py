"""`heads`: loss with one, two, four or eight attention heads of equal parameter count, and what the heads attend to."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.corpora import open_corpus
from peasy.parts import need
from peasy.views.document import Curves, Maps, Part, Table
from peasy.workbench.aligner import Head
from peasy.workbench.experiments.finding import Finding, Hear, unheard
from peasy.workbench.experiments.it import SENTENCE, follow_it, right, stories_about_it
from peasy.workbench.experiments.subject import name_head

if TYPE_CHECKING:
    from peasy.looking.record import HeadScore
    from peasy.workbench.experiments.learning import Learned

QUESTION = (
    "A layer can have one wide head or several narrow ones. With the same parameter count, do several learn more?"
)
COUNTS = (1, 2, 4, 8)
SHOWN = 4
SETTINGS: dict[str, Any] = {"tokenizer": {"by": "words", "vocabulary": 512}, "validate": 6}


@dataclass(frozen=True)
class Trained:
    """Results for one head count: parameters, losses and accuracies by seed, and the loss curve of the first seed.

    `differ`: total variation distance between the attention weights of two heads of a layer, from 0 to 1. `does`: for
    each head, the share of its weight by kind of target.
    """

    heads: int
    parameters: int
    losses: tuple[float, ...]
    endings: tuple[float, ...]
    curve: tuple[tuple[float, float], ...]
    differ: float
    does: dict[Head, dict[str, float]]

    @property
    def most(self) -> dict[Head, str]:
        """Kind of target that each head attends to most."""
        return {head: max(shares, key=lambda name: shares[name]) for head, shares in self.does.items()}

    @property
    def loss(self) -> float:
        """Mean loss over seeds."""
        return float(np.mean(self.losses))

    @property
    def ending(self) -> float:
        """Mean accuracy over seeds."""
        return float(np.mean(self.endings))


def run(
    seed: int = 0, hear: Hear = unheard, steps: int = 600, seeds: int = 2, probes: int = 96,
    counts: Sequence[int] = COUNTS,
) -> Finding:  # fmt: skip
    """Train each head count with several seeds; heads are analysed for the first seed."""
    need("torch")
    trained, figure = [], None
    for count in counts:
        models = [train(count, seed + number, steps, hear) for number in range(seeds)]
        trained.append(study(count, models, probes, seed))
        if figure is None or count == SHOWN:
            figure = picture(models[0])
    assert figure is not None, "at least one count is trained"
    return conclude(trained, figure, seed)


def train(count: int, seed: int, steps: int, hear: Hear) -> "Learned":
    """Train on the stories with `count` heads per layer; d_model is split among them, so all have the same size."""
    from peasy.workbench.experiments.learning import learn, some_stories

    settings = {**SETTINGS, "model": {"stack": {"attention": {"heads": count}}}}
    name = f"{count} head{'s' * (count > 1)}, seed {seed}"
    return learn("gpt", some_stories(steps), name, hear, steps=steps, seed=seed, settings=settings)


def study(count: int, models: Sequence["Learned"], probes: int, seed: int) -> Trained:
    """Evaluate loss and endings, and analyse the heads of the first model."""
    from peasy.looking.head import study_heads
    from peasy.workbench.passage import open_passage

    stories = stories_about_it(probes, seed)
    loaded = models[0].model
    texts = list(islice(open_corpus("stories").texts("valid"), 24))
    meant = follow_it(loaded, stories)
    report = study_heads(loaded.model, [open_passage(loaded, text).reading for text in texts], seed=seed)
    return Trained(
        count,
        loaded.model.count_parameters(),
        tuple(learned.last for learned in models),
        tuple(right(learned.model, stories) for learned in models),
        models[0].valid,
        difference(loaded, texts),
        {(score.place.layer, score.head): shares(score, meant) for score in report.heads},
    )


def shares(score: "HeadScore", meant: dict[Head, tuple[float, float]]) -> dict[str, float]:
    """Shares of a head's attention weight by kind of target; "what it means" is measured at the pronoun only."""
    return {
        "the word before": score.previous,
        "itself": score.own,
        "the first": score.first,
        "the same word": score.same,
        "what it means": meant[score.place.layer, score.head][0],
    }


def difference(loaded: Any, texts: Sequence[str]) -> float:
    """Mean total variation distance between the attention weights of two heads of a layer; 0 for a single head."""
    distances = []
    for text in texts:
        for capture in loaded.look(text).look.of("weights").values():
            array = capture.array.astype(float)
            pairs = [(a, b) for a in range(len(array)) for b in range(a)]
            distances += [np.abs(array[a] - array[b]).sum(-1)[1:].mean() / 2 for a, b in pairs]
    return float(np.mean(distances)) if distances else 0.0


def picture(learned: "Learned") -> Maps:
    """Draw the attention maps of all heads on one sentence."""
    look = learned.model.look(SENTENCE).look
    captures = list(look.of("weights").values())
    values = np.stack([capture.array for capture in captures]).astype(float)
    future = np.triu(np.ones(values.shape[-2:], dtype=bool), 1)
    layers, heads = (tuple(map(str, range(size))) for size in values.shape[:2])
    maps = np.where(future, np.nan, values)
    return Maps(f"{values.shape[1]} heads on one sentence", maps, look.tokens.pieces, look.tokens.pieces, layers, heads)


def conclude(trained: Sequence[Trained], shown: Maps, seed: int) -> Finding:
    """Holds if several heads beat one by more than the variation between seeds."""
    one, several = trained[0], trained[1:]
    noise = max((max(model.losses) - min(model.losses) for model in trained), default=0.0)
    best = min(several, key=lambda model: model.loss) if several else one
    gain = one.loss - best.loss
    holds = gain > noise and best.heads > one.heads
    most, kinds = trained[-1], len(set(best.most.values()))
    verdict = (
        f"With {one.parameters:,} parameters each, the loss is {_listed(trained)}. {best.heads} heads are better than "
        f"one by {gain:.3f}, and seeds differ by up to {noise:.3f}: several heads "
        f"{'learn more' if holds else 'do NOT learn measurably more here'}"
        f"{'' if most is best or not holds else f'; but {most.heads} are no better than {best.heads}'}. Accuracy of "
        f"endings: {one.ending:.0%} with one head, {best.ending:.0%} with {best.heads}. With {best.heads} heads, two "
        f"heads of a layer put {best.differ:.0%} of their attention weight on different tokens; by what they attend to "
        f"most, the heads are of {kinds} kind{'s' * (kinds != 1)}."
    )
    parts: tuple[Part, ...] = (
        _table(trained),
        Curves("Training on stories", tuple((f"{m.heads} heads", m.curve) for m in trained), "step", "validation loss"),
        shown,
        _does_table(best),
    )
    caveat = (
        "More heads are narrower heads, and at some point each is too narrow to be useful. The models are small and "
        "trained for half a minute. What a head attends to is measured on few sentences, and much of its weight is on "
        "tokens outside these kinds; heads with similar attention weights can still carry different values."
    )
    numbers = {
        str(model.heads): {
            "parameters": model.parameters, "losses": model.losses, "endings": model.endings, "differ": model.differ,
            "does": {name_head(head): shares for head, shares in model.does.items()},
        }
        for model in trained
    }  # fmt: skip
    return Finding("heads", QUESTION, parts, verdict, holds, caveat, numbers, seed)


def _listed(trained: Sequence[Trained]) -> str:
    return ", ".join(f"{model.loss:.3f} with {model.heads}" for model in trained)


def _table(trained: Sequence[Trained]) -> Table:
    rows = tuple(
        (
            str(model.heads), f"{model.parameters:,}", f"{model.loss:.3f}",
            f"{max(model.losses) - min(model.losses):.3f}", f"{model.ending:.0%}", f"{model.differ:.0%}",
            str(len(set(model.most.values()))),
        )
        for model in trained
    )  # fmt: skip
    columns = ("heads", "parameters", "loss", "between seeds", "endings", "heads differ", "kinds")
    return Table(columns, rows, "Same parameter count, same number of steps")


def _does_table(trained: Trained) -> Table:
    names = tuple(next(iter(trained.does.values()), {}))
    rows = tuple(
        (name_head(head), *(f"{share:.0%}" for share in shares.values()), trained.most[head])
        for head, shares in trained.does.items()
    )
    title = f"What the heads attend to ({trained.heads} heads per layer)"
    return Table(("head", *names, "most"), rows, title)
