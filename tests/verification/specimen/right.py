"""Correct attention in many styles; the examination must find no mistake."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .wrong import Cached


def torch_fused(query, key, value, attn_mask=None):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


def with_einsum(q, k, v, mask=None):
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), v)


def numpy_loops(Q, K, V):
    context = np.zeros((len(Q), V.shape[1]))
    for i, query in enumerate(Q):
        scores = [sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in K]
        powers = [math.exp(score) for score in scores]
        for j, value in enumerate(V):
            context[i] += powers[j] / sum(powers) * value
    return context


def grouped(q, k, v, mask=None):
    group = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.mT / math.sqrt(q.size(-1))
    scores = scores if mask is None else torch.where(mask, scores, -torch.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v


def additive_mask(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores if mask is None else scores + mask, dim=-1) @ v


def true_is_masked(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores.masked_fill_(mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def ones_attend(q, k, v, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + (1.0 - mask) * -1e9
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ v, weights


def masked_then_renormalised(q, k, v, mask=None):
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ v


def causal_bottom_right(q, k, v, past_k=None, past_v=None, causal=True):
    if past_k is not None:
        k, v = torch.cat([past_k, k], dim=-2), torch.cat([past_v, v], dim=-2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if causal:
        causal_mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril(k.size(-2) - q.size(-2))
        scores = scores.masked_fill(~causal_mask, float("-inf"))
    return scores.softmax(-1) @ v


def from_inputs(x, W_q, W_k, W_v):
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    scores = q @ k.T / np.sqrt(k.shape[1])
    powers = np.exp(scores)
    return powers / powers.sum(axis=1, keepdims=True) @ v


class FromScratch(nn.Module):
    """Fused QKV projection, causal mask as a buffer, settings in a config object."""

    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout, self.resid_dropout = nn.Dropout(config.dropout), nn.Dropout(config.dropout)
        self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size))[None, None])

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (x.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for x in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = F.softmax(att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf")), dim=-1)
        y = (self.attn_dropout(att) @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class FourLinears(nn.Module):
    """Separate queries, keys and values; four equal layers in a list; mask with 0 = masked."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        mask = None if mask is None else mask.unsqueeze(1)
        batch = query.size(0)
        query, key, value = (
            layer(x).view(batch, -1, self.h, self.d_k).transpose(1, 2)
            for layer, x in zip(self.linears, (query, key, value), strict=False)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.d_k)
        scores = scores if mask is None else scores.masked_fill(mask == 0, -1e9)
        x = self.dropout(scores.softmax(dim=-1)) @ value
        return self.linears[-1](x.transpose(1, 2).contiguous().view(batch, -1, self.h * self.d_k))


class Head(nn.Module):
    def __init__(self, d_model, head_size):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(d_model, head_size, bias=False) for _ in range(3))

    def forward(self, x):
        causal_mask = torch.tril(torch.ones(x.size(1), x.size(1)))
        weights = self.query(x) @ self.key(x).transpose(-2, -1) * self.key(x).size(-1) ** -0.5
        return F.softmax(weights.masked_fill(causal_mask == 0, float("-inf")), dim=-1) @ self.value(x)


class HeadsInAList(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(d_model, d_model // num_heads) for _ in range(num_heads))
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class BareMatrices(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query, self.W_key, self.W_value = (nn.Parameter(torch.rand(d_in, d_out)) for _ in range(3))

    def forward(self, x):
        keys, queries, values = x @ self.W_key, x @ self.W_query, x @ self.W_value
        return torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1) @ values


class Grouped(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wk, self.wv = (nn.Linear(dim, n_kv_heads * self.head_dim, bias=False) for _ in range(2))

    def forward(self, x, mask=None):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.n_heads, self.head_dim).transpose(1, 2)
        k, v = (m(x).view(b, t, self.n_kv_heads, self.head_dim).transpose(1, 2) for m in (self.wk, self.wv))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.wo(out.transpose(1, 2).reshape(b, t, -1))


class TimeFirst(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(embed_dim, num_heads)

    def forward(self, x, key_padding_mask=None):
        return self.inner(x, x, x, key_padding_mask=key_padding_mask)[0]


class Odd(nn.Module):
    """Weights with unknown names."""

    def __init__(self, d_model):
        super().__init__()
        self.alpha, self.beta, self.gamma = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        causal_mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        scores = self.alpha(x) @ self.beta(x).transpose(1, 2) / math.sqrt(x.size(-1))
        return scores.masked_fill(~causal_mask, float("-inf")).softmax(-1) @ self.gamma(x)


RIGHT = [
    F.scaled_dot_product_attention, torch_fused, nn.MultiheadAttention, with_einsum, numpy_loops, grouped,
    additive_mask, true_is_masked, ones_attend, masked_then_renormalised, causal_bottom_right,
    from_inputs, FromScratch, FourLinears,
    HeadsInAList, BareMatrices, Grouped, TimeFirst, Cached, Odd,
]  # fmt: skip
