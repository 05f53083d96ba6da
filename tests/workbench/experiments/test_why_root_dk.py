"""The variance grows with the width without the scale; a scale that does not follow the width turns the verdict."""

from peasy.workbench.experiments import why_root_dk


def test_the_root_keeps_variance_and_gradient():
    found = why_root_dk.run(steps=0)
    assert found.holds, found.verdict
    assert abs(found.numbers["growth"]["without"] - 1) < 0.1


def test_another_scale_turns_the_verdict():
    assert not why_root_dk.run(steps=0, scale=0.5).holds


def test_training_gives_both_curves():
    found = why_root_dk.run(steps=4)
    assert set(found.numbers["training"]) == {"with 1/√d_k", "without"}
    assert "was ahead" in found.verdict
