"""`heads`: one, two, four or eight heads of equal parameters, and what different heads learned."""

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

QUESTION = "A layer can be one wide head or many narrow ones. With equally many parameters, do several learn more?"
COUNTS = (1, 2, 4, 8)
SHOWN = 4
SETTINGS: dict[str, Any] = {"tokenizer": {"by": "words", "vocabulary": 512}, "validate": 6}


@dataclass(frozen=True)
class Trained:
    """A model with so many heads in a layer: its size, its loss and right endings by seed, and its first curve.

    `differ`: how differently two heads of one layer look, 0 alike to 1 nothing in common. `does`: for each head, by
    name, which share of its weight goes where.
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
        """What each head looks at most, of what has a name."""
        return {head: max(shares, key=lambda name: shares[name]) for head, shares in self.does.items()}

    @property
    def loss(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.losses))

    @property
    def ending(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.endings))


def run(
    seed: int = 0, hear: Hear = unheard, steps: int = 600, seeds: int = 2, probes: int = 96,
    counts: Sequence[int] = COUNTS,
) -> Finding:  # fmt: skip
    """Train each twice, by two seeds; what its heads do is told of the first."""
    need("torch")
    trained, shown = [], None
    for count in counts:
        models = [train(count, seed + number, steps, hear) for number in range(seeds)]
        trained.append(study(count, models, probes, seed))
        if shown is None or count == SHOWN:
            shown = picture(models[0])
    assert shown is not None, "at least one count is tried"
    return conclude(trained, shown, seed)


def train(count: int, seed: int, steps: int, hear: Hear) -> "Learned":
    """The stories with `count` heads in each layer; the width is shared among them, so all have the same size."""
    from peasy.workbench.experiments.learning import learn, some_stories

    settings = {**SETTINGS, "model": {"stack": {"attention": {"heads": count}}}}
    name = f"{count} head{'s' * (count > 1)}, seed {seed}"
    return learn("gpt", some_stories(steps), name, hear, steps=steps, seed=seed, settings=settings)


def study(count: int, models: Sequence["Learned"], probes: int, seed: int) -> Trained:
    """Loss, endings, and what the heads of the first one do."""
    from peasy.looking.head import study_heads
    from peasy.workbench.passage import open_passage

    asked = stories_about_it(probes, seed)
    loaded = models[0].model
    texts = list(islice(open_corpus("stories").texts("valid"), 24))
    meant = follow_it(loaded, asked)
    report = study_heads(loaded.model, [open_passage(loaded, text).reading for text in texts], seed=seed)
    return Trained(
        count,
        loaded.model.count_parameters(),
        tuple(each.last for each in models),
        tuple(right(each.model, asked) for each in models),
        models[0].valid,
        difference(loaded, texts),
        {(each.place.layer, each.head): shares(each, meant) for each in report.heads},
    )


def shares(score: "HeadScore", meant: dict[Head, tuple[float, float]]) -> dict[str, float]:
    """Where the weight of a head goes. From "it" to what it means is asked of "it" alone, all else of every word."""
    return {
        "the word before": score.previous,
        "itself": score.own,
        "the first": score.first,
        "the same word": score.same,
        "what it means": meant[score.place.layer, score.head][0],
    }


def difference(loaded: Any, texts: Sequence[str]) -> float:
    """How much weight two heads of one layer put on different keys, over all pairs of heads; 0 for a single head."""
    found = []
    for text in texts:
        for capture in loaded.look(text).look.of("weights").values():
            array = capture.array.astype(float)
            pairs = [(a, b) for a in range(len(array)) for b in range(a)]
            found += [np.abs(array[a] - array[b]).sum(-1)[1:].mean() / 2 for a, b in pairs]
    return float(np.mean(found)) if found else 0.0


def picture(learned: "Learned") -> Maps:
    """All heads on one sentence."""
    look = learned.model.look(SENTENCE).look
    captures = list(look.of("weights").values())
    values = np.stack([capture.array for capture in captures]).astype(float)
    hidden = np.triu(np.ones(values.shape[-2:], dtype=bool), 1)
    layers, heads = (tuple(map(str, range(size))) for size in values.shape[:2])
    shown = np.where(hidden, np.nan, values)
    return Maps(
        f"{values.shape[1]} heads on one sentence", shown, look.tokens.pieces, look.tokens.pieces, layers, heads
    )


def conclude(trained: Sequence[Trained], shown: Maps, seed: int) -> Finding:
    """Several must beat one by more than seeds differ among themselves; which number is best is told."""
    one, several = trained[0], trained[1:]
    noise = max((max(each.losses) - min(each.losses) for each in trained), default=0.0)
    best = min(several, key=lambda each: each.loss) if several else one
    gain = one.loss - best.loss
    holds = gain > noise and best.heads > one.heads
    most, kinds = trained[-1], len(set(best.most.values()))
    verdict = (
        f"With {one.parameters:,} parameters each, the loss is {_listed(trained)}. {best.heads} heads are ahead of one "
        f"by {gain:.3f}, and seeds differ by up to {noise:.3f}: several heads "
        f"{'learn more' if holds else 'do NOT learn measurably more here'}"
        f"{'' if most is best or not holds else f'; but {most.heads} are no better than {best.heads}'}. Right endings: "
        f"{one.ending:.0%} with one, {best.ending:.0%} with {best.heads}. Two heads of a layer of {best.heads} put "
        f"{best.differ:.0%} of their weight on different words; by what they look at most, its heads are of "
        f"{kinds} kind{'s' * (kinds != 1)}."
    )
    parts: tuple[Part, ...] = (
        _table(trained),
        Curves("Learning the stories", tuple((f"{e.heads} heads", e.curve) for e in trained), "step", "held-out loss"),
        shown,
        _does_table(best),
    )
    caveat = (
        "More heads are narrower heads: at some number each is too narrow to find anything. The models are small and "
        "trained for half a minute. What a head looks at most is told of few sentences, and much of its weight goes to "
        "places that have no name here; heads that look alike may still carry different values."
    )
    numbers = {
        str(each.heads): {
            "parameters": each.parameters, "losses": each.losses, "endings": each.endings, "differ": each.differ,
            "does": {name_head(head): shares for head, shares in each.does.items()},
        }
        for each in trained
    }  # fmt: skip
    return Finding("heads", QUESTION, parts, verdict, holds, caveat, numbers, seed)


def _listed(trained: Sequence[Trained]) -> str:
    return ", ".join(f"{each.loss:.3f} with {each.heads}" for each in trained)


def _table(trained: Sequence[Trained]) -> Table:
    rows = tuple(
        (
            str(each.heads), f"{each.parameters:,}", f"{each.loss:.3f}", f"{max(each.losses) - min(each.losses):.3f}",
            f"{each.ending:.0%}", f"{each.differ:.0%}", str(len(set(each.most.values()))),
        )
        for each in trained
    )  # fmt: skip
    columns = ("heads", "parameters", "loss", "between seeds", "right endings", "look elsewhere", "kinds")
    return Table(columns, rows, "Equal parameters, equal steps")


def _does_table(trained: Trained) -> Table:
    names = tuple(next(iter(trained.does.values()), {}))
    rows = tuple(
        (name_head(head), *(f"{share:.0%}" for share in shares.values()), trained.most[head])
        for head, shares in trained.does.items()
    )
    title = f"Where the heads of the model with {trained.heads} look"
    return Table(("head", *names, "most"), rows, title)
