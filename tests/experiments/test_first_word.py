"""Under a causal mask the first context is its own value; without the mask the verdict changes."""

from peasy.commands.load import load
from peasy.experiments import first_word


def test_verdict_with_and_without_mask():
    stories = load("stories")
    result = first_word.run(model=stories, texts=6)
    assert result.holds, result.verdict
    assert "is its own value" in result.verdict
    control = first_word.run(model=stories, texts=2, causal=False)
    assert not control.holds
    assert "NOT its own value" in control.verdict


def test_attention_sinks_are_reported():
    masked = first_word.compare_masks(load("stories"))
    attention = {
        "trained": first_word.FirstTokenAttention({(0, 0): 0.8}, 0.1),
        "untrained": first_word.FirstTokenAttention({(0, 0): 0.1}, 0.1),
    }
    losses = {"none": 1.0, "first": 1.5, "second": 1.1}
    assert "there is an attention sink" in first_word.conclude(masked, attention, losses, 0).verdict
    attention["trained"] = attention["untrained"]
    assert "there is no attention sink" in first_word.conclude(masked, attention, losses, 0).verdict
