"""`is-attention-explanation`: attention weights against what happens when an edge is cut, or a head made uniform."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peasy.commands.load import LoadedModel
from peasy.datasets import Probe
from peasy.experiments.models import ModelSource, open_model, untrained
from peasy.experiments.pronoun import pronoun_stories
from peasy.experiments.result import ExperimentResult, OnStatus, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, mean_interval
from peasy.views.document import Paragraph


@dataclass(frozen=True)
class WeightsAndEffects:
    """One text: mean attention weight of each key over all heads, and the change of the answer when it is cut.

    `effects`: absolute change of the answer's logit when the last token cannot attend to this key in any head.
    `uniform_effect`: the same if all heads attend uniformly.
    """

    weights: tuple[float, ...]
    effects: tuple[float, ...]
    uniform_effect: float

    @property
    def correlation(self) -> float:
        """Spearman correlation of weights and effects; 0 if one of them does not vary."""
        from peasy.metrics.scores import spearman

        if min(len(set(self.weights)), len(set(self.effects))) < 2:
            return 0.0
        return spearman(self.weights, self.effects)

    @property
    def same_top(self) -> bool:
        """Whether the key with the largest weight has the largest effect."""
        return int(np.argmax(self.weights)) == int(np.argmax(self.effects))


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, model: ModelSource = "stories", probes: int = 16
) -> ExperimentResult:
    """Cut each edge of the last token in all heads, text by text; the control is the same model untrained."""
    loaded = open_model(model)
    stories = pronoun_stories(probes, seed)
    measured = {}
    for name, one in (("trained", loaded), ("untrained", untrained(loaded, seed))):
        on_status(f"{name}: cutting every edge of the last token in {probes} texts ...")
        measured[name] = [measure_text(one, probe) for probe in stories]
    return conclude(measured["trained"], measured["untrained"], seed)


def measure_text(loaded: LoadedModel, probe: Probe) -> WeightsAndEffects:
    """Measure one text: the weights of its last token, and the effect of cutting each of its edges."""
    from peasy.inspection import edit

    plain = loaded.look(probe.prompt, queries=-1)
    assert plain.logits is not None
    answer, last = int(plain.logits.argmax()), len(plain.tokens) - 1
    weights = np.mean([capture.array[:, 0] for capture in plain.by_path("weights").values()], axis=(0, 1))

    def change(edits: "Sequence[edit.EditLike]") -> float:
        logits = loaded.look(probe.prompt, queries=-1, edit=edits).logits
        assert logits is not None
        assert plain.logits is not None
        return abs(float(logits[answer] - plain.logits[answer]))

    effects = tuple(change([edit.cut(last, key)]) for key in range(last + 1))
    layers = {info.path.layer for info in plain.attentions}
    return WeightsAndEffects(
        tuple(map(float, weights)), effects, change([edit.uniform(layer) for layer in sorted(layers)])
    )


def conclude(trained: Sequence[WeightsAndEffects], control: Sequence[WeightsAndEffects], seed: int) -> ExperimentResult:
    """In most texts (more often than not) the largest weight must have the largest effect, and weights and effects must
    correlate more than in the untrained model."""
    agreement = float(np.mean([text.same_top for text in trained]))
    correlations, of_control = ([text.correlation for text in side] for side in (trained, control))
    comparisons = (
        Comparison.of_pairs(
            "the largest weight has the largest effect", "fraction of texts", [text.same_top for text in trained],
            "half", [0.5] * len(trained),
        ),
        Comparison.of_pairs("weights follow effects", "Spearman", correlations, "untrained", of_control),
    )  # fmt: skip
    uniform = mean_interval([text.uniform_effect for text in trained])
    verdict = (
        f"In {agreement:.0%} of {len(trained)} texts the token with the largest mean weight is also the one whose cut "
        f"edge changes the answer's logit most. Over all tokens, weights and effects correlate by "
        f"{mean_interval(correlations)} (Spearman), in the untrained model by {mean_interval(of_control)}. "
        f"With all heads made uniform the logit changes by {uniform}: the patterns as a whole do matter."
    )
    rows = (
        (str(number), text.correlation, "yes" if text.same_top else "no", max(text.effects), text.uniform_effect)
        for number, text in enumerate(trained, 1)
    )
    columns = [
        ("text", ""), ("correlation", ".2f"), ("same top token", ""), ("largest effect", ".2f"), ("uniform", ".2f"),
    ]  # fmt: skip
    parts = (
        table("Weights of the last token, effects of cut edges", columns, rows),
        Paragraph(
            "Cutting an edge renormalises the other weights; the effect is the change of the answer's logit.", "note"
        ),
    )
    numbers = {
        "agreement": agreement, "correlations": correlations, "untrained": of_control,
        "uniform": [text.uniform_effect for text in trained],
    }  # fmt: skip
    return make_result("is-attention-explanation", parts, verdict, comparisons, numbers, seed)
