"""Grouped-query attention equals attention with repeated key/value heads."""

from dataclasses import replace

import pytest
import torch
from tests.models.tiny_models import DECODERS, make, some_ids

from peasy.models.build import build


def repeated(config):
    attention = replace(config.stack.attention, num_kv_heads=None)
    return replace(config, stack=replace(config.stack, attention=attention))


def copy_heads(name: str, weight: torch.Tensor, d_head: int, times: int) -> torch.Tensor:
    if ".attention.key." not in name and ".attention.value." not in name:
        return weight
    return weight.unflatten(0, (-1, d_head)).repeat_interleave(times, dim=0).flatten(0, 1)


@pytest.mark.parametrize("name", ["grouped", "multi-query"])
def test_gqa_equals_repeated_kv_heads(name):
    config = DECODERS[name]
    grouped, ungrouped = make(config), build(repeated(config))
    times = config.stack.attention.num_heads // config.stack.attention.num_kv_heads
    copied = {key: copy_heads(key, weight, 8, times) for key, weight in grouped.state_dict().items()}
    ungrouped.load_state_dict(copied)
    ids = some_ids()
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, :3] = False
    with torch.inference_mode():
        torch.testing.assert_close(grouped(ids), ungrouped(ids), atol=2e-5, rtol=0)
        padded, expected = grouped(ids, padding_mask=mask), ungrouped(ids, padding_mask=mask)
        torch.testing.assert_close(padded[mask], expected[mask], atol=2e-5, rtol=0)


def test_groups_are_contiguous_not_interleaved():
    """Inverse: heads repeated in another order give another model."""
    config = DECODERS["grouped"]
    grouped, other = make(config), build(repeated(config))
    mixed = {
        key: weight if ".attention.key." not in key and ".attention.value." not in key else torch.cat([weight, weight])
        for key, weight in grouped.state_dict().items()
    }
    other.load_state_dict(mixed)
    with torch.inference_mode():
        assert (grouped(some_ids()) - other(some_ids())).abs().max() > 1e-2
