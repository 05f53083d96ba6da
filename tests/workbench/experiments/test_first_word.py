"""Under a mask the first word keeps its own value; without one it does not, and the verdict says so."""

from peasy.workbench.experiments import first_word
from peasy.workbench.load import load


def test_with_the_mask_and_without():
    stories = load("stories")
    found = first_word.run(model=stories, texts=6)
    assert found.holds, found.verdict
    assert "is its own value" in found.verdict
    other = first_word.run(model=stories, texts=2, causal=False)
    assert not other.holds
    assert "NOT its own value" in other.verdict


def test_sinks_are_told_as_they_are():
    masked = first_word.compare(load("stories"))
    rests = {"trained": first_word.Rest({(0, 0): 0.8}, 0.1), "untrained": first_word.Rest({(0, 0): 0.1}, 0.1)}
    costs = {"nothing": 1.0, "the first token": 1.5, "the second": 1.1}
    assert "there is an attention sink" in first_word.conclude(masked, rests, costs, 0).verdict
    rests["trained"] = rests["untrained"]
    assert "there is no attention sink" in first_word.conclude(masked, rests, costs, 0).verdict
