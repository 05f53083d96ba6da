"""Layer configs: invalid numbers are refused with a hint."""

import pytest

from peasy.errors import InvalidInput
from peasy.models.config import read_config
from peasy.nn import config as nn_config


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn_config.AttentionConfig(0), "num_heads is 0"),
        (lambda: nn_config.AttentionConfig(4, num_kv_heads=3), "cannot share 3 KV heads"),
        (lambda: nn_config.AttentionConfig(4, window=0), "window is 0"),
        (lambda: nn_config.AttentionConfig(4, softcap=-1.0), "softcap is -1.0"),
        (lambda: nn_config.AttentionConfig(4, scale=0.0), "scale is 0.0"),
        (lambda: nn_config.MLPConfig(0), "d_ff is 0"),
        (lambda: nn_config.GatedMLPConfig(-5), "d_ff is -5"),
        (lambda: nn_config.RelativeBiasConfig(num_buckets=6), "num_buckets is 6"),
        (lambda: nn_config.RelativeBiasConfig(num_buckets=32, max_distance=16), "max_distance is 16"),
        (lambda: nn_config.Llama3RopeScaling(2.0, 4.0, 1.0, 10), "high_freq_factor is 1.0 and low_freq_factor is 4.0"),
        (lambda: nn_config.LayerNormConfig(eps=-1e-5), "eps is -1e-05"),
        (lambda: nn_config.StackConfig(0, nn_config.AttentionConfig(1), nn_config.MLPConfig(1)), "num_layers is 0"),
        (lambda: nn_config.LMHeadConfig(softcap=0.0), "softcap is 0.0"),
        (lambda: nn_config.AttentionConfig(4, scale=float("nan")), "scale is nan"),
    ],
)
def test_invalid_values_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        make()
    assert caught.value.hint


def test_windows_by_layer():
    attention = nn_config.AttentionConfig(4, window=5, windowed_layers=(1, 3))
    assert [attention.window_for_layer(layer) for layer in range(4)] == [None, 5, None, 5]
    assert nn_config.AttentionConfig(4, window=5).window_for_layer(7) == 5


def test_error_names_the_path():
    attention = {"num_heads": 4, "num_kv_heads": 3}
    stack = {"num_layers": 2, "attention": attention, "feedforward": {"kind": "mlp", "d_ff": 8}}
    with pytest.raises(InvalidInput, match=r"stack\.attention: 4 query heads cannot share 3 KV heads"):
        read_config({"kind": "decoder", "vocab_size": 9, "d_model": 8, "max_seq_len": 4, "stack": stack})
