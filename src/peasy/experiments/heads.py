"""`heads`: loss with one, two, four or eight attention heads of equal parameter count, and what the heads attend to."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.commands.alignment_head import LayerHead
from peasy.datasets import open_corpus
from peasy.experiments.model_variants import format_head
from peasy.experiments.pronoun import SENTENCE, pronoun_stories, referent_weights, story_accuracy
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status
from peasy.extras import require_extra
from peasy.views.document import Curves, DocumentPart, Maps, Table

if TYPE_CHECKING:
    from peasy.experiments.train_small import TrainedModel
    from peasy.inspection.results import HeadScore

QUESTION = (
    "A layer can have one wide head or several narrow ones. With the same parameter count, do several learn more?"
)
HEAD_COUNTS = (1, 2, 4, 8)
SHOWN_COUNT = 4
SETTINGS: dict[str, Any] = {"tokenizer": {"algorithm": "words", "vocab_size": 512}, "num_validations": 6}


@dataclass(frozen=True)
class HeadCountResult:
    """Results for one head count: parameters, losses and accuracies by seed, and the loss curve of the first seed.

    `head_distance`: total variation distance between the attention weights of two heads of a layer, from 0 to 1.
    `attention_shares`: for each head, the share of its weight by kind of target.
    """

    heads: int
    parameters: int
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    curve: tuple[tuple[float, float], ...]
    head_distance: float
    attention_shares: dict[LayerHead, dict[str, float]]

    @property
    def main_target(self) -> dict[LayerHead, str]:
        """Kind of target that each head attends to most."""
        return {head: max(shares, key=lambda name: shares[name]) for head, shares in self.attention_shares.items()}

    @property
    def loss(self) -> float:
        """Mean loss over seeds."""
        return float(np.mean(self.losses))

    @property
    def accuracy(self) -> float:
        """Mean accuracy over seeds."""
        return float(np.mean(self.accuracies))


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 600, seeds: int = 2, probes: int = 96,
    counts: Sequence[int] = HEAD_COUNTS,
) -> ExperimentResult:  # fmt: skip
    """Train each head count with several seeds; heads are analysed for the first seed."""
    require_extra("torch")
    trained, figure = [], None
    for count in counts:
        models = [train_heads(count, seed + number, steps, on_status) for number in range(seeds)]
        trained.append(evaluate_heads(count, models, probes, seed))
        if figure is None or count == SHOWN_COUNT:
            figure = attention_maps(models[0])
    assert figure is not None, "at least one count is trained"
    return conclude(trained, figure, seed)


def train_heads(count: int, seed: int, steps: int, on_status: OnStatus) -> "TrainedModel":
    """Train on the stories with `count` heads per layer; d_model is split among them, so all have the same size."""
    from peasy.experiments.train_small import stories_for_steps, train_temporary

    settings = {**SETTINGS, "model": {"stack": {"attention": {"num_heads": count}}}}
    name = f"{count} head{'s' * (count > 1)}, seed {seed}"
    return train_temporary("gpt", stories_for_steps(steps), name, on_status, steps=steps, seed=seed, settings=settings)


def evaluate_heads(count: int, models: Sequence["TrainedModel"], probes: int, seed: int) -> HeadCountResult:
    """Evaluate loss and endings, and analyse the heads of the first model."""
    from peasy.commands.model_input import make_input
    from peasy.inspection.head_scores import score_heads

    stories = pronoun_stories(probes, seed)
    loaded = models[0].model
    texts = list(islice(open_corpus("stories").texts("valid"), 24))
    weights = referent_weights(loaded, stories)
    report = score_heads(loaded.model, [make_input(loaded, text).model_input for text in texts], seed=seed)
    return HeadCountResult(
        count,
        loaded.model.count_parameters(),
        tuple(learned.final_loss for learned in models),
        tuple(story_accuracy(learned.model, stories) for learned in models),
        models[0].validation_curve,
        head_distance(loaded, texts),
        {(score.path.layer, score.head): attention_shares(score, weights) for score in report.heads},
    )


def attention_shares(score: "HeadScore", referent_weights: dict[LayerHead, tuple[float, float]]) -> dict[str, float]:
    """Shares of a head's attention weight by kind of target; "referent" is measured at the pronoun only."""
    return {
        "previous token": score.previous,
        "same position": score.own,
        "first token": score.first,
        "same token": score.same,
        "referent": referent_weights[score.path.layer, score.head][0],
    }


def head_distance(loaded: Any, texts: Sequence[str]) -> float:
    """Mean total variation distance between the attention weights of two heads of a layer; 0 for a single head."""
    distances = []
    for text in texts:
        for capture in loaded.look(text).record.by_path("weights").values():
            array = capture.array.astype(float)
            pairs = [(a, b) for a in range(len(array)) for b in range(a)]
            distances += [np.abs(array[a] - array[b]).sum(-1)[1:].mean() / 2 for a, b in pairs]
    return float(np.mean(distances)) if distances else 0.0


def attention_maps(trained: "TrainedModel") -> Maps:
    """Draw the attention maps of all heads on one sentence."""
    record = trained.model.look(SENTENCE).record
    captures = list(record.by_path("weights").values())
    values = np.stack([capture.array for capture in captures]).astype(float)
    future = np.triu(np.ones(values.shape[-2:], dtype=bool), 1)
    layers, heads = (tuple(map(str, range(size))) for size in values.shape[:2])
    maps = np.where(future, np.nan, values)
    pieces = record.tokens.pieces
    return Maps(f"{values.shape[1]} heads on one sentence", maps, pieces, pieces, layers, heads)


def conclude(trained: Sequence[HeadCountResult], figure: Maps, seed: int) -> ExperimentResult:
    """Holds if several heads beat one by more than the variation between seeds."""
    one, several = trained[0], trained[1:]
    noise = max((max(model.losses) - min(model.losses) for model in trained), default=0.0)
    best = min(several, key=lambda model: model.loss) if several else one
    gain = one.loss - best.loss
    holds = gain > noise and best.heads > one.heads
    most, kinds = trained[-1], len(set(best.main_target.values()))
    verdict = (
        f"With {one.parameters:,} parameters each, the loss is {_list_losses(trained)}. {best.heads} heads are better "
        f"than one by {gain:.3f}, and seeds differ by up to {noise:.3f}: several heads "
        f"{'learn more' if holds else 'do NOT learn measurably more here'}"
        f"{'' if most is best or not holds else f'; but {most.heads} are no better than {best.heads}'}. Accuracy of "
        f"endings: {one.accuracy:.0%} with one head, {best.accuracy:.0%} with {best.heads}. With {best.heads} heads, "
        f"two heads of a layer put {best.head_distance:.0%} of their attention weight on different tokens; by what "
        f"they attend to most, the heads are of {kinds} kind{'s' * (kinds != 1)}."
    )
    parts: tuple[DocumentPart, ...] = (
        _table(trained),
        Curves("Training on stories", tuple((f"{m.heads} heads", m.curve) for m in trained), "step", "validation loss"),
        figure,
        _shares_table(best),
    )
    caveat = (
        "More heads are narrower heads, and at some point each is too narrow to be useful. The models are small and "
        "trained for half a minute. What a head attends to is measured on few sentences, and much of its weight is on "
        "tokens outside these kinds; heads with similar attention weights can still carry different values."
    )
    numbers = {
        str(model.heads): {
            "parameters": model.parameters, "losses": model.losses, "accuracies": model.accuracies,
            "head_distance": model.head_distance,
            "attention_shares": {format_head(head): shares for head, shares in model.attention_shares.items()},
        }
        for model in trained
    }  # fmt: skip
    return ExperimentResult("heads", QUESTION, parts, verdict, holds, caveat, numbers, seed)


def _list_losses(trained: Sequence[HeadCountResult]) -> str:
    return ", ".join(f"{model.loss:.3f} with {model.heads}" for model in trained)


def _table(trained: Sequence[HeadCountResult]) -> Table:
    rows = tuple(
        (
            str(model.heads), f"{model.parameters:,}", f"{model.loss:.3f}",
            f"{max(model.losses) - min(model.losses):.3f}", f"{model.accuracy:.0%}", f"{model.head_distance:.0%}",
            str(len(set(model.main_target.values()))),
        )
        for model in trained
    )  # fmt: skip
    columns = ("heads", "parameters", "loss", "between seeds", "endings", "heads differ", "kinds")
    return Table(columns, rows, "Same parameter count, same number of steps")


def _shares_table(trained: HeadCountResult) -> Table:
    names = tuple(next(iter(trained.attention_shares.values()), {}))
    rows = tuple(
        (format_head(head), *(f"{share:.0%}" for share in shares.values()), trained.main_target[head])
        for head, shares in trained.attention_shares.items()
    )
    title = f"What the heads attend to ({trained.heads} heads per layer)"
    return Table(("head", *names, "most"), rows, title)
