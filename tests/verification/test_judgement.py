"""Judgement of code as public code has it: what decides a verdict, what does not, and the line that is blamed."""

import inspect
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from peasy.verification.implementation import examine as examination
from peasy.verification.implementation.examine import examine
from peasy.verification.implementation.loading import load_module
from peasy.verification.verdict import EQUAL, NOT_COMPARED, WRONG


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(examination, "STRICT", True)


def lines(diagnosis):
    return [(finding.name, finding.code) for finding in diagnosis.findings if finding.level == "mistake"]


def attend(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = scores if mask is None else scores.masked_fill(mask, -1e9)
    return torch.softmax(scores, dim=-1) @ v


class Layers(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))


class KeyValueCache:
    """Keys and values so far, in an object of the project: it grows with each call."""

    def __init__(self, max_size=None):
        self.keys, self.values, self.max_size = None, None, max_size

    def append(self, k, v):
        self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=1)
        self.values = v if self.values is None else torch.cat([self.values, v], dim=1)
        return self.keys, self.values


class WithCache(Layers):
    aligned, used = True, True

    def forward(self, x, cache: KeyValueCache | None = None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if cache is not None:
            keys, values = cache.append(k, v)
            k, v = (keys, values) if self.used else (k, v)
        past = k.size(1) - x.size(1) if self.aligned else 0
        hidden = torch.ones(x.size(1), k.size(1), dtype=torch.bool).triu(past + 1)
        return attend(q, k, v, hidden), cache


class CacheTopLeft(WithCache):
    aligned = False


class CacheNotUsed(WithCache):
    used = False


def test_a_cache_that_is_an_object_is_tried():
    found = examine(WithCache)
    assert (found.verdict, "a sequence in two chunks, with its cache" in found.checks) == (EQUAL, True)
    assert examine(CacheTopLeft).mistakes == ("causal top-left with a cache",)
    assert examine(CacheNotUsed).mistakes == ("cache not used",)


class OwnCache(Layers):
    """Keys and values are kept by the layer itself; rotary numbers are an argument of each call."""

    used = True

    def __init__(self, dim, max_batch_size, max_seq_len):
        super().__init__(dim)
        self.cache_k, self.cache_v = torch.zeros(2, max_batch_size, max_seq_len, dim)

    def forward(self, x, start_pos, freqs_cis):
        assert len(freqs_cis) == x.size(1)
        end, k, v = start_pos + x.size(1), self.w_k(x), self.w_v(x)
        self.cache_k[: len(x), start_pos:end], self.cache_v[: len(x), start_pos:end] = k, v
        if self.used:
            k, v = self.cache_k[: len(x), :end], self.cache_v[: len(x), :end]
        return attend(self.w_q(x), k, v)


class OwnCacheNotUsed(OwnCache):
    used = False


def test_a_cache_that_the_layer_keeps_is_tried_with_its_part_of_the_positions():
    found = examine(OwnCache)
    assert (found.verdict, "a sequence in two chunks, with its cache" in found.checks) == (EQUAL, True)
    assert examine(OwnCacheNotUsed).mistakes == ("cache not used",)


def flag_masks_after_softmax(q, k, v, causal=False):
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
    return (weights.tril() if causal else weights) @ v


def flag_beside_a_mask(q, k, v, mask=None, is_causal=False):
    hidden = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).triu(2) if is_causal else mask
    return attend(q, k, v, hidden)


def flag_without_effect(q, k, v, mask=None, is_causal=False):
    return attend(q, k, v, mask)


def test_a_causal_flag_is_judged_like_another_call():
    assert examine(flag_masks_after_softmax).mistakes == ("mask after softmax",)
    assert examine(flag_beside_a_mask).mistakes == ("causal mask off by one (future)",)
    found = examine(flag_without_effect)
    assert (found.verdict, found.mistakes) == (EQUAL, ())
    assert "is_causal=True hides nothing without a mask" in found.conventions


def not_scaled_yet(q, k, v):
    # not scaled yet
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v


def test_a_comment_decides_no_verdict():
    assert examine(not_scaled_yet).mistakes == ("no scale",)


CALLED = []


def remember_mask(name):
    CALLED.append("remember_mask")
    return torch.ones(name, name).tril()


def future_mask(size):
    CALLED.append("future_mask")
    return torch.ones(size, size).triu(1).bool()


def masked(q, k, v, mask=None):
    return attend(q, k, v, mask)


def test_only_builders_of_causal_masks_are_called():
    examine(masked)
    assert set(CALLED) == {"future_mask"}


class OneLayerTwice(Layers):
    def forward(self, q, k, v):
        q, k, v = self.w_q(q), self.w_k(k), self.w_k(v)
        return attend(q, k, v)


def test_a_layer_used_twice_is_named_though_the_inputs_are_right():
    assert lines(examine(OneLayerTwice)) == [
        ("values from the keys", "q, k, v = self.w_q(q), self.w_k(k), self.w_k(v)")
    ]


class LayerOfABranch(Layers):
    def __init__(self, dim, wide=False):
        super().__init__(dim)
        self.wide, self.fc = wide, nn.Linear(dim, dim)

    def forward(self, x):
        out = attend(self.w_q(x), self.w_k(x), self.w_v(x))
        return self.fc(out) if self.wide else out


class LayerForgotten(LayerOfABranch):
    def __init__(self, dim):
        super().__init__(dim)
        # self.out is forgotten in the call: a comment uses nothing
        self.out = nn.Linear(dim, dim)


def test_an_unused_layer_is_the_output_projection_if_nothing_else_uses_it():
    assert examine(LayerOfABranch).verdict != WRONG
    assert "output projection not used" in examine(LayerForgotten).mistakes


def split(x, heads=4):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def helper(query, key, value, d_k):
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)
    return torch.softmax(scores, dim=-1) @ value


class WrongOrder(Layers):
    def forward(self, q, k, v):
        q, k, v = split(self.w_q(q)), split(self.w_k(k)), split(self.w_v(v))
        return helper(q, v, k, q.size(-1)).transpose(1, 2).flatten(2)


class WrongWidth(Layers):
    def forward(self, q, k, v):
        width = q.size(-1)
        q, k, v = split(self.w_q(q)), split(self.w_k(k)), split(self.w_v(v))
        return helper(q, k, v, width).transpose(1, 2).flatten(2)


class WrongSplit(Layers):
    def forward(self, q, k, v):
        q, k, v = self.w_q(q), self.w_k(k), self.w_v(v)
        q, k, v = split(q), split(q), split(v)
        return helper(q, k, v, q.size(-1)).transpose(1, 2).flatten(2)


class Scaled(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / self.temperature
        return torch.softmax(scores, dim=-1) @ v


class WrongTemperature(Layers):
    def __init__(self, dim):
        super().__init__(dim)
        self.attention = Scaled(temperature=dim)

    def forward(self, x):
        return self.attention(self.w_q(x), self.w_k(x), self.w_v(x))


class ScaledOnBothSides(nn.Module):
    def forward(self, q, k, v):
        scale = q.size(-1) ** -0.5
        left = q * scale
        right = k * scale
        return torch.softmax(left @ right.transpose(-2, -1), dim=-1) @ v


class SoftmaxAgain(Layers):
    softmax = nn.Softmax(dim=-1)

    def forward(self, x):
        weights = self.weights(self.w_q(x), self.w_k(x))
        return weights @ self.w_v(x)

    def weights(self, q, k):
        weights = self.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)))
        return self.softmax(weights)


def normalised(scores):
    return torch.softmax(scores, dim=-1)


def normalised_rows(scores):
    return normalised(scores)


def softmax_of_rows(q, k, v):
    weights = normalised_rows(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)))
    weights = normalised_rows(weights)
    return weights @ v


@pytest.mark.parametrize(
    ("written", "mistake", "line"),
    [
        (WrongOrder, "keys and values swapped", "return helper(q, v, k, q.size(-1)).transpose(1, 2).flatten(2)"),
        (WrongWidth, "scale by model width", "return helper(q, k, v, width).transpose(1, 2).flatten(2)"),
        (WrongSplit, "keys from the queries", "q, k, v = split(q), split(q), split(v)"),
        (WrongTemperature, "scale by d_k", "self.attention = Scaled(temperature=dim)"),
        (ScaledOnBothSides, "scaled twice", "scale = q.size(-1) ** -0.5"),
        (SoftmaxAgain, "double softmax", "return self.softmax(weights)"),
        (softmax_of_rows, "double softmax", "weights = normalised_rows(weights)"),
    ],
)
def test_the_line_is_where_it_was_chosen_not_where_a_helper_uses_it(written, mistake, line):
    assert lines(examine(written)) == [(mistake, line)]


def sink_under_the_maximum(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -3e38)
    top = torch.maximum(scores.amax(-1, keepdim=True), torch.zeros(1))
    powers = (scores - top).exp()
    return powers / (powers.sum(-1, keepdim=True) + (0 - top).exp()) @ v


def one_block_of_keys_after_another(q, k, v, size=2):
    top = torch.full((*q.shape[:-1], 1), -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[-2], size):
        scores = q @ k[..., start : start + size, :].transpose(-1, -2) / math.sqrt(q.shape[-1])
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        powers, old = torch.exp(scores - new), torch.exp(top - new)
        total = total * old + powers.sum(-1, keepdim=True)
        out, top = out * old + powers @ v[..., start : start + size, :], new
    return out / total


class GroupsInOneMatrix(nn.Module):
    """Rotary positions; query heads that share a key head are rows of one product."""

    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, dim // heads
        self.w_q, self.w_o = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.w_k, self.w_v = (nn.Linear(dim, kv_heads * self.width) for _ in range(2))

    def rotate(self, x):
        angle = torch.arange(x.size(-2))[:, None] * 100.0 ** -(torch.arange(self.width // 2) / self.width)
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], dim=-1)

    def forward(self, x):
        batch, size, dim = x.shape
        q = self.rotate(self.w_q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)).unflatten(1, (self.kv_heads, -1))
        k, v = (w(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2) for w in (self.w_k, self.w_v))
        weights = (torch.einsum("bgrid,bgjd->bgrij", q, self.rotate(k)) * self.width**-0.5).softmax(dim=-1)
        context = torch.einsum("bgrij,bgjd->bgrid", weights, v).flatten(1, 2)
        return self.w_o(context.transpose(1, 2).reshape(batch, size, dim))


def test_unusual_and_right_is_never_wrong():
    assert examine(sink_under_the_maximum).verdict == NOT_COMPARED
    assert examine(one_block_of_keys_after_another).verdict == EQUAL
    assert examine(GroupsInOneMatrix).verdict == EQUAL


def loop(q, k, v, mask=None):
    out = np.zeros((len(q), v.shape[1]))
    for i, row in enumerate(q.tolist()):
        seen = [j for j in range(len(k)) if mask is None or bool(mask[i][j])]
        scores = [sum(map(float.__mul__, row, k[j].tolist())) / math.sqrt(len(row)) for j in seen]
        powers = [math.exp(score - max(scores)) for score in scores]
        out[i] = sum(power / sum(powers) * v[j] for power, j in zip(powers, seen, strict=True))
    return out


def loop_without_mask(q, k, v, mask=None):
    return loop(q, k, v)


def loop_one_off(q, k, v, mask=None):
    return loop(q, k, v, None if mask is None else np.roll(mask, 1, axis=1))


def test_masks_of_loops_are_compared_by_their_output():
    found = examine(loop)
    assert (found.verdict, any("True = may attend" in text for text in found.conventions)) == (EQUAL, True)
    assert examine(loop_without_mask).mistakes == ("mask ignored",)
    assert examine(loop_one_off).verdict == NOT_COMPARED


class CacheBehindAFlag(Layers):
    """Its keys and values so far are attributes; a flag turns them on."""

    aligned, used = True, True

    def __init__(self, dim):
        super().__init__(dim)
        self.register_buffer("cache_k", None, persistent=False)
        self.register_buffer("cache_v", None, persistent=False)

    def forward(self, x, use_cache=False):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if use_cache:
            self.cache_k = k if self.cache_k is None else torch.cat([self.cache_k, k], dim=1)
            self.cache_v = v if self.cache_v is None else torch.cat([self.cache_v, v], dim=1)
            k, v = (self.cache_k, self.cache_v) if self.used else (k, v)
        past = k.size(1) - x.size(1) if self.aligned else 0
        return attend(q, k, v, torch.ones(x.size(1), k.size(1), dtype=torch.bool).triu(past + 1))


class FlaggedTopLeft(CacheBehindAFlag):
    aligned = False


class FlaggedNotUsed(CacheBehindAFlag):
    used = False


def test_a_cache_behind_a_flag_is_tried():
    found = examine(CacheBehindAFlag)
    assert (found.verdict, "a sequence in two chunks, with its cache" in found.checks) == (EQUAL, True)
    assert examine(FlaggedTopLeft).mistakes == ("causal top-left with a cache",)
    assert examine(FlaggedNotUsed).mistakes == ("cache not used",)


class CacheGivenLater(Layers):
    """A model gives it a cache before it generates: until then there are positions, and no cache."""

    def __init__(self, dim):
        super().__init__(dim)
        self.kv_cache = None

    def forward(self, x, input_pos=None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if self.kv_cache is not None:
            k, v = self.kv_cache.update(input_pos, k, v)
        return attend(q, k, v)


def test_a_cache_that_is_given_later_is_not_missing():
    assert (examine(CacheGivenLater).verdict, examine(CacheGivenLater).mistakes) == (EQUAL, ())


class Fused(nn.Module):
    parts = (0, 1, 2)

    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        all_parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (all_parts[part] for part in self.parts)
        return self.attention(q, k, v)

    def attention(self, q, k, v):
        return helper(q, k, v, q.size(-1))


class FusedQueriesTwice(Fused):
    parts = (0, 0, 2)


class FusedKeysTwice(Fused):
    parts = (1, 1, 2)


class FusedValuesTwice(Fused):
    parts = (0, 2, 2)


class FusedInAnotherOrder(Fused):
    parts = (0, 2, 1)


class FusedSwapped(Fused):
    def attention(self, q, k, v):
        return helper(q, v, k, q.size(-1))


@pytest.mark.parametrize(
    ("written", "mistakes"),
    [
        (Fused, ()), (FusedQueriesTwice, ("keys from the queries",)), (FusedKeysTwice, ("queries from the keys",)),
        (FusedValuesTwice, ("keys from the values",)), (FusedSwapped, ("keys and values swapped",)),
    ],
)  # fmt: skip
def test_parts_of_a_fused_layer_are_told_by_their_place_and_by_the_names_of_a_call(written, mistakes):
    assert examine(written).mistakes == mistakes
    assert examine(FusedInAnotherOrder).verdict == EQUAL


def weak_mask(q, k, v):
    future = torch.ones(q.size(-2), k.size(-2)).triu(1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)) + future * -1e-10
    return torch.softmax(scores, dim=-1) @ v


def test_a_mask_that_is_too_weak_to_see_is_no_missing_mask():
    assert examine(weak_mask).mistakes == ("mask value too small",)


class HasAccess(nn.Module):
    """Attention in which a mask says what may be seen."""

    def forward(self, q, k, v, mask=None):
        """Attend.

        `mask` has shape `[query, key]` and `mask[i, j]` indicates whether
        the query at `i` has access to the key at `j`.
        """
        return attend(q, k, v, mask)


def test_a_meaning_told_by_whether_is_read():
    assert examine(HasAccess).mistakes == ("mask inverted",)


class MultipliedByItsScale(Layers):
    def __init__(self, dim):
        super().__init__(dim)
        self.scale = dim**0.5

    def forward(self, x):
        return torch.softmax(self.w_q(x).mul(self.scale) @ self.w_k(x).transpose(-2, -1), dim=-1) @ self.w_v(x)


class DividedByHeads(Layers):
    def __init__(self, dim, heads):
        super().__init__(dim)
        self.heads = heads

    def forward(self, x):
        q, k, v = (split(w(x), self.heads) for w in (self.w_q, self.w_k, self.w_v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.heads)
        return (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)


def made(dim, heads):
    return DividedByHeads(dim, heads)


class KeysFromValues(Layers):
    def forward(self, x):
        q = self.w_q(x)
        k = self.w_v(x)
        v = self.w_v(x)
        return attend(q, k, v)


def numpy_attention(q, k, v, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def numpy_causal(q, k, v):
    future_mask = (1 - np.tri(q.shape[-2], k.shape[-2], 1)) * -1e9
    return numpy_attention(q, k, v, future_mask)


@pytest.mark.parametrize(
    ("written", "mistake", "line"),
    [
        (MultipliedByItsScale, "scale multiplied", "self.scale = dim**0.5"),
        (DividedByHeads, "scale by number of heads", "scores = q @ k.transpose(-2, -1) / math.sqrt(self.heads)"),
        (KeysFromValues, "keys from the values", "k = self.w_v(x)"),
        (numpy_causal, "causal mask off by one (future)",
         "future_mask = (1 - np.tri(q.shape[-2], k.shape[-2], 1)) * -1e9"),
    ],
)  # fmt: skip
def test_the_line_is_where_a_number_a_layer_or_a_mask_was_chosen(written, mistake, line):
    assert lines(examine(written))[:1] == [(mistake, line)]


class TrueMasks(HasAccess):
    """The same with the opposite meaning, which the code has."""

    def forward(self, q, k, v, mask=None):
        """Attend.

        :param mask: Mask over the scores. True indicates masking.
        """
        return attend(q, k, v, mask)


class KeptIfNotMasked(HasAccess):
    def forward(self, q, k, v, mask=None):
        """Attend.

        Args:
            mask: 1 for tokens that are **not masked**, 0 for tokens that are **masked**.
        """
        return attend(q, k, v, None if mask is None else mask == 0)


def test_masking_and_not_masked_are_told_apart():
    assert examine(TrueMasks).verdict == EQUAL
    assert examine(KeptIfNotMasked).verdict == EQUAL


def half_of_the_width(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 1 / 2, dim=-1) @ v


class HalfOfTheWidth(Layers):
    """With two heads this is also the width of the model: the first sizes tell."""

    def __init__(self, dim, heads):
        super().__init__(dim)
        self.heads = heads

    def forward(self, x):
        q, k, v = (split(w(x), self.heads) for w in (self.w_q, self.w_k, self.w_v))
        return half_of_the_width(q, k, v).transpose(1, 2).flatten(2)


def chosen_before(q, k, v):
    scale = 1.0 / q.size(-1)
    scores = q @ k.transpose(-2, -1)
    return torch.softmax(scale * scores, dim=-1) @ v


def test_one_name_for_a_scale_and_the_line_that_chose_it():
    assert examine(HalfOfTheWidth).mistakes == ("power before division",)
    assert lines(examine(chosen_before)) == [("scale by d_k", "scale = 1.0 / q.size(-1)")]


_QUARTER = """
import math
import torch

class Quarter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (torch.nn.Linear(64, 64) for _ in range(3))
        self.quarter = 0.25 / math.sqrt(64)

    def forward(self, x):
        return torch.softmax(self.w_q(x) @ self.w_k(x).transpose(-2, -1) * self.quarter, dim=-1) @ self.w_v(x)
"""


def test_a_number_that_equals_a_mistake_for_one_width_is_no_mistake(tmp_path):
    file = tmp_path / "quarter.py"
    file.write_text(_QUARTER)
    assert examine(load_module(file)[0].Quarter, file=str(file)).verdict == NOT_COMPARED
    file = tmp_path / "half.py"
    file.write_text(_QUARTER.replace("0.25 / math.sqrt(64)", "1 / (64 ** 1 / 2)"))
    assert examine(load_module(file)[0].Quarter, file=str(file)).mistakes == ("power before division",)


class ValuesAreTheKeys(nn.Module):
    def forward(self, query, value):
        return attend(query, value, value)


class CacheNotSetUp(Layers):
    """Its cache is made by a call of its own, which nobody made here."""

    kv_cache = None

    def __init__(self, dim):
        super().__init__(dim)
        self.kv_cache = None

    def forward(self, x, start_pos=0):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        return attend(q, k, v) if self.kv_cache is None else attend(q, *self.kv_cache.update(start_pos, k, v))


def test_one_array_of_keys_and_values_and_a_cache_not_set_up_are_not_wrong():
    assert examine(ValuesAreTheKeys).verdict == EQUAL
    assert examine(CacheNotSetUp).verdict != WRONG


class OwnPositions(Layers):
    """Queries and keys times numbers that depend on their position, but not as rotary ones do."""

    def forward(self, x):
        gain = 1 + torch.arange(x.size(1))[:, None] / 10
        return attend(self.w_q(x) * gain, self.w_k(x) * gain, self.w_v(x))


class EverySecondKey(Layers):
    """A mask that is neither causal nor a window."""

    def forward(self, x):
        hidden = (torch.arange(x.size(1))[:, None] * torch.arange(x.size(1))[None]) % 3 == 2
        return attend(self.w_q(x), self.w_k(x), self.w_v(x), hidden)


class NoisyScores(Layers):
    def forward(self, x):
        return attend(self.w_q(x) + torch.randn(x.shape), self.w_k(x), self.w_v(x))


class ValuesOfTheNextToken(Layers):
    def forward(self, x):
        return attend(self.w_q(x), self.w_k(x), self.w_v(x).roll(1, dims=1))


class LearnedFromTheInput(Layers):
    """A term of relative positions that depends on the queries, as in Transformer-XL."""

    def forward(self, x):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        moved = (q @ self.w_k.weight).cumsum(dim=1) @ torch.ones(x.size(-1), x.size(1))
        return torch.softmax((q @ k.transpose(-2, -1) + moved) / math.sqrt(q.size(-1)), dim=-1) @ v


def flag_with_an_odd_mask(q, k, v, causal=False):
    hidden = (torch.arange(q.size(-2))[:, None] * torch.arange(k.size(-2))[None]) % 3 == 2
    return attend(q, k, v, hidden if causal else None)


def loop_with_a_dead_flag(q, k, v, causal=False):
    return loop(q, k, v)


class CacheOfOthers(Layers):
    """It takes a cache, but never writes to it: whoever calls it does."""

    def forward(self, x, cache: KeyValueCache | None = None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if cache is not None and cache.keys is not None:
            k, v = torch.cat([cache.keys, k], dim=1), torch.cat([cache.values, v], dim=1)
        return attend(q, k, v)


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (OwnPositions, "not rotary"), (EverySecondKey, "neither causal nor a window"), (NoisyScores, "random"),
        (ValuesOfTheNextToken, "different tokens"), (LearnedFromTheInput, ""),
        (flag_with_an_odd_mask, "With causal=True: Its mask is neither"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_compared_and_says_what_was_seen(written, seen):
    found = examine(written)
    assert (found.verdict, found.mistakes) == (NOT_COMPARED, ())
    assert any(seen in text for text in found.unknown)


def test_a_dead_flag_of_a_loop_is_named_and_a_cache_of_others_is_not():
    assert examine(loop_with_a_dead_flag).mistakes == ("named causal but not causal",)
    assert examine(CacheOfOthers).verdict == EQUAL


class SequencesMixed(Layers):
    """Reshaped where it must be transposed: a head has tokens of several sequences."""

    def forward(self, x):
        turned = x.reshape(x.size(1), x.size(0), x.size(2)).transpose(0, 1)
        out = attend(self.w_q(turned), self.w_k(turned), self.w_v(turned))
        return out.transpose(0, 1).reshape(x.shape)


class ScaledAtRandom(Layers):
    def forward(self, x):
        return attend(self.w_q(x) * random.random(), self.w_k(x), self.w_v(x))


class MixerForgotten(LayerOfABranch):
    def __init__(self, dim):
        super().__init__(dim)
        self.mixer = nn.Linear(dim, dim)


def scores_cut_off_below(q, k, v):
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).clamp(min=0)
    return torch.softmax(scores, dim=-1) @ v


class Diagonals(Layers):
    """A head has one token of each row of a picture, each time one column further."""

    def forward(self, x):
        b, h, w, c = x.shape
        assert min(b, w, c) > 0
        turned = torch.stack([x[:, row].roll(row, dims=1) for row in range(h)], dim=2)
        out = attend(self.w_q(turned), self.w_k(turned), self.w_v(turned))
        return torch.stack([out[:, :, row].roll(-row, dims=1) for row in range(h)], dim=1)


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (SequencesMixed, ""), (ScaledAtRandom, "different numbers"), (MixerForgotten, "mixer.weight has no effect"),
        (scores_cut_off_below, "not only scaled and masked"), (Diagonals, "nor of a window"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_known_form_is_not_compared(written, seen):
    found = examine(written)
    assert (found.verdict, found.mistakes) == (NOT_COMPARED, ())
    assert any(seen in text for text in found.unknown)


class KeysUnusedButProjected(nn.Module):
    """One of four unnamed layers has no effect."""

    def __init__(self, dim):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        q = self.a(x)
        return self.d(attend(q, q, self.c(x)))


def test_an_unused_layer_beside_an_output_projection_is_seen():
    found = examine(KeysUnusedButProjected)
    assert (found.verdict, any("has no effect" in text for text in found.unknown)) == (NOT_COMPARED, True)


class NormedAndScaledFreely(Layers):
    """Queries and keys of length 1: their scale is free."""

    def forward(self, x):
        q, k = (nn.functional.normalize(w(x), dim=-1) for w in (self.w_q, self.w_k))
        return torch.softmax(8 * (q @ k.transpose(-2, -1)), dim=-1) @ self.w_v(x)


class LearnedScale(Layers):
    def __init__(self, dim):
        super().__init__(dim)
        self.scale = nn.Parameter(torch.tensor(0.2))

    def forward(self, x):
        return torch.softmax(self.w_q(x) @ self.w_k(x).transpose(-2, -1) * self.scale, dim=-1) @ self.w_v(x)


def test_scales_that_are_free_or_learned_are_conventions():
    assert "the scores are multiplied by 8, not by 1/√d_k = 0.1443" in examine(NormedAndScaledFreely).conventions
    assert "the scale is learned" in examine(LearnedScale).conventions


class Heads(nn.Module):
    """Several heads, with hooks for the parts that the classes below write otherwise."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.view(x.shape[0], -1, self.heads, self.width).transpose(1, 2)

    def merge(self, context):
        return self.w_o(context.transpose(1, 2).flatten(2))


class OptionalCausal(Heads):
    diagonal = 1

    def __init__(self, dim, heads, causal=False):
        super().__init__(dim, heads)
        self.causal = causal
        if causal:
            self.register_buffer("future", torch.ones(32, 32, dtype=torch.bool).triu(self.diagonal))

    def forward(self, x):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.mT / math.sqrt(self.width)
        if self.causal:
            scores = scores.masked_fill(self.future[: x.size(1), : x.size(1)], -math.inf)
        return self.merge(scores.softmax(-1) @ v)


class OptionalCausalTooFar(OptionalCausal):
    diagonal = 2


class OptionalCausalWithoutEffect(Heads):
    def __init__(self, dim, heads, causal_mask=False):
        super().__init__(dim, heads)
        self.causal_mask = causal_mask

    def forward(self, x):
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))
        scores = q @ k.mT / math.sqrt(self.width)
        if self.causal_mask:
            scores.masked_fill(torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1), -math.inf)
        return self.merge(scores.softmax(-1) @ v)


def test_a_causal_flag_of_a_constructor_is_tried():
    right = examine(OptionalCausal)
    assert (right.verdict, right.checks) == (EQUAL, ("the causal flag",))
    assert "causal=True is causal" in right.conventions
    assert examine(OptionalCausalTooFar).mistakes == ("causal mask off by one (future)",)
    assert examine(OptionalCausalWithoutEffect).mistakes == ("named causal but not causal",)


class ScaleInWeights(Heads):
    power = 0.5

    def forward(self, x):
        divisor = self.width**self.power
        q = nn.functional.linear(x, self.w_q.weight / divisor, self.w_q.bias / divisor)
        scores = self.split(q) @ self.split(self.w_k(x)).mT
        return self.merge(scores.softmax(-1) @ self.split(self.w_v(x)))


class NoScaleInWeights(ScaleInWeights):
    power = 0.0


class ScaledWhenCreated(NoScaleInWeights):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        with torch.no_grad():
            self.w_q.weight.mul_(self.width**-0.5)


def test_a_scale_may_be_in_the_weights():
    assert examine(ScaleInWeights).verdict == EQUAL
    assert examine(NoScaleInWeights).mistakes == ("no scale",)
    assert examine(ScaledWhenCreated).verdict == NOT_COMPARED


def weak_added(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = scores + (1.0 - mask.float()) * -1e-4
    return torch.softmax(scores, dim=-1) @ v


def test_a_mask_argument_times_a_small_number_hides_nothing():
    diagnosis = examine(weak_added)
    assert diagnosis.mistakes == ("mask value too small",)
    assert "scores + " in dict(lines(diagnosis))["mask value too small"]


class T5Heads(Heads):
    power = 0.0

    def forward(self, x):
        scores = self.split(self.w_q(x)) @ self.split(self.w_k(x)).mT / self.width**self.power
        return self.merge(scores.softmax(-1) @ self.split(self.w_v(x)))


class T5ScaledByWidth(T5Heads):
    power = 1.0


def test_t5_may_leave_out_the_scale_but_has_no_other_known_one():
    assert examine(T5Heads).verdict == EQUAL
    assert examine(T5ScaledByWidth).mistakes == ("scale by d_k",)


class StartPosition(Layers):
    """A cache that is written only where a position is given, as in Llama's code; positions come from the caller."""

    def __init__(self, dim):
        super().__init__(dim)
        self.cache_k, self.cache_v = torch.zeros(4, 16, dim), torch.zeros(4, 16, dim)

    def forward(self, x, start_pos=None):
        (batch, time, _), past = x.shape, start_pos or 0
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if start_pos is not None:
            self.cache_k[:batch, past : past + time], self.cache_v[:batch, past : past + time] = k, v
            k, v = self.cache_k[:batch, : past + time], self.cache_v[:batch, : past + time]
        return attend(q, k, v, torch.ones(time, k.size(1), dtype=torch.bool).triu(past + 1))


def test_a_cache_that_needs_a_position_gets_one_at_first():
    diagnosis = examine(StartPosition)
    assert (diagnosis.verdict, diagnosis.mistakes) == (EQUAL, ())
    assert "a sequence in two chunks, with its cache" in diagnosis.checks


class CutFromTop(Layers):
    def __init__(self, dim):
        super().__init__(dim)
        self.register_buffer("hidden", torch.ones(32, 32, dtype=torch.bool).triu(1))

    def forward(self, x, past=None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
        hidden = self.hidden[: q.size(1), : k.size(1)]
        return attend(q, k, v, hidden), (k, v)


def test_a_mask_cut_from_the_top_with_a_cache_is_blamed_where_it_is_cut():
    code = dict(lines(examine(CutFromTop)))
    assert code == {"causal top-left with a cache": "hidden = self.hidden[: q.size(1), : k.size(1)]"}


class NumpyCache:
    """A NumPy class that keeps its keys and values, and uses them or not."""

    used = True

    def __init__(self, d_model):
        self.w_q, self.w_k, self.w_v = np.random.default_rng(0).normal(size=(3, d_model, d_model)) * d_model**-0.5
        self.cache_k, self.cache_v = np.zeros((4, 16, d_model)), np.zeros((4, 16, d_model))

    def __call__(self, x, start_pos=0):
        batch, time, width = x.shape
        q, k, v = x @ self.w_q, x @ self.w_k, x @ self.w_v
        self.cache_k[:batch, start_pos : start_pos + time] = k
        self.cache_v[:batch, start_pos : start_pos + time] = v
        if self.used:
            k, v = self.cache_k[:batch, : start_pos + time], self.cache_v[:batch, : start_pos + time]
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(width)
        scores = np.where(np.tri(time, k.shape[1], k.shape[1] - time, dtype=bool), scores, -np.inf)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True) @ v


class NumpyCacheNotUsed(NumpyCache):
    used = False


def test_a_cache_of_a_numpy_class_is_tried():
    assert examine(NumpyCache).verdict == EQUAL
    assert examine(NumpyCacheNotUsed).mistakes == ("cache not used",)


class Projected(Layers):
    def project_value(self, value):
        return self.w_v(value)

    def forward(self, query, key, value):
        q = self.w_q(query)
        k = self.w_k(key)
        v = self.project_value(query)
        return attend(q, k, v)


class SwappedLayers(Layers):
    def forward(self, x):
        q = self.w_q(x)
        k = self.w_v(x)
        v = self.w_k(x)
        scores = q @ k.mT / math.sqrt(x.size(-1))
        return scores.softmax(-1) @ v


class Twice(Heads):
    def forward(self, x):
        scale = self.width**-0.5
        q = self.split(self.w_q(x)) * scale
        scores = q @ self.split(self.w_k(x)).mT
        scores = scores * scale
        return self.merge(scores.softmax(-1) @ self.split(self.w_v(x)))


def test_the_line_is_the_one_that_chose():
    assert lines(examine(Projected)) == [("values from the queries", "v = self.project_value(query)")]
    assert lines(examine(SwappedLayers)) == [("keys and values swapped", "k = self.w_v(x)")]
    assert lines(examine(Twice)) == [("scaled twice", "scores = scores * scale")]


class MaskedByNumbers:
    """A NumPy class whose mask is multiplied, inverted, or a tiny number."""

    def __init__(self, d_model):
        self.w_q, self.w_k, self.w_v = np.random.default_rng(0).normal(size=(3, d_model, d_model)) * d_model**-0.5

    def hide(self, scores, mask):
        return scores + (1 - mask) * -1e9

    def weigh(self, weights, mask):
        return weights

    def __call__(self, x, mask=None):
        """mask: 1 = attend, 0 = hidden"""
        q, k, v = x @ self.w_q, x @ self.w_k, x @ self.w_v
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(x.shape[-1])
        scores = scores if mask is None else self.hide(scores, mask)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        return (weights if mask is None else self.weigh(weights, mask)) @ v


class MaskedBackwards(MaskedByNumbers):
    def hide(self, scores, mask):
        return scores + mask * -1e9


class MaskedLate(MaskedByNumbers):
    def hide(self, scores, mask):
        return scores

    def weigh(self, weights, mask):
        return weights * mask


class MaskedWeakly(MaskedByNumbers):
    def hide(self, scores, mask):
        return scores + (1 - mask) * -1e-9


def test_masks_of_numpy_classes():
    assert examine(MaskedByNumbers).verdict == EQUAL
    assert examine(MaskedBackwards).mistakes == ("mask inverted",)
    assert examine(MaskedLate).mistakes == ("mask after softmax",)
    assert examine(MaskedWeakly).mistakes == ("mask value too small",)


def groups_of_queries(query, key, value, order="hg"):
    b, n, heads, d = query.shape
    m = key.shape[2]
    q = query.reshape(b, n, m, heads // m, d) if order == "hg" else query.reshape(b, n, heads // m, m, d)
    q = q if order == "hg" else q.transpose(2, 3)
    scores = torch.einsum("bnmgd,bsmd->bmgns", q, key) / math.sqrt(d)
    context = torch.einsum("bmgns,bsmd->bnmgd", torch.softmax(scores, dim=-1), value)
    context = context if order == "hg" else context.transpose(2, 3)
    return context.reshape(b, n, heads, d)


def groups_tiled(query, key, value):
    return groups_of_queries(query, key, value, order="gh")


def test_groups_of_a_function_whose_heads_come_after_the_tokens():
    assert examine(groups_of_queries).verdict == EQUAL
    assert examine(groups_tiled).mistakes == ("kv heads tiled",)


def twice_in_loops(Q, K, V):
    out = np.zeros((Q.shape[0], V.shape[1]))
    for i in range(Q.shape[0]):
        row = np.exp([(Q[i] * K[j]).sum() / np.sqrt(Q.shape[1]) for j in range(K.shape[0])])
        row = np.exp(row / row.sum())
        for j in range(K.shape[0]):
            out[i] += row[j] / row.sum() * V[j]
    return out


def test_a_double_softmax_in_loops_has_its_name():
    assert examine(twice_in_loops).mistakes == ("double softmax",)


class LayerLeftOver(LayerForgotten):
    def forward(self, x):
        return self.out(super().forward(x))


class WithLibraryAndPast(Layers):
    """Keys and values so far as two arguments; a module of Python among the attributes cannot be copied."""

    def __init__(self, dim):
        super().__init__(dim)
        self.library = math

    def forward(self, x, past_key=None, past_value=None):
        k, v = self.w_k(x), self.w_v(x)
        if past_key is not None:
            k, v = torch.cat([past_key, k], dim=1), torch.cat([past_value, v], dim=1)
        return attend(self.w_q(x), k, v)


def real_or_padding(q, k, v, mask=None):
    """Attend; `mask` says whether a token is padding (0) or real (1)."""
    return attend(q, k, v, None if mask is None else mask == 0)


def zeros_and_ones(q, k, v, mask=None):
    """Attend; `mask` is a 0/1 padding mask, in which 1 = keep."""
    return attend(q, k, v, None if mask is None else mask == 0)


@pytest.mark.parametrize("written", [LayerLeftOver, WithLibraryAndPast, real_or_padding, zeros_and_ones])
def test_right_code_is_not_called_wrong(written):
    found = examine(written)
    assert (found.verdict, found.mistakes) == (EQUAL, ())


def real_or_padding_inverted(q, k, v, mask=None):
    """Attend; `mask` says whether a token is padding (0) or real (1)."""
    return attend(q, k, v, None if mask is None else mask == 1)


def test_a_meaning_after_its_word_is_read():
    assert examine(real_or_padding_inverted).mistakes == ("mask inverted",)


def divided_by_a_fixed_number(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / 2, dim=-1) @ v


def test_a_fixed_number_that_fits_one_size_by_chance_is_no_known_scale():
    found = examine(divided_by_a_fixed_number)
    assert (found.verdict, found.mistakes) == (NOT_COMPARED, ())


class AttentionNet5(Layers):
    """A class whose name ends in t5, but that is no T5."""

    def forward(self, x):
        return torch.softmax(self.w_q(x) @ self.w_k(x).transpose(-2, -1), dim=-1) @ self.w_v(x)


def test_only_t5_may_leave_out_the_scale():
    assert examine(AttentionNet5).mistakes == ("no scale",)


def a_little_more_of_itself(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores + 0.5 * torch.eye(q.size(-2)), dim=-1) @ v


def test_two_numbers_that_are_no_causal_mask_are_no_weak_mask():
    found = examine(a_little_more_of_itself)
    assert (found.verdict, found.mistakes) == (NOT_COMPARED, ())


class TurnedByHead(Layers):
    """Rotary positions along the axis of the heads instead of the tokens: they cancel out."""

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (4, -1)) for w in (self.w_q, self.w_k, self.w_v))
        turn = torch.polar(torch.ones(4, 1), torch.arange(4.0)[:, None])
        q, k = (torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (-1, 2))) * turn).flatten(-2) for y in (q, k))
        return attend(*(y.transpose(1, 2) for y in (q, k, v))).transpose(1, 2).flatten(2)


def test_positions_that_cancel_out_are_no_positions():
    found = examine(TurnedByHead)
    assert (found.verdict, found.conventions) == (NOT_COMPARED, ("bidirectional",))


def twice_over_the_width(q, k, v):
    scores = q @ k.transpose(-2, -1) * 2 / q.size(-1)  # not the same as q.size(-1) ** -1 / 2
    return torch.softmax(scores, dim=-1) @ v


def test_a_comment_names_no_scale(tmp_path):
    (tmp_path / "scaled.py").write_text(f"import torch\n{inspect.getsource(twice_over_the_width)}")
    module, _ = load_module(tmp_path / "scaled.py")
    found = examine(module.twice_over_the_width, file=str(tmp_path / "scaled.py"))
    assert (found.verdict, found.mistakes) == (NOT_COMPARED, ())
