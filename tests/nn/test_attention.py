"""Attention and its backends: masked rows, masked NaN, fallbacks; that they equal the formula: tests/equivalence."""

import pytest
import torch
from tests.models.tiny_models import DECODERS, TRANSLATORS, make, some_ids, source_of

from peasy.nn.attention_backends import FUSED, ROW_WISE, FormulaBackend, FusedBackend, RowWiseBackend
from peasy.nn.capture import AttentionInputs
from peasy.nn.mask import AttentionMask, MaskSpec
from peasy.nn.tap import KNOWN_STEPS, Tap


def fused(*inputs):
    return FUSED.run(AttentionInputs(*inputs))


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
    actual = query.grad.clone()
    query.grad = None
    fused(query, key[:, :, keep], value[:, :, keep], AttentionMask(), 0.5).sum().backward()
    torch.testing.assert_close(actual, query.grad)


# Backends.


def random_inputs(
    mask: AttentionMask, queries: int = 5, keys: int = 7, softcap: float | None = None
) -> AttentionInputs:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 4, n, 8, generator=generator) for n in (queries, keys, keys))
    return AttentionInputs(query, key, value, mask, 0.3, softcap)


def range_mask(window: int | None, queries: int = 5, keys: int = 7) -> AttentionMask:
    positions = torch.arange(keys)[None]
    return MaskSpec(positions[:, keys - queries :], positions, causal=True).attention_mask(window, keys)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("window", [None, 3])
def test_backends_agree_with_the_formula(window, softcap):
    inputs = random_inputs(range_mask(window), softcap=softcap)
    expected = FormulaBackend().run(inputs)
    for backend in (FUSED, ROW_WISE):
        torch.testing.assert_close(backend.run(inputs), expected, atol=1e-6, rtol=1e-5)


def test_row_wise_bits_do_not_depend_on_other_queries():
    whole = random_inputs(range_mask(3))
    last = AttentionInputs(whole.query[:, :, -1:], whole.key, whole.value, range_mask(3, queries=1), 0.3)
    assert torch.equal(ROW_WISE.run(whole)[:, :, -1:], ROW_WISE.run(last))


def test_unsupported_inputs_go_to_the_fallback(monkeypatch):
    """A soft cap or a NaN behind the mask goes to the formula, and a mask that is no range to the fused kernel."""
    used = []
    for backend in (FormulaBackend, FusedBackend, RowWiseBackend):
        monkeypatch.setattr(
            backend,
            "run",
            lambda self, inputs, name=backend.__name__, run=backend.run: used.append(name) or run(self, inputs),
        )

    def run(backend, inputs):
        used.clear()
        backend.run(inputs)
        return used

    padding = AttentionMask(torch.tensor([True] * 6 + [False])[None, None, None])
    assert run(FUSED, random_inputs(padding)) == ["FusedBackend"]
    assert run(FUSED, random_inputs(padding, softcap=2.0)) == ["FusedBackend", "FormulaBackend"]
    with_nan = random_inputs(padding)
    with_nan.key[:, :, 6] = torch.nan
    assert run(FUSED, with_nan) == ["FusedBackend", "FormulaBackend"]
    assert run(ROW_WISE, random_inputs(padding)) == ["RowWiseBackend", "FusedBackend"]
    assert run(ROW_WISE, random_inputs(range_mask(None))) == ["RowWiseBackend"] + ["FusedBackend"] * 5


@torch.inference_mode()
def test_the_backend_of_a_layer_is_used():
    """The inverse: another backend in one layer changes the output, so `forward` asks the layer's own backend."""

    class Zeros(FusedBackend):
        def run(self, inputs):
            return super().run(inputs) * 0

    model = make(DECODERS["learned"])
    expected = model(some_ids())
    model.decoder.blocks[1].attention.backend = ROW_WISE
    torch.testing.assert_close(model(some_ids()), expected, atol=1e-5, rtol=1e-5)
    model.decoder.blocks[1].attention.backend = Zeros()
    assert not torch.allclose(model(some_ids()), expected)


@torch.inference_mode()
def test_fused_projections_equal_separate_ones():
    model = make(DECODERS["multi-query"], double=True)
    expected = model(some_ids())

    def make_linear(weight, bias):
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
        return linear

    for block in model.decoder.blocks:
        block.attention.fuse_projections(make_linear)
        assert not hasattr(block.attention, "query")
    torch.testing.assert_close(model(some_ids()), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", ["learned", "grouped", "window", "relative", "seq2seq"])
@torch.inference_mode()
def test_a_tap_changes_no_bit(name):
    model, captured = make((DECODERS | TRANSLATORS)[name]), []
    source = source_of(model)
    plain = model(some_ids(), **source)
    assert torch.equal(model(some_ids(), tap=Tap(captured.append, steps=KNOWN_STEPS), **source), plain)
    assert captured


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="sauce"):
        make(DECODERS["learned"])(some_ids(), sauce=some_ids())
