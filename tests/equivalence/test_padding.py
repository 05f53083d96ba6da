"""Padding on either side changes nothing, whatever it contains."""

import pytest
import torch
from tests.models.tiny_models import (
    ALL_MODELS,
    DECODERS,
    GENERATIVE_MODELS,
    SEQ2SEQ_MODELS,
    TRANSFORMERS,
    make,
    some_ids,
    source_of,
)

from peasy.nn import attention_backends

CLOSE = {"atol": 1e-9, "rtol": 0}


def pad(ids, count, side, fill):
    padding = torch.full((len(ids), count), fill)
    parts = [padding, ids] if side == "left" else [ids, padding]
    mask = torch.ones(len(ids), ids.shape[1] + count, dtype=torch.bool)
    mask[:, slice(0, count) if side == "left" else slice(ids.shape[1], None)] = False
    return torch.cat(parts, dim=1), mask


@pytest.mark.parametrize("name", ALL_MODELS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_logits(name, side):
    model, ids = make(ALL_MODELS[name], double=True), some_ids()
    source = source_of(model)
    padded, mask = pad(ids, 5, side, fill=7)
    with torch.inference_mode():
        expected, actual = model(ids, **source), model(padded, padding_mask=mask, **source)
    torch.testing.assert_close(actual[mask].reshape(expected.shape), expected, **CLOSE)


@pytest.mark.parametrize("name", SEQ2SEQ_MODELS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_source_padding_does_not_change_logits(name, side):
    model, ids = make(SEQ2SEQ_MODELS[name], double=True), some_ids()
    source = source_of(model)["source"]
    padded, mask = pad(source, 4, side, fill=7)
    with torch.inference_mode():
        torch.testing.assert_close(
            model(ids, source=padded, source_padding_mask=mask), model(ids, source=source), **CLOSE
        )  # fmt: skip


@pytest.mark.parametrize("name", GENERATIVE_MODELS)
def test_rows_of_different_lengths_with_a_cache(name):
    """Left-padded prompts of 4 and 9 tokens in one batch, then two more tokens each."""
    model, ids = make(GENERATIVE_MODELS[name], double=True), some_ids(2, 11)
    source = source_of(model)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :5] = False
    with torch.inference_mode():
        cache = model.new_state(**source)
        model(ids[:, :9], padding_mask=mask, cache=cache)
        actual = torch.cat([model(ids[:, 9:10], cache=cache), model(ids[:, 10:], cache=cache)], dim=1)
        for row, start in enumerate((5, 0)):
            one = {key: value[row : row + 1] for key, value in source.items()}
            single = model(ids[row : row + 1, start:], **one)
            torch.testing.assert_close(actual[row : row + 1], single[:, -2:], **CLOSE)


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_masked_nan_has_no_effect(name, side):
    """With NaN as the vector of the padding token, the outputs of all other tokens are equal bit for bit."""
    model, ids = make(TRANSFORMERS[name], double=True), some_ids() % 50 + 1
    source = source_of(model)
    padded, mask = pad(ids, 3, side, fill=60)
    with torch.inference_mode():
        clean = model.hidden(padded, padding_mask=mask, **source)[mask]
        (model.decoder_embedding if model.is_encoder_decoder else model.embedding).token.weight[60] = torch.nan
        poisoned = model.hidden(padded, padding_mask=mask, **source)[mask]
    torch.testing.assert_close(poisoned, clean, **CLOSE)


@pytest.mark.parametrize("name", DECODERS)
def test_future_nan_has_no_effect(name):
    """A NaN token does not affect earlier tokens, only itself."""
    model, ids = make(DECODERS[name], double=True), some_ids() % 50 + 1
    poisoned = ids.clone()
    poisoned[:, 12] = 60
    with torch.inference_mode():
        clean = model.hidden(ids)
        model.embedding.token.weight[60] = torch.nan
        actual = model.hidden(poisoned)
    torch.testing.assert_close(actual[:, :12], clean[:, :12], **CLOSE)
    assert actual[:, 12].isnan().all()


def test_kernel_alone_lets_nan_spread(monkeypatch):
    """Inverse of both tests above: the kernel alone lets NaN through."""
    monkeypatch.setattr(attention_backends, "_all_finite", lambda key, value: True)
    with pytest.raises(AssertionError):
        test_masked_nan_has_no_effect("learned", "left")
    with pytest.raises(AssertionError):
        test_future_nan_has_no_effect("learned")
