"""Sweeps: every cell equals the same edit run on its own, for every kind of change and model."""

import numpy as np
import pytest
import torch
from tests.models.tiny_models import TRANSFORMERS, make, some_ids

import peasy
from peasy.commands.load import LoadedModel
from peasy.errors import InvalidInput
from peasy.inspection import sweep as sweeps

CLEAN, CORRUPT = (some_ids(1, 7, seed=seed)[0].tolist() for seed in (1, 2))
MODELS = ["learned", "grouped", "post-norm", "window", "shift", "encoder", "softcap"]


def metric(logits: torch.Tensor) -> torch.Tensor:
    return logits[..., 5] - logits[..., 9]


def value(loaded, ids, edit=None) -> float:
    return float(metric(torch.from_numpy(loaded.look(ids, edit=edit).logits)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("over", ["heads", "patterns", "layers×positions"])
def test_each_cell_equals_the_patch_on_its_own(name, over, monkeypatch):
    monkeypatch.setattr(sweeps, "MAX_BATCH_TOKENS", 7 * 5)  # several chunks, across layers
    loaded = LoadedModel(name, make(TRANSFORMERS[name]), None)
    done = []
    result = loaded.sweep(CLEAN, CORRUPT, metric=metric, over=over, on_progress=lambda *count: done.append(count))
    assert result.shape == (3, 7 if over == "layers×positions" else 4)
    assert result.clean == pytest.approx(value(loaded, CLEAN), abs=1e-5)
    assert result.corrupt == pytest.approx(value(loaded, CORRUPT), abs=1e-5)
    for layer, index in np.ndindex(*result.shape):
        if over == "layers×positions":
            edit = peasy.edit.patch(CLEAN, layer, step="residual", positions=[index])
        else:
            edit = peasy.edit.patch(CLEAN, layer, index, step="context" if over == "heads" else "weights")
        assert result[layer, index] == pytest.approx(value(loaded, CORRUPT, edit), abs=1e-5), (layer, index)
    assert done[-1] == (result.values.size, result.values.size)
    assert len(done) > 1


@pytest.mark.parametrize("method", ["zero", "mean"])
def test_ablations_change_the_clean_text(method):
    loaded = LoadedModel("learned", make(TRANSFORMERS["learned"]), None)
    data = [CLEAN, CORRUPT[:5]]
    result = loaded.sweep(CLEAN, metric=metric, method=method, data=data if method == "mean" else None)
    assert result.corrupt is None
    for layer, head in np.ndindex(*result.shape):
        edit = peasy.edit.zero(layer, head) if method == "zero" else peasy.edit.mean(data, layer, head)
        assert result[layer, head] == pytest.approx(value(loaded, CLEAN, edit), abs=1e-5)
    np.testing.assert_allclose(result.normalised, result.values - result.clean)


def test_sweeps_of_translators_attend_to_the_encoder_in_every_row():
    loaded = LoadedModel("seq2seq", make(TRANSFORMERS["seq2seq"]), None)
    from peasy.inspection.apply_edits import EditContext, make_intervention
    from peasy.inspection.forward import ModelInput, forward_logits

    text = ModelInput(tuple(CLEAN), (3, 4, 5, 6))
    variants = [variant for row in sweeps.head_variants(loaded.model, "context") for variant in row]
    zeros = sweeps.make_replacements(loaded.model, [variant.address for variant in variants], text, "zero")
    (logits,) = sweeps.run_variants(loaded.model, text, variants, zeros)
    for variant, row in zip(variants, logits[1:], strict=True):
        edit = make_intervention([peasy.edit.zero(variant.address.layer, variant.index)], EditContext(loaded.model))
        torch.testing.assert_close(row, forward_logits(loaded.model, text, None, edit), atol=1e-5, rtol=0)


def test_words_labels_and_documents(decoder):
    model = peasy.load(decoder)
    result = model.sweep(
        "The pizza came out", "The out came pizza", metric=peasy.logit_difference("good", "it"), over="layers×positions"
    )
    assert result.columns == model.look("The out came pizza").tokens.pieces
    assert "logit of good - logit of it" in str(result)
    assert max(map(len, str(result).splitlines())) <= 80
    assert "<svg" in result.svg()
    assert result["1", 0] == pytest.approx(result.values[1, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"over": "haeds"}, "no sweep over"),
        ({"method": "zap"}, "no method"),
        ({"method": "zero"}, "takes no corrupt text"),
        ({"corrupt": None}, "needs corrupt text"),
        ({"corrupt": CLEAN[:3]}, "7 tokens, the corrupt one 3"),
        ({"corrupt": None, "method": "mean"}, "needs data"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    loaded = LoadedModel("learned", make(TRANSFORMERS["learned"]), None)
    with pytest.raises(InvalidInput, match=message):
        loaded.sweep(CLEAN, **{"corrupt": CORRUPT, "metric": metric} | options)
