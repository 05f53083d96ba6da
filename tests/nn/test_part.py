"""Layer configs: invalid numbers are refused with a hint."""

import pytest

from peasy.errors import InvalidInput
from peasy.models.config import read_config
from peasy.nn import part


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: part.Attention(0), "heads is 0"),
        (lambda: part.Attention(4, key_heads=3), "cannot share 3 key heads"),
        (lambda: part.Attention(4, window=0), "window is 0"),
        (lambda: part.Attention(4, softcap=-1.0), "softcap is -1.0"),
        (lambda: part.Plain(0), "width is 0"),
        (lambda: part.Gated(-5), "width is -5"),
        (lambda: part.Relative(buckets=6), "buckets is 6"),
        (lambda: part.Relative(buckets=32, distance=16), "distance is 16"),
        (lambda: part.BandScaling(2.0, 4.0, 1.0, 10), "high is 1.0 and low is 4.0"),
        (lambda: part.LayerNorm(epsilon=-1e-5), "epsilon is -1e-05"),
        (lambda: part.Stack(0, part.Attention(1), part.Plain(1)), "layers is 0"),
        (lambda: part.Head(softcap=0.0), "softcap is 0.0"),
        (lambda: part.Attention(4, scale=float("nan")), "scale is nan"),
    ],
)
def test_invalid_values_are_refused(make, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        make()
    assert caught.value.hint


def test_windows_by_layer():
    attention = part.Attention(4, window=5, windowed=(1, 3))
    assert [attention.window_of(layer) for layer in range(4)] == [None, 5, None, 5]
    assert part.Attention(4, window=5).window_of(7) == 5


def test_error_names_the_path():
    stack = {"layers": 2, "attention": {"heads": 4, "key_heads": 3}, "feedforward": {"kind": "plain", "width": 8}}
    with pytest.raises(InvalidInput, match=r"stack\.attention: 4 query heads cannot share 3 key heads"):
        read_config({"kind": "decoder", "vocabulary": 9, "d_model": 8, "context": 4, "stack": stack})
