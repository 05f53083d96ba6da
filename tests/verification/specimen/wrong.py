"""Attention with one common mistake each; the examination must name it."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def no_scale(q, k, v):
    weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
    return weights @ v


def scale_by_width(q, k, v, mask=None):
    d_k = q.size(-1)
    scores = torch.matmul(q, k.transpose(-2, -1)) / d_k
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    return torch.matmul(F.softmax(scores, dim=-1), v)


def scale_by_model_width(q, k, v, num_heads):
    batch, time, d_model = q.shape
    d_head = d_model // num_heads

    def split(x):
        return x.view(batch, -1, num_heads, d_head).transpose(1, 2)

    scores = split(q) @ split(k).transpose(-2, -1) / math.sqrt(d_model)
    context = scores.softmax(dim=-1) @ split(v)
    return context.transpose(1, 2).reshape(batch, time, d_model)


def scale_multiplied(query, key, value):
    scores = np.einsum("...qd,...kd->...qk", query, key) * np.sqrt(query.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)) @ value


def scale_after_softmax(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) / math.sqrt(q.size(-1)) @ v


def softmax_over_queries(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores, dim=-2) @ v


def mask_after_softmax(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights * mask
    return weights @ v


def mask_inverted(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    causal_mask = torch.tril(torch.ones(q.size(-2), k.size(-2)))
    scores = scores.masked_fill(causal_mask == 1, -1e9)
    return torch.softmax(scores, dim=-1) @ v


def mask_contradicts_docstring(q, k, v, mask=None):
    """Attention.

    mask: boolean, True where a query may attend to a key.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def attends_ahead(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    future = torch.triu(torch.ones(q.size(-2), k.size(-2), dtype=torch.bool))
    return torch.softmax(scores.masked_fill(~future, float("-inf")), dim=-1) @ v


def causal_attends_to_next(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    masked = torch.triu(torch.ones(q.size(-2), k.size(-2), dtype=torch.bool), diagonal=2)
    return torch.softmax(scores.masked_fill(masked, float("-inf")), dim=-1) @ v


def causal_masks_itself(q, k, v, causal=False):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if causal:
        masked = torch.triu(torch.ones(q.size(-2), k.size(-2), dtype=torch.bool), diagonal=0)
        scores = scores.masked_fill(masked, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def causal_top_left(q, k, v, past_k=None, past_v=None):
    if past_k is not None:
        k, v = torch.cat([past_k, k], dim=-2), torch.cat([past_v, v], dim=-2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    causal_mask = torch.tril(torch.ones(q.size(-2), k.size(-2), dtype=torch.bool))
    return torch.softmax(scores.masked_fill(~causal_mask, float("-inf")), dim=-1) @ v


def cache_not_used(q, k, v, past_k=None, past_v=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores, dim=-1) @ v


def mask_multiplies_scores(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores * mask, dim=-1) @ v


def mask_ignored(q, k, v, mask=None):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1) @ v


def keys_and_values_swapped(q, k, v):
    scores = q @ v.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores, dim=-1) @ k


def heads_merged(q, k, v):
    batch, heads, time, width = q.shape
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(width), dim=-1)
    return (weights @ v).reshape(batch, time, heads * width)


def groups_tiled(q, k, v):
    group = q.size(1) // k.size(1)
    k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1) @ v


def dropout_on(q, k, v):
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
    return F.dropout(weights, 0.3) @ v


def dropout_on_and_no_scale(q, k, v):
    weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
    return F.dropout(weights, 0.3) @ v


class SplitByReshape(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, d_model) for _ in range(3))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (m(x).view(b, self.n_heads, t, c // self.n_heads) for m in (self.q_proj, self.k_proj, self.v_proj))
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(c // self.n_heads), dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(b, t, c))


class MergedWithoutTranspose(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (m.view(b, t, self.num_heads, -1).transpose(1, 2) for m in self.qkv(x).chunk(3, dim=-1))
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
        return self.proj((weights @ v).contiguous().view(b, t, c))


class DropoutOn(nn.Module):
    def __init__(self, d_model, dropout):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))
        self.p = dropout

    def forward(self, x):
        weights = torch.softmax(self.W_q(x) @ self.W_k(x).transpose(-2, -1) / math.sqrt(x.size(-1)), dim=-1)
        return F.dropout(weights, self.p) @ self.W_v(x)


def rotate(x, positions):
    half = x.size(-1) // 2
    angle = positions[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], dim=-1)


class Cached(nn.Module):
    """Rotary, causal, with a cache; subclasses add the mistakes."""

    offset_positions, alignment = True, "end"

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x, cache=None):
        b, t, c = x.shape
        q, k, v = (m(x).view(b, t, self.n_heads, -1).transpose(1, 2) for m in (self.wq, self.wk, self.wv))
        past = 0 if cache is None else cache[0].size(2)
        positions = torch.arange(t) + (past if self.offset_positions else 0)
        q, k = rotate(q, positions), rotate(k, positions)
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        causal_mask = torch.tril(
            torch.ones(t, past + t, dtype=torch.bool), diagonal=past if self.alignment == "end" else 0
        )
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).masked_fill(~causal_mask, float("-inf")).softmax(-1)
        return self.wo((weights @ v).transpose(1, 2).reshape(b, t, c)), (k, v)


class PositionsNotShifted(Cached):
    offset_positions = False


class TopLeftWithCache(Cached):
    alignment = "start"


def scale_by_heads(q, k, v, num_heads):
    batch, time, width = q.shape
    q, k, v = (x.view(batch, -1, num_heads, width // num_heads).transpose(1, 2) for x in (q, k, v))
    context = torch.softmax(q @ k.mT / math.sqrt(num_heads), dim=-1) @ v
    return context.transpose(1, 2).reshape(batch, time, width)


def scaled_twice(q, k, v):
    q = q * q.size(-1) ** -0.5
    return torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1) @ v


def softmax_over_everything(q, k, v):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return torch.softmax(scores.flatten(-2), dim=-1).view(scores.shape) @ v


class HeadsAttendToHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        q, k, v = (layer(x).view(*x.shape[:2], self.n_heads, -1) for layer in (self.q, self.k, self.v))
        return (torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1) @ v).flatten(2)


class MaskOfAnotherSequence(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x, mask=None):
        b, t, c = x.shape
        q, k, v = (
            layer(x).view(b, t, self.n_heads, -1).permute(2, 0, 1, 3).flatten(0, 1)
            for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(mask.repeat_interleave(self.n_heads, 0) == 0, -1e9)
        context = (scores.softmax(-1) @ v).view(self.n_heads, b, t, -1)
        return context.permute(1, 2, 0, 3).reshape(b, t, c)


WRONG = [
    (scale_by_heads, "scale by number of heads"),
    (scaled_twice, "scaled twice"),
    (softmax_over_everything, "softmax over all scores"),
    (HeadsAttendToHeads, "scores between heads"),
    (MaskOfAnotherSequence, "mask of another sequence"),
    (no_scale, "no scale"),
    (scale_by_width, "scale by d_k"),
    (scale_by_model_width, "scale by model width"),
    (scale_multiplied, "scale multiplied"),
    (scale_after_softmax, "scale after softmax"),
    (softmax_over_queries, "softmax over queries"),
    (mask_after_softmax, "mask after softmax"),
    (mask_inverted, "mask inverted"),
    (mask_contradicts_docstring, "mask inverted"),
    (attends_ahead, "mask inverted"),
    (causal_attends_to_next, "causal mask off by one (future)"),
    (causal_masks_itself, "causal mask off by one (self)"),
    (causal_top_left, "causal top-left with a cache"),
    (TopLeftWithCache, "causal top-left with a cache"),
    (cache_not_used, "cache not used"),
    (mask_multiplies_scores, "masked scores become 0"),
    (mask_ignored, "mask ignored"),
    (keys_and_values_swapped, "keys and values swapped"),
    (heads_merged, "heads merged without transpose"),
    (MergedWithoutTranspose, "heads merged without transpose"),
    (SplitByReshape, "heads split by a wrong reshape"),
    (groups_tiled, "kv heads tiled"),
    (PositionsNotShifted, "positions not shifted with the cache"),
    (dropout_on, "dropout left on"),
    (DropoutOn, "dropout left on"),
]
