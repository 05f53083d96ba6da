"""Padding on either side changes nothing, whatever it contains; fully masked rows give zeros."""

import pytest
import torch
from tests.models.tiny_models import DECODERS, EVERYONE, SOURCED, TRANSFORMERS, WRITERS, make, some_ids, source_of

from peasy.nn import attention
from peasy.nn.attention import attend_fused
from peasy.nn.capture import AttentionInputs
from peasy.nn.mask import AttentionMask

CLOSE = {"atol": 1e-9, "rtol": 0}


def fused(*look):
    return attend_fused(AttentionInputs(*look))


def pad(ids, count, side, fill):
    padding = torch.full((len(ids), count), fill)
    parts = [padding, ids] if side == "left" else [ids, padding]
    real = torch.ones(len(ids), ids.shape[1] + count, dtype=torch.bool)
    real[:, slice(0, count) if side == "left" else slice(ids.shape[1], None)] = False
    return torch.cat(parts, dim=1), real


@pytest.mark.parametrize("name", EVERYONE)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_logits(name, side):
    model, ids = make(EVERYONE[name], double=True), some_ids()
    source = source_of(model)
    padded, real = pad(ids, 5, side, fill=7)
    with torch.inference_mode():
        expected, found = model(ids, **source), model(padded, padding_mask=real, **source)
    torch.testing.assert_close(found[real].reshape(expected.shape), expected, **CLOSE)


@pytest.mark.parametrize("name", SOURCED)
@pytest.mark.parametrize("side", ["left", "right"])
def test_source_padding_does_not_change_logits(name, side):
    model, ids = make(SOURCED[name], double=True), some_ids()
    source = source_of(model)["source"]
    padded, real = pad(source, 4, side, fill=7)
    with torch.inference_mode():
        torch.testing.assert_close(
            model(ids, source=padded, source_padding_mask=real), model(ids, source=source), **CLOSE
        )  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_rows_of_different_lengths_with_a_cache(name):
    """Left-padded prompts of 4 and 9 tokens in one batch, then two more tokens each."""
    model, ids = make(WRITERS[name], double=True), some_ids(2, 11)
    source = source_of(model)
    real = torch.ones(2, 9, dtype=torch.bool)
    real[0, :5] = False
    with torch.inference_mode():
        memory = model.new_state(batch=2, **source)
        model(ids[:, :9], padding_mask=real, cache=memory)
        found = torch.cat([model(ids[:, 9:10], cache=memory), model(ids[:, 10:], cache=memory)], dim=1)
        for row, start in enumerate((5, 0)):
            one = {key: value[row : row + 1] for key, value in source.items()}
            alone = model(ids[row : row + 1, start:], **one)
            torch.testing.assert_close(found[row : row + 1], alone[:, -2:], **CLOSE)


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_masked_nan_has_no_effect(name, side):
    """With NaN as the vector of the padding token, the outputs of all other tokens are equal bit for bit."""
    model, ids = make(TRANSFORMERS[name], double=True), some_ids() % 50 + 1
    source = source_of(model)
    padded, real = pad(ids, 3, side, fill=60)
    with torch.inference_mode():
        clean = model.hidden(padded, padding_mask=real, **source)[real]
        (model.writing if model.is_encoder_decoder else model.embedding).token.weight[60] = torch.nan
        spoilt = model.hidden(padded, padding_mask=real, **source)[real]
    torch.testing.assert_close(spoilt, clean, **CLOSE)


@pytest.mark.parametrize("name", DECODERS)
def test_future_nan_has_no_effect(name):
    """A NaN token does not affect earlier tokens, only itself."""
    model, ids = make(DECODERS[name], double=True), some_ids() % 50 + 1
    spoilt = ids.clone()
    spoilt[:, 12] = 60
    with torch.inference_mode():
        clean = model.hidden(ids)
        model.embedding.token.weight[60] = torch.nan
        found = model.hidden(spoilt)
    torch.testing.assert_close(found[:, :12], clean[:, :12], **CLOSE)
    assert found[:, 12].isnan().all()


def test_kernel_alone_lets_nan_spread(monkeypatch):
    """Inverse of both tests above: the kernel alone lets NaN through."""
    monkeypatch.setattr(attention, "_all_finite", lambda key, value: True)
    with pytest.raises(AssertionError):
        test_masked_nan_has_no_effect("learned", "left")
    with pytest.raises(AssertionError):
        test_future_nan_has_no_effect("learned")


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_fully_masked_rows_give_zeros_and_finite_gradients(softcap):
    query, key, value = (torch.randn(2, 4, 6, 8, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, 6, 6) > 0.4
    mask[:, :, 2] = False
    context = fused(query, key, value, AttentionMask(mask), 0.3, softcap)
    assert not context[:, :, 2].any()
    context.square().sum().backward()
    assert all(array.grad.isfinite().all() for array in (query, key, value))
    assert not query.grad[:, :, 2].any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_masked_nonfinite_numbers_leave_gradients_finite(bad):
    """A masked key equals a removed key, in values and in gradients of unmasked positions."""
    query, key, value = (torch.randn(1, 2, 5, 4) for _ in range(3))
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    mask[..., 3] = False
    key[:, :, 3], value[:, :, 3] = bad, bad
    keep = [0, 1, 2, 4]
    for array in (query, key, value):
        array.requires_grad_()
    fused(query, key, value, AttentionMask(mask), 0.5).sum().backward()
    found = query.grad.clone()
    query.grad = None
    fused(query, key[:, :, keep], value[:, :, keep], AttentionMask(), 0.5).sum().backward()
    torch.testing.assert_close(found, query.grad)
