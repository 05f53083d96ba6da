"""Position encodings against the paper's formula and transformers."""

import math

import pytest
import torch

from peasy.nn import config as nn_config
from peasy.nn.position import (
    AlibiBias,
    RelativeBias,
    alibi_slopes,
    apply_rope,
    rope_cos_sin,
    rope_frequency,
    sinusoidal_encoding,
)


@pytest.mark.parametrize("layout", ["pairs", "halves"])
@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_encoding_matches_definition(layout, width):
    actual = sinusoidal_encoding(torch.arange(5), width, nn_config.SinusoidalPositionConfig(layout))
    for position in range(5):
        for i in range((width + 1) // 2):
            angle = position / 10_000 ** (2 * i / width)
            columns = (2 * i, 2 * i + 1) if layout == "pairs" else (i, (width + 1) // 2 + i)
            for column, expected in zip(columns, (math.sin(angle), math.cos(angle)), strict=True):
                if column < width:
                    assert actual[position, column] == pytest.approx(expected, abs=1e-6)


def test_rope_keeps_norms_and_scores_depend_on_distance():
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 1, 1, 8, generator=generator) for _ in range(2))

    def score(query_position, key_position):
        settings = nn_config.RotaryConfig(100.0)
        query_angles = rope_cos_sin(torch.tensor([[query_position]]), 8, settings)
        key_angles = rope_cos_sin(torch.tensor([[key_position]]), 8, settings)
        return float((apply_rope(query, query_angles) * apply_rope(key, key_angles)).sum())

    assert score(7, 3) == pytest.approx(score(104, 100), abs=1e-4)
    assert score(7, 3) != pytest.approx(score(8, 3), abs=1e-3)
    rotated = apply_rope(query, rope_cos_sin(torch.tensor([[9]]), 8, nn_config.RotaryConfig()))
    assert float(rotated.norm()) == pytest.approx(float(query.norm()), rel=1e-5)


def test_llama3_scaling_against_transformers():
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = LlamaConfig(hidden_size=2048, num_attention_heads=32, rope_parameters=rope, max_position_embeddings=131072)
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1 / 500000.0 ** (torch.arange(0, 64, 2).float() / 64)
    scaling = nn_config.Llama3RopeScaling(32.0, 1.0, 4.0, 8192)
    actual = rope_frequency(64, nn_config.RotaryConfig(base=500000.0, scaling=scaling))
    torch.testing.assert_close(actual, expected)
    assert (actual != plain).any()


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 20])
def test_alibi_slopes_against_transformers(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 3), heads, torch.float32).reshape(heads, 3)[:, 1]
    torch.testing.assert_close(torch.tensor(alibi_slopes(heads)), theirs)


def test_alibi_falls_with_distance():
    bias = AlibiBias(4)(torch.tensor([[[0, -1], [1, 0]]]))
    assert bias.shape == (1, 4, 2, 2)
    torch.testing.assert_close(bias[0, 0], torch.tensor([[0.0, -0.25], [-0.25, 0.0]]))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 12)])
def test_relative_buckets_against_transformers(causal, num_buckets, max_distance):
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-300, 301)[None, None]
    ours = RelativeBias(2, nn_config.RelativeBiasConfig(num_buckets, max_distance), causal).bucket(distances)
    theirs = T5Attention._relative_position_bucket(-distances, not causal, num_buckets, max_distance)
    assert torch.equal(ours, theirs)
