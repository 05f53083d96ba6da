"""Position encodings against transformers, and their properties."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy import attend
from peasy.errors import InvalidInput
from peasy.formula import alibi, rotary, rotary_angles, sinusoidal
from peasy.formula.positions import alibi_slopes


def check_captions(steps):
    sizes = {}
    for step, array in steps.step_arrays():
        axes = step.axes_of(array)
        assert step.tex
        assert step.description.endswith(".")
        assert len(axes) == array.ndim, step.name
        for axis, size in zip(axes, array.shape, strict=True):
            assert sizes.setdefault(axis, size) == size, step.name


class TestSinusoidal:
    @pytest.mark.parametrize("width", [8, 7, 1])
    def test_halves_equal_marian(self, width):
        from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

        theirs = MarianSinusoidalPositionalEmbedding(50, width).create_weight()
        np.testing.assert_allclose(sinusoidal(50, width, layout="halves").encoding, theirs, atol=1e-6)

    def test_interleaved_equals_distilbert(self):
        from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

        theirs = torch.zeros(50, 8)
        create_sinusoidal_embeddings(50, 8, theirs)
        np.testing.assert_allclose(sinusoidal(50, 8).encoding, theirs, atol=1e-6)

    def test_nearby_positions_are_similar(self):
        encoding = sinusoidal(64, 32).encoding
        similarity = encoding @ encoding[0]
        assert (np.diff(similarity[:4]) < 0).all()

    def test_follows_the_library(self, library):
        steps = sinusoidal(5, 6, like=library.array([1.0], "float32"))
        assert library.numpy(steps.encoding).dtype == np.float32
        np.testing.assert_allclose(library.numpy(steps.encoding), sinusoidal(5, 6).encoding, atol=1e-6)
        check_captions(steps)


class TestRotary:
    def test_halves_equal_llama(self):
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

        config = LlamaConfig(hidden_size=32, num_attention_heads=4, rope_theta=500.0)
        x = torch.randn(2, 4, 10, 8)
        cos, sin = LlamaRotaryEmbedding(config)(x, torch.arange(10)[None])
        base = config.rope_parameters["rope_theta"]
        theirs, _ = apply_rotary_pos_emb(x, x, cos, sin)
        torch.testing.assert_close(rotary(x, base=base).rotated, theirs, rtol=1e-5, atol=1e-5)

    def test_interleaved_equals_gptj(self):
        from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

        x = torch.randn(2, 10, 4, 8)
        sin, cos = create_sinusoidal_positions(10, 8).split(4, dim=-1)
        theirs = apply_rotary_pos_emb(x, sin[None], cos[None])
        ours = rotary(x.transpose(1, 2), layout="interleaved").rotated.transpose(1, 2)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)

    def test_layouts_are_equal_up_to_order(self):
        x = np.random.default_rng(0).normal(size=(5, 8))
        order = np.arange(8).reshape(2, 4).T.ravel()  # 0 4 1 5 ...: halves interleaved
        interleaved = rotary(x[:, order], layout="interleaved").rotated
        np.testing.assert_allclose(interleaved, rotary(x).rotated[:, order])

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(["halves", "interleaved"]))
    def test_scores_depend_on_distance_only(self, position, distance, layout):
        rng = np.random.default_rng(position)
        q, k = rng.normal(size=(1, 6)), rng.normal(size=(1, 6))

        def score(first, second):
            rotated = [rotary(x, positions=[p], layout=layout).rotated for x, p in ((q, first), (k, second))]
            return attend(*rotated, k).scores.item()

        assert score(position, position + distance) == pytest.approx(score(0, distance), abs=1e-9)

    def test_norm_is_kept_and_position_zero_is_identity(self, library):
        x = library.array(np.random.default_rng(0).normal(size=(3, 4, 6)))
        steps = rotary(x)
        before, after = library.numpy(x), library.numpy(steps.rotated)
        np.testing.assert_allclose(np.linalg.norm(after, axis=-1), np.linalg.norm(before, axis=-1))
        np.testing.assert_array_equal(after[:, 0], before[:, 0])
        check_captions(steps)
        check_captions(rotary_angles(4, 6, like=x))

    def test_invalid_input_is_refused(self):
        with pytest.raises(InvalidInput, match="A width of 3 cannot be split into pairs"):
            rotary(np.ones((2, 3)))
        with pytest.raises(InvalidInput, match="positions is 3, but x has 2 tokens"):
            rotary(np.ones((2, 4)), positions=[0, 1, 2])
        with pytest.raises(InvalidInput, match='There is no layout "halfs"') as error:
            rotary(np.ones((2, 4)), layout="halfs")
        assert error.value.hint == "Did you mean halves?"

    def test_gradients(self):
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: rotary(x, layout="interleaved").rotated, x)


class TestALiBi:
    @pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 20, 25])
    def test_slopes_equal_mpt_and_bloom(self, heads):
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor
        from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

        bloom = build_alibi_tensor(torch.ones(1, 3), heads, torch.float32)[:, 0, 1]
        mpt = build_mpt_alibi_tensor(heads, 3)[:, 0, 2] - build_mpt_alibi_tensor(heads, 3)[:, 0, 1]
        np.testing.assert_allclose(alibi_slopes(heads), bloom, rtol=1e-6)
        np.testing.assert_allclose(alibi_slopes(heads), mpt, rtol=1e-5)

    @pytest.mark.parametrize("heads", [4, 6])
    def test_weights_equal_bloom(self, heads):
        """Bloom adds slope times key position; each row then differs by a constant, which softmax ignores."""
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor

        x = torch.randn(1, heads, 7, 5)
        theirs = attend(x, x, x, bias=build_alibi_tensor(torch.ones(1, 7), heads, torch.float32), causal=True)
        ours = attend(x, x, x, bias=alibi(heads, 7, like=x).bias, causal=True)
        torch.testing.assert_close(ours.weights, theirs.weights)

    def test_distances_are_aligned_bottom_right(self, library):
        steps = alibi(3, 2, 5, like=library.array([1.0], "float32"))
        whole = alibi(3, 5).bias
        np.testing.assert_allclose(library.numpy(steps.bias), whole[:, 3:])
        check_captions(steps)

    def test_no_heads(self):
        with pytest.raises(InvalidInput, match="heads should be a whole number above 0"):
            alibi(0, 3)
