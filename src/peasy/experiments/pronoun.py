"""`pronoun`: heads that attend to the referent of "it", their ablation, and training with few or many examples."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, count, islice
from random import Random

import numpy as np

from peasy.commands.align import LayerHead
from peasy.commands.load import LoadedModel
from peasy.datasets import Probe
from peasy.datasets.stories import Stories, StoriesConfig, story_words
from peasy.experiments.models import ModelSource, ablate_heads, format_head, open_model, train_temporary
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
    "tokenizer": {"algorithm": "words", "vocab_size": 512},
    "num_saves": 8,
    "num_validations": 4,
}
_RARITY = {"few": (2, 1 / 256), "some": (2, 1 / 16), "all": (6, 1.0)}
"""Number of the ten nouns of each class, and the fraction of their stories that stay in the training texts."""
_QUERIES = ("it", "was", "told")
"""Words whose attention to the referent is measured: the pronoun, and the word after it, which fits several classes of
nouns, such as "was", or one class only, such as "told"."""
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
class NounExamples:
    """Nouns with few, some or all examples: examples of each as the referent, and, in other stories, right endings and
    the attention to them by query word."""

    examples: float
    accuracy: float
    weights: dict[str, float]


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
        by_set = {kind: rows.mean(axis=1) for kind, rows in self.controls.items()}
        return {
            kind: {
                "none": float(self.hits.mean()),
                "ablated": float(hits.mean()),
                "control_lowest": float(by_set[kind].min()),
                "control_mean": float(by_set[kind].mean()),
                "control_highest": float(by_set[kind].max()),
            }
            for kind, hits in self.ablated.items()
        }

    def strongest_control(self, kind: str) -> np.ndarray:
        """Endings of the control set that hurts most."""
        rows: np.ndarray = self.controls[kind]
        worst: np.ndarray = rows[rows.mean(axis=1).argmin()]
        return worst


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", probes: int = 96,
    search_probes: int = 48, steps: int = 900,
) -> ExperimentResult:  # fmt: skip
    """Measure attention, ablate heads, and train a model from scratch (`steps=0`: skip the training).

    Heads are chosen on the first `search_probes` stories and reported on the others.
    """
    loaded = open_model(model)
    stories = pronoun_stories(probes + search_probes, seed)
    search, test = stories[:search_probes], stories[search_probes:]
    on_status(f'attention from "it" in {len(stories)} stories ...')
    heads = {query: best_referent_head(referent_weights(loaded, search, query)) for query in _QUERIES}
    weights = {query: referent_weights(loaded, test, query) for query in _QUERIES}
    ablation = _find_responsible_heads(loaded, search, test, seed, on_status)
    checkpoints, examples = train_from_scratch(seed, steps, search, on_status) if steps else ([], {})
    return conclude(pronoun_attention(loaded), heads, weights, ablation, checkpoints, examples, seed)


def pronoun_stories(count: int, seed: int) -> list[Probe]:
    """Validation stories with the pronoun "it"; each seed selects different ones."""
    corpus = Stories(StoriesConfig(topic="things"))
    return [corpus.probe(number, "valid") for number in range(seed * count, (seed + 1) * count)]


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


def referent_weights(loaded: LoadedModel, probes: Sequence[Probe], query: str = "it") -> dict[LayerHead, np.ndarray]:
    """Return, by head, the attention weights from a query word to the referent and to the other noun, story by story.

    `query`: "it"; or "was" or "told": the first word of the right ending, if that fits several classes or one.
    """
    if query != "it":
        classes = Counter(
            word for kind in story_words().noun_classes.values() for word in set(map(_first, kind.endings))
        )
        probes = [probe for probe in probes if (classes[_first(probe.right)] == 1) == (query == "told")]
    weights: dict[LayerHead, list[tuple[float, float]]] = {}
    for probe in probes:
        record = loaded.look(probe.prompt if query == "it" else f"{probe.prompt} {_first(probe.right)}", queries=-1)
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


def _first(ending: str) -> str:
    return ending.split()[0]


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


class UnevenStories(Stories):
    """`stories` about things in which some nouns of each class, chosen by the seed, are rare (`groups`)."""

    name = "stories with rare nouns"

    def __init__(self, seed: int, num_train: int) -> None:
        super().__init__(StoriesConfig(topic="things", num_train=num_train, num_valid=400))
        self.groups: dict[str, str] = {}
        for kind in (one for one in story_words().noun_classes.values() if one.pronouns == ("it",)):
            nouns, start = Random(seed).sample(kind.nouns, len(kind.nouns)), 0
            for group, (number, _) in _RARITY.items():
                self.groups |= dict.fromkeys(nouns[start : start + number], group)
                start += number

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Draw stories until one is kept."""
        while True:
            key, probe = super().draw(rng)
            if rng.random() < _RARITY[self.groups[probe.referent]][1] * _RARITY[self.groups[probe.other]][1]:
                return key, probe


def train_from_scratch(
    seed: int, steps: int, probes: Sequence[Probe], on_status: OnStatus
) -> tuple[list[CheckpointResult], dict[str, NounExamples]]:
    """Train a model with few, some or all examples of a noun; evaluate every checkpoint, and the end by examples.

    Heads are chosen on the first half of the stories, their weights are those of the second half or of other stories.
    """
    checkpoints: list[CheckpointResult] = []
    batch_size, half = int(Stories.suggested_settings["batch_size"]), len(probes) // 2
    corpus = UnevenStories(seed, steps * batch_size)

    def evaluate(step: int, loaded: LoadedModel) -> None:
        weights = referent_weights(loaded, probes)
        head = best_referent_head({head: pairs[:half] for head, pairs in weights.items()})
        means = map(float, weights[head][half:].mean(axis=0))
        checkpoints.append(CheckpointResult(step * batch_size, tuple(story_hits(loaded, probes)), *means))

    model = train_temporary(
        "gpt", corpus, "from scratch", on_status,
        steps=steps, seed=seed, settings=_SETTINGS, preset="small", on_checkpoint=evaluate,
    ).model  # fmt: skip
    on_status("attention to nouns with few, some and all examples ...")
    heads = {query: best_referent_head(referent_weights(model, probes, query)) for query in _QUERIES}
    return checkpoints, {group: _evaluate_group(model, corpus, group, heads, len(probes)) for group in _RARITY}


def _evaluate_group(
    loaded: LoadedModel, corpus: UnevenStories, group: str, heads: Mapping[str, LayerHead], number: int
) -> NounExamples:
    """Evaluate unseen stories whose referent is of a group, and whose other noun has all examples."""
    valid = Stories(StoriesConfig(topic="things"), seed=1)
    unseen = (valid.probe(index, "valid") for index in count())
    wanted = (one for one in unseen if (corpus.groups[one.referent], corpus.groups[one.other]) == (group, "all"))
    stories = [*islice(wanted, number)]
    counts = Counter(probe.referent for probe in corpus.probes("train"))
    examples = np.mean([counts[noun] for noun, of in corpus.groups.items() if of == group])
    weights = {
        query: float(referent_weights(loaded, stories, query)[head][:, 0].mean()) for query, head in heads.items()
    }
    return NounExamples(float(examples), float(np.mean(story_hits(loaded, stories))), weights)


def comparisons(
    weights: Mapping[str, np.ndarray], ablation: HeadAblation, checkpoints: Sequence[CheckpointResult],
    examples: Mapping[str, NounExamples],
) -> list[Comparison]:  # fmt: skip
    """Attention to the referent, endings against chance, ablation against the control set that hurts most, the end of
    training against its beginning, and nouns with all examples against nouns with few."""
    parts = [
        Comparison.of_pairs(
            f'"{query}" attends to the referent', "weight on it", by[:, 0].tolist(), "on the other noun",
            by[:, 1].tolist(),
        )
        for query, by in weights.items()
    ]  # fmt: skip
    chance = [_CHANCE] * len(ablation.hits)
    parts.append(Comparison.of_pairs("endings are right", "accuracy", ablation.hits.tolist(), "chance", chance))
    for kind, hits in ablation.ablated.items():
        name, control = f"these heads decide ({kind} ablation)", ablation.strongest_control(kind).tolist()
        sides = "accuracy without them", hits.tolist(), "without the most harmful others", control
        parts.append(Comparison.of_pairs(name, *sides, lower=True))
    if checkpoints:
        first, last = checkpoints[0], checkpoints[-1]
        parts.append(Comparison.of_pairs("it is learned", "accuracy at the end", last.hits, "at first", first.hits))
    if examples:
        for query in _QUERIES:
            name, (many, few) = f'more examples, more attention from "{query}"', (examples[by] for by in ("all", "few"))
            sides = "weight with all examples", many.weights[query], "with few", few.weights[query]
            parts.append(Comparison(name, *sides))
    return parts


def conclude(
    matrix: Matrix, heads: Mapping[str, LayerHead], weights: Mapping[str, ReferentWeights], ablation: HeadAblation,
    checkpoints: Sequence[CheckpointResult], examples: Mapping[str, NounExamples], seed: int,
) -> ExperimentResult:  # fmt: skip
    """All parts count: attention, endings, ablation of these heads against others, learning, number of examples."""
    decided = comparisons({query: weights[query][heads[query]] for query in heads}, ablation, checkpoints, examples)
    responsible = claim_outcome(decided[len(heads) : len(heads) + 3]) is Outcome.SUPPORTED
    accuracy = ablation.accuracies()
    spread = ", ".join(
        f"{kind} ablation {by['control_lowest']:.0%} to {by['control_highest']:.0%}" for kind, by in accuracy.items()
    )
    attention = "; ".join(
        '"{}" in head {} with weight {:.2f} (the other noun: {:.2f})'.format(
            query, format_head(head), *weights[query][head].mean(axis=0)
        )
        for query, head in heads.items()
    )
    verdict = (
        f"The referent is attended to by {attention}. With all heads {np.mean(ablation.hits):.0%} of "
        f"{len(ablation.hits)} endings are right, without {', '.join(map(format_head, ablation.heads))} "
        f"{accuracy['zero']['ablated']:.0%} (set to their mean: {accuracy['mean']['ablated']:.0%}; chance: "
        f"{_CHANCE:.0%}), without as many others: {spread}. The loss before the pronoun is "
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
    if examples:
        rows = [(by.examples, by.accuracy, *by.weights.values()) for by in examples.values()]
        columns = [("examples of a noun", ".0f"), ("right endings", ".0%"), *((f'from "{q}"', ".2f") for q in _QUERIES)]
        parts.append(table("Attention to nouns with few or many examples", columns, rows))
        few, many = examples["few"], examples["all"]
        verdict += f' Nouns with {few.examples:.0f} examples get a weight of {few.weights["it"]:.2f} from "it", nouns '
        verdict += f"with {many.examples:.0f} examples {many.weights['it']:.2f}."
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
        "examples": {group: asdict(by) for group, by in examples.items()},
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
    sets = f"{len(next(iter(ablation.controls.values())))} sets of {len(ablation.heads)} others"
    labels = {
        "none": "none",
        "ablated": ", ".join(map(format_head, ablation.heads)),
        **{f"control_{part}": f"{sets}, {part}" for part in ("lowest", "mean", "highest")},
    }
    by_kind = ablation.accuracies()
    accuracies = ((label, *(by[name] for by in by_kind.values())) for name, label in labels.items())
    return (
        table("Mean attention weight", [*columns, ("ablated", "")], rows),
        table("Accuracy of endings", [("ablated heads", ""), ("zero", ".1%"), ("mean", ".1%")], accuracies),
        Paragraph(note, "note"),
    )
