"""`pronoun`: which heads attend to the referent of a pronoun (coreference), ablation, and training from scratch."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, islice
from random import Random

import numpy as np

from peasy.commands.alignment_head import LayerHead
from peasy.commands.load import LoadedModel
from peasy.datasets import Probe, open_corpus
from peasy.experiments.models import (
    ModelSource,
    ablate_heads,
    format_head,
    open_model,
    stories_for_steps,
    train_temporary,
)  # fmt: skip
from peasy.experiments.result import ExperimentResult, OnStatus, curves, ignore_status, make_result, table
from peasy.experiments.statistics import outcome_of
from peasy.inspection.results import CAVEAT
from peasy.views.document import DocumentPart, Matrix, Paragraph

SENTENCE = "The pizza came out of the oven and it"
_CHANCE, _MARGIN = 0.5, 0.1
"""One of two endings is right; the search for heads stops this close to chance."""
_BEAM_WIDTH, _NUM_CONTROLS = 6, 6
_MAX_LOSS_INCREASE = 0.1
"""Heads whose ablation raises the loss before "it" by more nats per token are needed for language modelling itself."""
_SETTINGS: dict[str, object] = {
    "model": {"stack": {"token_shift": False}, "embedding": {"max_ngram": 1}},
    "num_saves": 8,
    "num_validations": 4,
}


@dataclass(frozen=True)
class CheckpointResult:
    """Checkpoint in training: stories seen, accuracy, and attention from "it" to its referent and the other noun."""

    stories: int
    accuracy: float
    referent_weight: float
    other_weight: float


@dataclass(frozen=True)
class HeadAblation:
    """Set of ablated heads, with accuracy and loss under ablation.

    `accuracy` of endings with all heads ("none" ablated), without these ("ablated"), without as many others
    ("control"); `loss`: nats per token before the pronoun. `excluded`: heads that language modelling itself needs.
    """

    heads: tuple[LayerHead, ...]
    accuracy: dict[str, float]
    loss: dict[str, float]
    excluded: tuple[LayerHead, ...]
    sets_tried: int


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", probes: int = 192,
    search_probes: int = 48, steps: int = 1200,
) -> ExperimentResult:  # fmt: skip
    """Measure attention, ablate heads, and train a model from scratch (`steps=0`: skip the training)."""
    loaded = open_model(model)
    stories = pronoun_stories(probes + search_probes, seed)
    on_status(f'attention from "it" in {probes} stories ...')
    weights = referent_weights(loaded, stories[search_probes:])
    ablation = _find_responsible_heads(loaded, stories[:search_probes], stories[search_probes:], seed, on_status)
    checkpoints = train_from_scratch(seed, steps, stories[: max(search_probes, 1)], on_status) if steps else []
    return conclude(pronoun_attention(loaded), weights, ablation, checkpoints, probes, seed)


def pronoun_stories(count: int, seed: int) -> list[Probe]:
    """Validation stories with the pronoun "it"; each seed selects different ones."""
    return list(
        islice(open_corpus("stories:things", num_valid=10**6).probes("valid"), seed * count, (seed + 1) * count)
    )


def pronoun_attention(loaded: LoadedModel) -> Matrix:
    """Attention weights from "it" in the example sentence, for every head."""
    record = loaded.look(SENTENCE, queries=-1)
    weights = [
        (f"head {format_head((path.layer, head))}", capture.array[index, 0])
        for path, capture in record.by_path("weights").items()
        for index, head in enumerate(capture.heads)
    ]
    values = tuple(tuple(float(row[list(group)].sum()) for group in record.tokens.word_positions) for _, row in weights)
    rows = tuple(name for name, _ in weights)
    title = 'attention from "it"'
    return Matrix(title, values, rows, record.tokens.words, "layer.head", "key", description=CAVEAT, shaded=True)


def referent_weights(loaded: LoadedModel, probes: Sequence[Probe]) -> dict[LayerHead, tuple[float, float]]:
    """Return, by head, the mean attention weight from the pronoun to its referent and to the other noun."""
    weights: dict[LayerHead, list[tuple[float, float]]] = {}
    for probe in probes:
        record = loaded.look(probe.prompt, queries=-1)
        words = list(zip(record.tokens.words, record.tokens.word_positions, strict=True))
        referent, other = (
            [position for word, group in words if word == noun.split()[-1] for position in group]
            for noun in (probe.referent, probe.other)
        )
        for path, capture in record.by_path("weights").items():
            for index, head in enumerate(capture.heads):
                row = capture.array[index, 0]
                pair = (float(row[referent].sum()), float(row[other].sum()))
                weights.setdefault((path.layer, head), []).append(pair)
    means = {head: np.mean(pairs, axis=0) for head, pairs in weights.items()}
    return {head: (float(mean[0]), float(mean[1])) for head, mean in means.items()}


def _find_responsible_heads(
    loaded: LoadedModel, search: Sequence[Probe], test: Sequence[Probe], seed: int, on_status: OnStatus
) -> HeadAblation:
    """Search the smallest set of heads whose ablation reduces accuracy to chance; evaluate it on unseen stories."""
    from peasy.inspection.forward import attentions_of

    heads = [(part.path.layer, head) for part in attentions_of(loaded.model) for head in range(part.num_heads)]
    on_status("which heads language modelling needs ...")
    baseline = _prompt_loss(loaded, search)
    excluded = tuple(
        head for head in heads if _prompt_loss(ablate_heads(loaded, [head]), search) > baseline + _MAX_LOSS_INCREASE
    )
    candidates = [head for head in heads if head not in excluded] or heads
    chosen, tried = search_heads(candidates, lambda off: story_accuracy(ablate_heads(loaded, off), search), on_status)
    others = list(combinations([head for head in candidates if head not in chosen], len(chosen)))
    controls = Random(seed).sample(others, min(_NUM_CONTROLS, len(others))) or [()]
    on_status(f"ablating as many other heads, {len(controls)} times ...")
    sets: dict[str, Sequence[tuple[LayerHead, ...]]] = {"none": [()], "ablated": [chosen], "control": controls}
    models = {name: [ablate_heads(loaded, ablated) for ablated in group] for name, group in sets.items()}
    accuracy, losses = (
        {name: float(np.mean([measure(model, test) for model in group])) for name, group in models.items()}
        for measure in (story_accuracy, _prompt_loss)
    )
    return HeadAblation(chosen, accuracy, losses, excluded, tried)


def story_accuracy(loaded: LoadedModel, probes: Sequence[Probe]) -> float:
    """Return the accuracy of endings."""
    from peasy.evaluation.language import ending_accuracy

    return ending_accuracy(loaded, probes, None, lambda _: None).accuracy


def _prompt_loss(loaded: LoadedModel, probes: Sequence[Probe]) -> float:
    """Return the loss in nats per token up to the pronoun."""
    from peasy.evaluation.language import score_texts

    scored = score_texts(loaded, [probe.prompt for probe in probes])
    return -sum(logprob for logprob, _ in scored) / sum(len(is_greedy) for _, is_greedy in scored)


def search_heads(
    heads: Sequence[LayerHead], accuracy: Callable[[tuple[LayerHead, ...]], float], on_status: OnStatus = ignore_status
) -> tuple[tuple[LayerHead, ...], int]:
    """Beam search over sets of heads to ablate, until accuracy is near chance; also return the number of sets tried.

    At most half of all heads, so that as many others are left for the control.

    >>> search_heads([(0, 0), (0, 1), (1, 0), (1, 1)], lambda off: 0.5 if {(0, 1), (1, 1)} <= set(off) else 1.0)
    (((0, 1), (1, 1)), 10)
    """
    kept: list[tuple[LayerHead, ...]] = [()]
    tried = 0
    for size in range(1, max(len(heads) // 2, 1) + 1):
        grown = sorted({tuple(sorted((*base, head))) for base in kept for head in heads if head not in base})
        scored = sorted((accuracy(ablated), ablated) for ablated in grown)
        tried, kept = tried + len(grown), [ablated for _, ablated in scored[:_BEAM_WIDTH]]
        on_status(f"without {size} of {len(heads)} heads: lowest accuracy {scored[0][0]:.0%}")
        if scored[0][0] <= _CHANCE + _MARGIN:
            break
    return kept[0], tried


def train_from_scratch(seed: int, steps: int, probes: Sequence[Probe], on_status: OnStatus) -> list[CheckpointResult]:
    """Train a model of the same architecture from scratch and evaluate every checkpoint."""
    checkpoints: list[CheckpointResult] = []
    corpus = stories_for_steps(steps)
    batch_size = int(corpus.suggested_settings["batch_size"])

    def evaluate(step: int, loaded: LoadedModel) -> None:
        weights = best_referent_head(referent_weights(loaded, probes))[1]
        checkpoints.append(CheckpointResult(step * batch_size, story_accuracy(loaded, probes), *weights))

    train_temporary(
        "gpt", corpus, "from scratch", on_status,
        steps=steps, seed=seed, settings=_SETTINGS, preset="small", on_checkpoint=evaluate,
    )  # fmt: skip
    return checkpoints


def best_referent_head(weights: dict[LayerHead, tuple[float, float]]) -> tuple[LayerHead, tuple[float, float]]:
    """Return the head with the largest difference between attention to the referent and to the other noun."""
    return max(weights.items(), key=lambda item: item[1][0] - item[1][1])


def conclude(
    matrix: Matrix, weights: dict[LayerHead, tuple[float, float]], ablation: HeadAblation,
    checkpoints: Sequence[CheckpointResult], probes: int, seed: int,
) -> ExperimentResult:  # fmt: skip
    """Holds if accuracy is high with all heads, at chance without some, and high without as many others."""
    head, (referent, other) = best_referent_head(weights)
    named = ", ".join(map(format_head, ablation.heads))
    accuracy, loss, improved = ablation.accuracy, ablation.loss, True
    fell = accuracy["none"] > 0.9 and accuracy["ablated"] <= _CHANCE + 1.5 * _MARGIN
    stayed = accuracy["control"] > (accuracy["none"] + _CHANCE) / 2
    verdict = (
        f'In head {format_head(head)}, "it" attends to its referent with weight {referent:.2f} and to the other noun '
        f"with {other:.2f}. With all heads {accuracy['none']:.0%} of {probes} endings are right, without {named} "
        f"{accuracy['ablated']:.0%} (chance: {_CHANCE:.0%}), without as many other heads {accuracy['control']:.0%}; "
        f"the loss before the pronoun is {loss['none']:.2f}, {loss['ablated']:.2f} and {loss['control']:.2f} nats per "
        f"token: {'these heads are responsible' if fell and stayed else 'no small set of heads is responsible alone'}."
    )
    parts: list[DocumentPart] = [matrix, *_ablation_parts(weights, ablation)]
    if checkpoints:
        first, last = checkpoints[0], checkpoints[-1]
        before, after = (by.referent_weight - by.other_weight for by in (first, last))
        improved = after > before and last.accuracy > first.accuracy
        verdict += (
            f" In training from scratch, the weight on the referent went from {first.referent_weight:.2f} after "
            f"{first.stories:,} stories to {last.referent_weight:.2f} after {last.stories:,}, and the accuracy from "
            f"{first.accuracy:.0%} to {last.accuracy:.0%}: it {'is' if improved else 'was NOT'} learned from examples."
        )
        by_stories = {
            "accuracy of endings": {by.stories: by.accuracy for by in checkpoints},
            "weight on the referent": {by.stories: by.referent_weight for by in checkpoints},
            "weight on the other noun": {by.stories: by.other_weight for by in checkpoints},
        }
        parts.append(curves("Learning to resolve the pronoun", by_stories, "stories seen", "accuracy, weight"))
    numbers = {
        "heads": {format_head(by): {"referent_weight": on, "other_weight": off} for by, (on, off) in weights.items()},
        "ablation": {**asdict(ablation), "heads": [format_head(head) for head in ablation.heads]},
        "checkpoints": [asdict(checkpoint) for checkpoint in checkpoints],
    }
    holds = fell and stayed and referent > other and improved
    return make_result("pronoun", tuple(parts), verdict, outcome_of(holds), numbers, seed)


def _ablation_parts(weights: dict[LayerHead, tuple[float, float]], ablation: HeadAblation) -> tuple[DocumentPart, ...]:
    """Tables of the attention and of the ablation of heads, and a note on the search."""
    ablated = {"none": "none", "ablated": ", ".join(map(format_head, ablation.heads))}
    ablated["control"] = f"{len(ablation.heads)} of the others (mean)"
    excluded = ", ".join(map(format_head, ablation.excluded))
    note = f"{ablation.sets_tried} sets of heads were tried, small ones first."
    note += f" Excluded, because language modelling itself needs them: {excluded}." if excluded else ""
    return (
        table(
            'Mean attention weight from "it"',
            [("head", ""), ("on the referent", ".2f"), ("on the other noun", ".2f"), ("in the ablated set", "")],
            ((format_head(head), *pair, "yes" if head in ablation.heads else "") for head, pair in weights.items()),
        ),
        table(
            "Ablation of heads",
            [("ablated heads", ""), ("accuracy of endings", ".1%"), ("nats per token before", ".3f")],
            ((label, ablation.accuracy[name], ablation.loss[name]) for name, label in ablated.items()),
        ),
        Paragraph(note, "note"),
    )
