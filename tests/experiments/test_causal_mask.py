"""Without a causal mask the loss is too low and the next token is not predicted; the control changes the verdict."""

from types import SimpleNamespace

import pytest

from peasy.commands.load import load
from peasy.experiments import causal_mask
from peasy.experiments.experiment import experiment
from peasy.experiments.statistics import Outcome


def test_causal_mask_hides_later_tokens():
    matrix = causal_mask.causal_mask_matrix()
    assert matrix.values[0] == (1.0, *[None] * (len(matrix.columns) - 1))
    assert None not in matrix.values[-1]


@pytest.mark.slow
def test_missing_mask_is_detected():
    result = experiment("causal-mask", seeds=5, steps=120, texts=12)
    assert result.outcome is Outcome.SUPPORTED, result.verdict


def test_the_same_model_twice_is_not_support():
    result = causal_mask.run(steps=2, leak=False, texts=6)
    assert result.comparisons[1].outcome is Outcome.NOT_SUPPORTED
    assert result.outcome is Outcome.NOT_SUPPORTED


def concluded(causal, unmasked, count=8):
    models = {name: SimpleNamespace(final_loss=loss, validation_curve=((0.0, loss),))
              for name, loss in (("causal", 1.2), ("unmasked", 0.1))}  # fmt: skip
    losses = {"causal": [causal] * count, "unmasked": [unmasked] * count}
    return causal_mask.conclude(models, losses, {"causal": "a", "unmasked": "b"}, 0).comparisons[1].outcome


def test_predictions_from_earlier_tokens_decide():
    assert concluded(1.2, 7.0) is Outcome.SUPPORTED
    assert concluded(7.0, 1.2) is Outcome.NOT_SUPPORTED
    assert concluded(1.2, 7.0, 3) is Outcome.CANNOT_TELL


def test_prefix_loss_equals_the_loss_of_one_pass_under_a_causal_mask(decoder):
    """Two ways to one number."""
    import torch

    loaded, text = load(decoder), "a b c d e"
    ids = torch.tensor([loaded.encode_prompt(text)])
    whole = torch.nn.functional.cross_entropy(loaded.model(ids)[0, 1:-1].float(), ids[0, 2:])
    assert causal_mask.prefix_loss(loaded, text) == pytest.approx(float(whole), abs=1e-5)
