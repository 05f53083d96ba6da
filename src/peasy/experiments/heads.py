"""`heads`: loss with one, two, four or eight attention heads of equal parameter count, and what the heads attend to."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from peasy.commands.align import LayerHead
from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.experiments.models import TrainedModel, format_head, stories_for_steps, train_temporary
from peasy.experiments.pronoun import SENTENCE, pronoun_stories, referent_weights, story_hits
from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison
from peasy.views.document import Maps

_SHOWN_COUNT = 4


@dataclass
class HeadCountResult:
    """Results for one head count: parameters, final loss, which endings were right, and the loss curve.

    `head_distance`: total variation distance between the attention weights of two heads of a layer, from 0 to 1.
    `attention_shares`: for each head, the share of its weight by kind of target.
    """

    heads: int
    parameters: int
    loss: float
    hits: tuple[bool, ...]
    curve: Points
    head_distance: float
    attention_shares: dict[LayerHead, dict[str, float]]

    def __post_init__(self) -> None:
        self.accuracy = float(np.mean(self.hits))
        shares = self.attention_shares.items()
        self.main_target = {head: max(by_kind, key=lambda kind: by_kind[kind]) for head, by_kind in shares}
        self.num_kinds = len(set(self.main_target.values()))


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 200, probes: int = 48,
    counts: Sequence[int] = (1, 2, 4, 8),
) -> ExperimentResult:  # fmt: skip
    """Train each head count with the same data and steps, and analyse the heads."""
    results, figure = [], None
    for count in counts:
        settings = {
            "tokenizer": {"algorithm": "words", "vocab_size": 512},
            "num_validations": 6,
            "model": {"stack": {"attention": {"num_heads": count}}},  # d_model is split among them: all have one size
        }
        name, stories = f"{count} head{'s' * (count > 1)}", stories_for_steps(steps)
        trained = train_temporary("gpt", stories, name, on_status, steps=steps, seed=seed, settings=settings)
        results.append(_evaluate_heads(count, trained, probes, seed))
        if figure is None or count == _SHOWN_COUNT:
            figure = _attention_maps(trained.model)
    assert figure is not None, "at least one count is trained"
    return conclude(results, figure, seed)


def _evaluate_heads(count: int, trained: TrainedModel, probes: int, seed: int) -> HeadCountResult:
    """Evaluate loss and endings, and analyse the heads."""
    from peasy.commands.model_input import make_input
    from peasy.inspection.head_scores import score_heads

    stories, loaded = pronoun_stories(probes, seed), trained.model
    texts = list(islice(open_corpus("stories").texts("valid"), 24))
    weights = referent_weights(loaded, stories)
    report = score_heads(loaded.model, [make_input(loaded, text).model_input for text in texts], seed=seed)
    shares = {
        (score.path.layer, score.head): {
            "previous token": score.previous,
            "same position": score.own,
            "first token": score.first,
            "same token": score.same,
            "referent": float(weights[score.path.layer, score.head][:, 0].mean()),  # measured at the pronoun only
        }
        for score in report.heads
    }
    size, hits = loaded.model.count_parameters(), tuple(story_hits(loaded, stories))
    distance = _head_distance(loaded, texts)
    return HeadCountResult(count, size, trained.final_loss, hits, trained.validation_curve, distance, shares)


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
    """Four heads (chosen before, not by their loss) against one, over seeds."""
    one, best = trained[0], min(trained, key=lambda model: model.loss)
    tested = next((model for model in trained if model.heads == _SHOWN_COUNT), trained[-1])
    comparison = Comparison(
        "several heads learn more", f"loss with {tested.heads}", tested.loss, "with 1", one.loss, lower=True
    )
    losses = ", ".join(f"{model.loss:.3f} with {model.heads}" for model in trained)
    verdict = (
        f"With {one.parameters:,} parameters each, the loss is {losses}; the lowest is that of {best.heads}. Accuracy "
        f"of endings: {one.accuracy:.0%} with one head, {tested.accuracy:.0%} with {tested.heads}. With {tested.heads} "
        f"heads, two heads of a layer put {tested.head_distance:.0%} of their attention weight on different tokens; by "
        f"what they attend to most, the heads are of {tested.num_kinds} kind{'s' * (tested.num_kinds != 1)}."
    )
    columns = [
        ("heads", ""), ("parameters", ","), ("loss", ".3f"), ("endings", ".0%"), ("heads differ", ".0%"), ("kinds", ""),
    ]  # fmt: skip
    rows = ((m.heads, m.parameters, m.loss, m.accuracy, m.head_distance, m.num_kinds) for m in trained)
    shares = tested.attention_shares
    share_columns = [("head", ""), *((kind, ".0%") for kind in next(iter(shares.values()), {})), ("most", "")]
    share_rows = ((format_head(head), *by.values(), tested.main_target[head]) for head, by in shares.items())
    parts = (
        table("Same parameter count, same number of steps", columns, rows),
        curves("Training on stories", {f"{m.heads} heads": m.curve for m in trained}, "step", "validation loss"),
        figure,
        table(f"What the heads attend to ({tested.heads} heads per layer)", share_columns, share_rows),
    )
    numbers = {
        str(model.heads): {
            "parameters": model.parameters, "loss": model.loss, "accuracy": model.accuracy,
            "head_distance": model.head_distance,
            "attention_shares": {format_head(head): shares for head, shares in model.attention_shares.items()},
        }
        for model in trained
    }  # fmt: skip
    return make_result("heads", parts, verdict, [comparison], numbers, seed)
