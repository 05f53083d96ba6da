"""Without the scale the variance grows with d_k; a constant scale changes the verdict."""

from peasy.experiments import why_root_dk


def test_scale_keeps_variance_and_gradient():
    result = why_root_dk.run(steps=0)
    assert result.holds, result.verdict
    assert abs(result.numbers["growth"]["without"] - 1) < 0.1


def test_constant_scale_changes_verdict():
    assert not why_root_dk.run(steps=0, scale=0.5).holds


def test_training_curves():
    result = why_root_dk.run(steps=4)
    assert set(result.numbers["training"]) == {"with 1/√d_k", "without"}
    assert "was better" in result.verdict
