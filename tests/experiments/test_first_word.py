"""Under a causal mask the first context is its own value; without the mask the verdict changes."""

from peasy.commands.load import load
from peasy.experiments import first_word
from peasy.experiments.models import untrained
from peasy.experiments.statistics import Outcome


def test_verdict_with_and_without_mask():
    stories = load("stories")
    result = first_word.run(model=stories, texts=6)
    assert result.comparisons[0].outcome is Outcome.SUPPORTED
    assert "is its own value" in result.verdict
    control = first_word.run(model=stories, texts=2, causal=False)
    assert control.outcome is Outcome.NOT_SUPPORTED
    assert "NOT its own value" in control.verdict
    assert first_word.run(model=untrained(stories, 3), texts=6).comparisons[1].outcome is Outcome.NOT_SUPPORTED


def test_attention_sinks_are_reported():
    masked = first_word.compare_masks(load("stories"))
    attention = {
        "trained": first_word.FirstTokenAttention({(0, 0): 0.8}, 0.1),
        "untrained": first_word.FirstTokenAttention({(0, 0): 0.1}, 0.1),
    }
    none, first, second = ([loss + text / 100 for text in range(6)] for loss in (1.0, 1.5, 1.1))
    losses = {"none": none, "first": first, "second": second}
    found = first_word.conclude(masked, attention, losses, 0)
    assert "there is an attention sink" in found.verdict
    assert found.comparisons[1].outcome is Outcome.SUPPORTED
    swapped = first_word.conclude(masked, attention, losses | {"first": second, "second": first}, 0)
    assert (swapped.outcome, "there is no attention sink" in swapped.verdict) == (Outcome.NOT_SUPPORTED, True)
    attention["trained"] = attention["untrained"]
    assert "there is no attention sink" in first_word.conclude(masked, attention, losses, 0).verdict
