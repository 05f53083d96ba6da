"""`pronoun`: which heads attend to the referent of a pronoun (coreference), ablation, and training from scratch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, islice
from random import Random

import numpy as np

from peasy.commands.align import LayerHead
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
from peasy.experiments.statistics import Comparison, Outcome, claim_outcome, least_above_chance
from peasy.inspection.results import CAVEAT
from peasy.views.document import DocumentPart, Matrix, Paragraph

SENTENCE = "The pizza came out of the oven and it"
_CHANCE = 0.5
"""One of two endings is right."""
_BEAM_WIDTH = 6
_NUM_CONTROLS = 12
"""Largest number of other sets of heads that are ablated for comparison."""
_SETTINGS: dict[str, object] = {
    "model": {"stack": {"token_shift": False}, "embedding": {"max_ngram": 1}},
    "num_saves": 8,
    "num_validations": 4,
}
ReferentWeights = Mapping[LayerHead, np.ndarray]
"""By head, for each story: the attention weight on the referent and on the other noun."""


@dataclass(frozen=True)
class CheckpointResult:
    """Checkpoint in training: stories seen, right endings, attention from "it" to its referent and the other noun."""

    stories: int
    hits: tuple[bool, ...]
    referent_weight: float
    other_weight: float

    @property
    def accuracy(self) -> float:
        """Fraction of right endings."""
        return float(np.mean(self.hits))


@dataclass(frozen=True)
class HeadAblation:
    """Set of ablated heads, and which endings are right: with all heads, without these, without as many others.

    `ablated` and `controls` by kind: set to zero, which is off the distribution that later layers know, and to their
    mean; `controls` has a row for each control set. `loss`: nats per token before the pronoun, of zero ablation.
    `excluded`: heads that language modelling itself needs.
    """

    heads: tuple[LayerHead, ...]
    hits: np.ndarray
    ablated: dict[str, np.ndarray]
    controls: dict[str, np.ndarray]
    loss: dict[str, float]
    excluded: tuple[LayerHead, ...] = ()
    sets_tried: int = 0

    def accuracies(self) -> dict[str, dict[str, float]]:
        """Accuracy by kind of ablation: with all heads, without these, and the spread of the control sets."""
        return {
            kind: {
                "none": float(self.hits.mean()),
                "ablated": float(hits.mean()),
                "control_lowest": float(self.controls[kind].mean(axis=1).min()),
                "control_mean": float(self.controls[kind].mean()),
            }
            for kind, hits in self.ablated.items()
        }


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", probes: int = 96,
    search_probes: int = 48, steps: int = 600,
) -> ExperimentResult:  # fmt: skip
    """Measure attention, ablate heads, and train a model from scratch (`steps=0`: skip the training).

    Heads are chosen on the first `search_probes` stories and reported on the others.
    """
    loaded = open_model(model)
    stories = pronoun_stories(probes + search_probes, seed)
    search, test = stories[:search_probes], stories[search_probes:]
    on_status(f'attention from "it" in {len(stories)} stories ...')
    head = best_referent_head(referent_weights(loaded, search))
    weights = {"it": referent_weights(loaded, test), "the next word": referent_weights(loaded, test, after=True)}
    ablation = _find_responsible_heads(loaded, search, test, seed, on_status)
    checkpoints = train_from_scratch(seed, steps, search, on_status) if steps else []
    return conclude(pronoun_attention(loaded), head, weights, ablation, checkpoints, seed)


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


def referent_weights(loaded: LoadedModel, probes: Sequence[Probe], after: bool = False) -> dict[LayerHead, np.ndarray]:
    """Return, by head, the attention weights from the pronoun to its referent and to the other noun, story by story.

    `after`: from the first word of the right ending instead, such as "tasted".
    """
    weights: dict[LayerHead, list[tuple[float, float]]] = {}
    for probe in probes:
        record = loaded.look(f"{probe.prompt} {probe.right.split()[0]}" if after else probe.prompt, queries=-1)
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
    return {head: np.array(pairs) for head, pairs in weights.items()}


def best_referent_head(weights: ReferentWeights) -> LayerHead:
    """Return the head with the largest difference between attention to the referent and to the other noun."""
    return max(weights, key=lambda head: float(np.diff(weights[head][:, ::-1]).mean()))


def _find_responsible_heads(
    loaded: LoadedModel, search: Sequence[Probe], test: Sequence[Probe], seed: int, on_status: OnStatus
) -> HeadAblation:
    """Search the smallest set of heads whose ablation reduces accuracy to chance; evaluate it on unseen stories."""
    from peasy.inspection.forward import attentions_of

    heads = [(part.path.layer, head) for part in attentions_of(loaded.model) for head in range(part.num_heads)]
    on_status("which heads language modelling needs ...")
    excluded = outliers({head: _prompt_loss(ablate_heads(loaded, [head]), search) for head in heads})
    candidates = [head for head in heads if head not in excluded]
    limit = least_above_chance(len(search), _CHANCE)
    chosen, tried = search_heads(
        candidates, lambda off: float(np.mean(story_hits(ablate_heads(loaded, off), search))), limit, on_status
    )
    others = list(combinations([head for head in candidates if head not in chosen], len(chosen)))
    controls = Random(seed).sample(others, min(_NUM_CONTROLS, len(others))) or [()]
    on_status(f"ablating as many other heads, {len(controls)} times ...")
    texts: dict[str, list[str]] = {"zero": [], "mean": [probe.prompt for probe in search]}
    hits = {
        kind: np.array([story_hits(ablate_heads(loaded, off, mean_of), test) for off in (chosen, *controls)])
        for kind, mean_of in texts.items()
    }
    sets: dict[str, list[tuple[LayerHead, ...]]] = {"none": [()], "ablated": [chosen], "control": controls}
    loss = {
        name: float(np.mean([_prompt_loss(ablate_heads(loaded, off), test) for off in group]))
        for name, group in sets.items()
    }
    ablated, others_hits = ({kind: rows[part] for kind, rows in hits.items()} for part in (0, slice(1, None)))
    return HeadAblation(chosen, np.array(story_hits(loaded, test)), ablated, others_hits, loss, excluded, tried)


def outliers(losses: Mapping[LayerHead, float]) -> tuple[LayerHead, ...]:
    """Return the heads whose loss is far above the others': more than three deviations (MAD) above the median.

    >>> outliers({(0, 0): 1.0, (0, 1): 1.1, (0, 2): 1.2, (0, 3): 3.0})
    ((0, 3),)
    """
    median = float(np.median(list(losses.values())))
    deviation = float(np.median([abs(loss - median) for loss in losses.values()])) * 1.4826  # as a standard deviation
    return tuple(head for head, loss in losses.items() if loss > median + 3 * deviation)


def story_hits(loaded: LoadedModel, probes: Sequence[Probe]) -> list[bool]:
    """Return for each story whether the right ending is likelier than the wrong one."""
    from peasy.evaluation.language import score_texts

    hits = []
    for start in range(0, len(probes), 16):
        some = probes[start : start + 16]
        right = score_texts(loaded, [probe.text for probe in some])
        wrong = score_texts(loaded, [probe.prompt + probe.wrong for probe in some])
        hits += [one[0] > other[0] for one, other in zip(right, wrong, strict=True)]
    return hits


def _prompt_loss(loaded: LoadedModel, probes: Sequence[Probe]) -> float:
    """Return the loss in nats per token up to the pronoun."""
    from peasy.evaluation.language import score_texts

    scored = score_texts(loaded, [probe.prompt for probe in probes])
    return -sum(logprob for logprob, _ in scored) / sum(len(is_greedy) for _, is_greedy in scored)


def search_heads(
    heads: Sequence[LayerHead], accuracy: Callable[[tuple[LayerHead, ...]], float], limit: float = 0.6,
    on_status: OnStatus = ignore_status,
) -> tuple[tuple[LayerHead, ...], int]:  # fmt: skip
    """Beam search over sets of heads to ablate, until accuracy is below `limit`; also return the number of sets tried.

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
        if scored[0][0] < limit:
            break
    return kept[0], tried


def train_from_scratch(seed: int, steps: int, probes: Sequence[Probe], on_status: OnStatus) -> list[CheckpointResult]:
    """Train a model of the same architecture from scratch and evaluate every checkpoint.

    The head is chosen on the first half of the stories, its weights are those of the second half.
    """
    checkpoints: list[CheckpointResult] = []
    corpus = stories_for_steps(steps)
    batch_size = int(corpus.suggested_settings["batch_size"])

    def evaluate(step: int, loaded: LoadedModel) -> None:
        weights, half = referent_weights(loaded, probes), len(probes) // 2
        head = best_referent_head({head: pairs[:half] for head, pairs in weights.items()})
        means = map(float, weights[head][half:].mean(axis=0))
        checkpoints.append(CheckpointResult(step * batch_size, tuple(story_hits(loaded, probes)), *means))

    train_temporary(
        "gpt", corpus, "from scratch", on_status,
        steps=steps, seed=seed, settings=_SETTINGS, preset="small", on_checkpoint=evaluate,
    )  # fmt: skip
    return checkpoints


def comparisons(
    weights: np.ndarray, ablation: HeadAblation, checkpoints: Sequence[CheckpointResult]
) -> list[Comparison]:
    """Attention to the referent, endings against chance, ablation against the control sets, end of training against its
    beginning."""
    referent, other = weights.T.tolist()
    chance = [_CHANCE] * len(ablation.hits)
    parts = [
        Comparison.of_pairs(
            '"it" attends to its referent', "weight on it", referent, "on the other noun", other
        ),
        Comparison.of_pairs("endings are right", "accuracy", ablation.hits.tolist(), "chance", chance),
        *(
            Comparison.of_pairs(
                f"these heads decide ({kind} ablation)", "accuracy without them", hits.tolist(), "without others",
                ablation.controls[kind].mean(axis=0).tolist(), lower=True,
            )
            for kind, hits in ablation.ablated.items()
        ),
    ]  # fmt: skip
    if checkpoints:
        first, last = checkpoints[0], checkpoints[-1]
        parts.append(Comparison.of_pairs("it is learned", "accuracy at the end", last.hits, "at first", first.hits))
    return parts


def conclude(
    matrix: Matrix, head: LayerHead, weights: Mapping[str, ReferentWeights], ablation: HeadAblation,
    checkpoints: Sequence[CheckpointResult], seed: int,
) -> ExperimentResult:  # fmt: skip
    """All parts count: attention, endings, ablation of these heads against others, and learning."""
    referent, other = weights["it"][head].mean(axis=0)
    next_referent, next_other = weights["the next word"][head].mean(axis=0)
    decided = comparisons(weights["it"][head], ablation, checkpoints)
    responsible = claim_outcome(decided[1:4]) is Outcome.SUPPORTED
    accuracy = ablation.accuracies()
    spread = ", ".join(
        f"{kind} ablation {by['control_mean']:.0%} on average and {by['control_lowest']:.0%} at least"
        for kind, by in accuracy.items()
    )
    verdict = (
        f'In head {format_head(head)}, "it" attends to its referent with weight {referent:.2f} and to the other noun '
        f'with {other:.2f}; the next word, such as "tasted", with {next_referent:.2f} and {next_other:.2f}. With all '
        f"heads {np.mean(ablation.hits):.0%} of {len(ablation.hits)} endings are right, without "
        f"{', '.join(map(format_head, ablation.heads))} {accuracy['zero']['ablated']:.0%} (set to their mean: "
        f"{accuracy['mean']['ablated']:.0%}; "
        f"chance: {_CHANCE:.0%}), without as many others: {spread}. The loss before the pronoun is "
        f"{ablation.loss['none']:.2f}, {ablation.loss['ablated']:.2f} and {ablation.loss['control']:.2f} nats per "
        f"token: {'these heads are responsible' if responsible else 'no small set of heads is responsible alone'}."
    )
    parts: list[DocumentPart] = [matrix, *_ablation_parts(weights, ablation)]
    if checkpoints:
        first, last = checkpoints[0], checkpoints[-1]
        verdict += (
            f" In training from scratch, the weight on the referent went from {first.referent_weight:.2f} after "
            f"{first.stories:,} stories to {last.referent_weight:.2f} after {last.stories:,}, and the accuracy from "
            f"{first.accuracy:.0%} to {last.accuracy:.0%}."
        )
        by_stories = {
            "accuracy of endings": {by.stories: by.accuracy for by in checkpoints},
            "weight on the referent": {by.stories: by.referent_weight for by in checkpoints},
            "weight on the other noun": {by.stories: by.other_weight for by in checkpoints},
        }
        parts.append(curves("Learning to resolve the pronoun", by_stories, "stories seen", "accuracy, weight"))
    means = {by: pairs.mean(axis=0).tolist() for by, pairs in weights["it"].items()}
    numbers = {
        "heads": {format_head(by): {"referent_weight": on, "other_weight": off} for by, (on, off) in means.items()},
        "ablation": {
            "heads": [format_head(head) for head in ablation.heads],
            "excluded": [format_head(head) for head in ablation.excluded],
            "accuracy": accuracy,
            "loss": ablation.loss,
            "sets_tried": ablation.sets_tried,
        },
        "checkpoints": [asdict(checkpoint) for checkpoint in checkpoints],
    }
    return make_result("pronoun", parts, verdict, decided, numbers, seed)


def _ablation_parts(weights: Mapping[str, ReferentWeights], ablation: HeadAblation) -> tuple[DocumentPart, ...]:
    """Tables of the attention and of the ablation of heads, and a note on the search."""
    excluded = ", ".join(map(format_head, ablation.excluded))
    note = (
        f"{ablation.sets_tried} sets of heads were tried, small ones first. A head set to zero is off the distribution "
        "that later layers know; set to its mean, it carries no information about this text."
    )
    note += f" Excluded, because language modelling itself needs them: {excluded}." if excluded else ""
    columns = [("head", ""), *((f"{query}: {side}", ".2f") for query in weights for side in ("referent", "other"))]
    rows = (
        (
            format_head(head),
            *(mean for by in weights.values() for mean in by[head].mean(axis=0)),
            "yes" if head in ablation.heads else "",
        )
        for head in weights["it"]
    )
    labels = {
        "none": "none",
        "ablated": ", ".join(map(format_head, ablation.heads)),
        "control_mean": f"{len(ablation.heads)} of the others, mean",
        "control_lowest": f"{len(ablation.heads)} of the others, lowest",
    }
    by_kind = ablation.accuracies()
    accuracies = ((label, *(by[name] for by in by_kind.values())) for name, label in labels.items())
    return (
        table("Mean attention weight", [*columns, ("ablated", "")], rows),
        table("Accuracy of endings", [("ablated heads", ""), ("zero", ".1%"), ("mean", ".1%")], accuracies),
        Paragraph(note, "note"),
    )
