"""Norms against torch and transformers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from peasy.errors import InvalidInput
from peasy.formula import layer_norm, rms_norm


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 5, 3, 4)])
@pytest.mark.parametrize("learned", [True, False])
def test_layer_norm_equals_torch(shape, learned):
    x = torch.randn(shape) * 5 + 3
    weight, bias = (torch.randn(4), torch.randn(4)) if learned else (None, None)
    steps = layer_norm(x, weight, bias)
    torch.testing.assert_close(steps.output, F.layer_norm(x, (4,), weight, bias), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(steps.normalised, F.layer_norm(x, (4,)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(steps.mean, x.mean(-1))
    torch.testing.assert_close(steps.variance, x.var(-1, correction=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learned", [True, False])
def test_rms_norm_equals_torch_and_llama(learned):
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    x = torch.randn(2, 3, 4) * 5 + 3
    weight = torch.randn(4) if learned else None
    steps = rms_norm(x, weight, eps=1e-3)
    torch.testing.assert_close(steps.output, F.rms_norm(x, (4,), weight, eps=1e-3), rtol=1e-5, atol=1e-5)
    llama = LlamaRMSNorm(4, eps=1e-3)
    torch.nn.init.constant_(llama.weight, 1) if weight is None else llama.weight.data.copy_(weight)
    torch.testing.assert_close(steps.output, llama(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(steps.mean_square, (x * x).mean(-1))


def test_every_library_and_every_caption(library):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    one, half = np.ones(4), np.full(4, 0.5)
    for norm, learned in ((layer_norm, (one, half)), (rms_norm, (half,))):
        steps = norm(library.array(x), *map(library.array, learned))
        for step, array in steps.step_arrays():
            assert len(step.axes_of(array)) == array.ndim
            assert step.description.endswith(".")
            np.testing.assert_allclose(library.numpy(array), norm(x, *learned)[step.name], rtol=1e-12, atol=1e-12)
        assert r"\gamma" in steps.step("output").tex


def test_constant_vector_stays_finite():
    assert layer_norm([[7.0, 7.0]]).output.tolist() == [[0, 0]]
    assert rms_norm([[0.0, 0.0]]).output.tolist() == [[0, 0]]


def test_half_precision_is_computed_in_float32():
    x = torch.full((1, 64), 300.0, dtype=torch.float16)
    assert torch.isfinite(rms_norm(x).output).all()
    assert torch.isinf((x * x).mean())


def test_gradients():
    x, weight, bias = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((3, 4), (4,), (4,)))
    assert torch.autograd.gradcheck(lambda *inputs: layer_norm(*inputs).output, (x, weight, bias))
    assert torch.autograd.gradcheck(lambda *inputs: rms_norm(*inputs).output, (x, weight))


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_invalid_input_is_refused(norm):
    with pytest.raises(InvalidInput, match="weight is 3, but the vectors have width 4"):
        norm(np.ones((2, 4)), np.ones(3))
    with pytest.raises(InvalidInput, match="x has 1 axes"):
        norm([1.0, 2.0])
