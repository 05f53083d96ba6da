"""`heads`: loss with one, two, four or eight attention heads of equal parameter count, and what the heads attend to."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from peasy.commands.alignment_head import LayerHead
from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.experiments.models import TrainedModel, format_head, stories_for_steps, train_temporary
from peasy.experiments.pronoun import SENTENCE, pronoun_stories, referent_weights, story_accuracy
from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Outcome, can_reach, decide, effect_size, paired_p_value
from peasy.views.document import Maps

_SHOWN_COUNT = 4


@dataclass
class HeadCountResult:
    """Results for one head count: parameters, losses and accuracies by seed, and the loss curve of the first seed.

    `head_distance`: total variation distance between the attention weights of two heads of a layer, from 0 to 1.
    `attention_shares`: for each head, the share of its weight by kind of target.
    """

    heads: int
    parameters: int
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    curve: Points
    head_distance: float
    attention_shares: dict[LayerHead, dict[str, float]]

    def __post_init__(self) -> None:
        self.loss, self.accuracy = float(np.mean(self.losses)), float(np.mean(self.accuracies))
        self.noise = max(self.losses) - min(self.losses)  # between seeds
        shares = self.attention_shares.items()
        self.main_target = {head: max(by_kind, key=lambda kind: by_kind[kind]) for head, by_kind in shares}
        self.num_kinds = len(set(self.main_target.values()))


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 600, seeds: int = 2, probes: int = 96,
    counts: Sequence[int] = (1, 2, 4, 8),
) -> ExperimentResult:  # fmt: skip
    """Train each head count with several seeds; heads are analysed for the first seed."""
    trained, figure = [], None
    for count in counts:
        settings = {
            "tokenizer": {"algorithm": "words", "vocab_size": 512},
            "num_validations": 6,
            "model": {"stack": {"attention": {"num_heads": count}}},  # d_model is split among them: all have one size
        }
        models = []
        for one_seed in range(seed, seed + seeds):
            name = f"{count} head{'s' * (count > 1)}, seed {one_seed}"
            stories = stories_for_steps(steps)
            models.append(
                train_temporary("gpt", stories, name, on_status, steps=steps, seed=one_seed, settings=settings)
            )
        trained.append(_evaluate_heads(count, models, probes, seed))
        if figure is None or count == _SHOWN_COUNT:
            figure = _attention_maps(models[0].model)
    assert figure is not None, "at least one count is trained"
    return conclude(trained, figure, seed)


def _evaluate_heads(count: int, models: Sequence[TrainedModel], probes: int, seed: int) -> HeadCountResult:
    """Evaluate loss and endings, and analyse the heads of the first model."""
    from peasy.commands.model_input import make_input
    from peasy.inspection.head_scores import score_heads

    stories = pronoun_stories(probes, seed)
    loaded = models[0].model
    texts = list(islice(open_corpus("stories").texts("valid"), 24))
    weights = referent_weights(loaded, stories)
    report = score_heads(loaded.model, [make_input(loaded, text).model_input for text in texts], seed=seed)
    shares = {
        (score.path.layer, score.head): {
            "previous token": score.previous,
            "same position": score.own,
            "first token": score.first,
            "same token": score.same,
            "referent": weights[score.path.layer, score.head][0],  # measured at the pronoun only
        }
        for score in report.heads
    }
    return HeadCountResult(
        count,
        loaded.model.count_parameters(),
        tuple(trained.final_loss for trained in models),
        tuple(story_accuracy(trained.model, stories) for trained in models),
        models[0].validation_curve,
        _head_distance(loaded, texts),
        shares,
    )


def _head_distance(loaded: LoadedModel, texts: Sequence[str]) -> float:
    """Mean total variation distance between the attention weights of two heads of a layer; 0 for a single head."""
    distances = []
    for text in texts:
        for capture in loaded.look(text).by_path("weights").values():
            array = capture.array.astype(float)
            pairs = [(a, b) for a in range(len(array)) for b in range(a)]
            distances += [np.abs(array[a] - array[b]).sum(-1)[1:].mean() / 2 for a, b in pairs]
    return float(np.mean(distances)) if distances else 0.0


def _attention_maps(loaded: LoadedModel) -> Maps:
    """Draw the attention maps of all heads on one sentence."""
    record = loaded.look(SENTENCE)
    values = np.stack([capture.array for capture in record.by_path("weights").values()]).astype(float)
    future = np.triu(np.ones(values.shape[-2:], dtype=bool), 1)
    layers, heads = (tuple(map(str, range(size))) for size in values.shape[:2])
    pieces = record.tokens.pieces
    title = f"{values.shape[1]} heads on one sentence"
    return Maps(title, np.where(future, np.nan, values), pieces, pieces, layers, heads)


def conclude(trained: Sequence[HeadCountResult], figure: Maps, seed: int) -> ExperimentResult:
    """A paired test over seeds of four heads (chosen before, not by its loss) against one decides."""
    one, several, most = trained[0], trained[1:], trained[-1]
    noise = max(model.noise for model in trained)
    best = min(several, key=lambda model: model.loss) if several else one
    tested = next((model for model in several if model.heads == _SHOWN_COUNT), most)
    p_value, seeds = paired_p_value(one.losses, tested.losses), len(one.losses)
    outcome = decide(p_value, can_reach=can_reach(seeds) and tested is not one)
    gain, kinds, holds = one.loss - best.loss, best.num_kinds, outcome is Outcome.SUPPORTED
    losses = ", ".join(f"{model.loss:.3f} with {model.heads}" for model in trained)
    verdict = (
        f"With {one.parameters:,} parameters each, the loss is {losses}. {best.heads} heads are better "
        f"than one by {gain:.3f}, and seeds differ by up to {noise:.3f}: several heads "
        f"{'learn more' if holds else 'do NOT learn measurably more here'} (one against "
        f"{tested.heads}: effect size {effect_size(one.losses, tested.losses):.1f}, p = {p_value:.3f}"
        f"{'' if can_reach(seeds) else f'; {seeds} seeds are too few to tell'})"
        f"{'' if most is best or not holds else f'; but {most.heads} are no better than {best.heads}'}. Accuracy of "
        f"endings: {one.accuracy:.0%} with one head, {best.accuracy:.0%} with {best.heads}. With {best.heads} heads, "
        f"two heads of a layer put {best.head_distance:.0%} of their attention weight on different tokens; by what "
        f"they attend to most, the heads are of {kinds} kind{'s' * (kinds != 1)}."
    )
    columns = [
        ("heads", ""), ("parameters", ","), ("loss", ".3f"), ("between seeds", ".3f"), ("endings", ".0%"),
        ("heads differ", ".0%"), ("kinds", ""),
    ]  # fmt: skip
    rows = ((m.heads, m.parameters, m.loss, m.noise, m.accuracy, m.head_distance, m.num_kinds) for m in trained)
    shares = best.attention_shares
    share_columns = [("head", ""), *((kind, ".0%") for kind in next(iter(shares.values()), {})), ("most", "")]
    share_rows = ((format_head(head), *by.values(), best.main_target[head]) for head, by in shares.items())
    parts = (
        table("Same parameter count, same number of steps", columns, rows),
        curves("Training on stories", {f"{m.heads} heads": m.curve for m in trained}, "step", "validation loss"),
        figure,
        table(f"What the heads attend to ({best.heads} heads per layer)", share_columns, share_rows),
    )
    numbers = {
        str(model.heads): {
            "parameters": model.parameters, "losses": model.losses, "accuracies": model.accuracies,
            "head_distance": model.head_distance,
            "attention_shares": {format_head(head): shares for head, shares in model.attention_shares.items()},
        }
        for model in trained
    }  # fmt: skip
    return make_result("heads", parts, verdict, outcome, numbers, seed)
