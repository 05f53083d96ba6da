"""Attention in ten styles, and mutants of each: one line is changed, and the mistake that must be named.

A mutant is (style, old text, new text, name of the mistake); the old text occurs once. More of them: mutants.toml.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

STYLES = {
    "function": '''
import math
import torch

def attention(q, k, v, mask=None):
    d_k = q.size(-1)
    scores = torch.matmul(q, k.transpose(-2, -1))
    scores = scores / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights, v)
''',
    "einsum": '''
import torch
import torch.nn.functional as F

def attend(query, key, value):
    width = query.shape[-1]
    logits = torch.einsum("bqhd,bkhd->bhqk", query, key)
    logits = logits * width ** -0.5
    n, m = logits.shape[-2:]
    future = torch.triu(torch.ones(n, m, dtype=torch.bool), diagonal=m - n + 1)
    logits = logits.masked_fill(future, -1e9)
    attn = F.softmax(logits, dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", attn, value)
''',
    "numpy": '''
import numpy as np

def softmax(x, axis=-1):
    shifted = x - x.max(axis=axis, keepdims=True)
    powers = np.exp(shifted)
    return powers / powers.sum(axis=axis, keepdims=True)

def attention(Q, K, V, mask=None):
    scores = Q @ K.swapaxes(-1, -2)
    scores = scores / np.sqrt(K.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores, axis=-1)
    return weights @ V
''',
    "four linears": '''
import math
import torch
from torch import nn

class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        q = self.split(self.w_q(query))
        k = self.split(self.w_k(key))
        v = self.split(self.w_v(value))
        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        weights = scores.softmax(dim=-1)
        weights = self.dropout(weights)
        x = weights @ v
        x = x.transpose(1, 2).reshape(query.size(0), -1, self.h * self.d_k)
        return self.w_o(x)
''',
    "fused causal": '''
import math
import torch
import torch.nn.functional as F
from torch import nn

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.attn_dropout = nn.Dropout(config.attn_pdrop)
        self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size)))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = q @ k.transpose(-2, -1)
        att = att * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)
''',
    "helpers": '''
import torch
from torch import nn

def split_heads(x, heads):
    b, t, c = x.shape
    return x.reshape(b, t, heads, c // heads).permute(0, 2, 1, 3)

def merge_heads(x):
    b, h, t, d = x.shape
    return x.permute(0, 2, 1, 3).reshape(b, t, h * d)

def causal_mask(t):
    return torch.tril(torch.ones(t, t)).bool()

class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        q = split_heads(self.to_q(x), self.num_heads)
        k = split_heads(self.to_k(x), self.num_heads)
        v = split_heads(self.to_v(x), self.num_heads)
        dots = torch.einsum("bhid,bhjd->bhij", q, k)
        dots = dots * self.scale
        dots = torch.where(causal_mask(x.size(1)), dots, torch.tensor(float("-inf")))
        attn = dots.softmax(dim=-1)
        out = torch.einsum("bhij,bhjd->bhid", attn, v)
        return self.to_out(merge_heads(out))
''',
    "fused kernel": '''
import torch
import torch.nn.functional as F
from torch import nn

class SelfAttention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.heads = num_attention_heads
        self.q_proj = nn.Linear(hidden_size, hidden_size)
        self.k_proj = nn.Linear(hidden_size, hidden_size)
        self.v_proj = nn.Linear(hidden_size, hidden_size)
        self.out_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states):
        b, t, c = hidden_states.shape
        q = self.q_proj(hidden_states)
        k = self.k_proj(hidden_states)
        v = self.v_proj(hidden_states)
        q = q.view(b, t, self.heads, -1).transpose(1, 2)
        k = k.view(b, t, self.heads, -1).transpose(1, 2)
        v = v.view(b, t, self.heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, t, c)
        return self.out_proj(y)
''',
    "grouped rotary": '''
import torch
from torch import nn

def rotate(x, positions):
    half = x.size(-1) // 2
    angle = positions[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], dim=-1)

class Attention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)

    def forward(self, x, cache=None):
        b, t, _ = x.shape
        past = 0 if cache is None else cache[0].size(2)
        q = self.wq(x).view(b, t, self.n_heads, self.head_dim).transpose(1, 2)
        k = self.wk(x).view(b, t, self.n_kv_heads, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(b, t, self.n_kv_heads, self.head_dim).transpose(1, 2)
        positions = torch.arange(past, past + t)
        q, k = rotate(q, positions), rotate(k, positions)
        if cache is not None:
            k = torch.cat([cache[0], k], dim=2)
            v = torch.cat([cache[1], v], dim=2)
        new_cache = (k, v)
        group = self.n_heads // self.n_kv_heads
        k = k.repeat_interleave(group, dim=1)
        v = v.repeat_interleave(group, dim=1)
        scores = q @ k.transpose(2, 3)
        scores = scores / self.head_dim ** 0.5
        visible = torch.ones(t, past + t, dtype=torch.bool).tril(diagonal=past)
        scores = scores.masked_fill(~visible, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        out = weights @ v
        out = out.transpose(1, 2).reshape(b, t, -1)
        return self.wo(out), new_cache
''',
    "head list": '''
import torch
from torch import nn
from torch.nn import functional as F

class Head(nn.Module):
    def __init__(self, n_embd, head_size, block_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        B, T, C = x.shape
        k = self.key(x)
        q = self.query(x)
        wei = q @ k.transpose(-2, -1)
        wei = wei * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        wei = self.dropout(wei)
        v = self.value(x)
        return wei @ v

class MultiHeadAttention(nn.Module):
    def __init__(self, n_embd, num_heads, head_size, block_size):
        super().__init__()
        self.heads = nn.ModuleList([Head(n_embd, head_size, block_size) for _ in range(num_heads)])
        self.proj = nn.Linear(head_size * num_heads, n_embd)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))
''',
    "cross": '''
import torch
from torch import nn

class CrossAttention(nn.Module):
    def __init__(self, query_dim, heads, dim_head):
        super().__init__()
        inner = heads * dim_head
        self.heads = heads
        self.temperature = dim_head ** 0.5
        self.norm = nn.LayerNorm(query_dim)
        self.to_q = nn.Linear(query_dim, inner, bias=False)
        self.to_kv = nn.Linear(query_dim, 2 * inner, bias=False)
        self.to_out = nn.Linear(inner, query_dim)

    def forward(self, x, context):
        b, n, _ = x.shape
        q = self.to_q(self.norm(x)).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = self.to_kv(context).chunk(2, dim=-1)
        k = k.view(b, k.shape[1], self.heads, -1).transpose(1, 2)
        v = v.view(b, v.shape[1], self.heads, -1).transpose(1, 2)
        sim = torch.matmul(q, k.transpose(-1, -2))
        sim = sim / self.temperature
        sim = sim - sim.amax(dim=-1, keepdim=True)
        attn = sim.exp()
        attn = attn / attn.sum(dim=-1, keepdim=True)
        out = torch.matmul(attn, v)
        out = out.transpose(1, 2).reshape(b, n, -1)
        return x + self.to_out(out)
''',
}  # fmt: skip

_SCALES = {
    "function": ("scores = scores / math.sqrt(d_k)", "math.sqrt(d_k)", "scores / ", "scores"),
    "einsum": ("logits = logits * width ** -0.5", "width ** -0.5", "logits * ", "logits"),
    "numpy": ("scores = scores / np.sqrt(K.shape[-1])", "np.sqrt(K.shape[-1])", "scores / ", "scores"),
    "four linears": ("scores = scores / math.sqrt(self.d_k)", "math.sqrt(self.d_k)", "scores / ", "scores"),
    "fused causal": ("att = att * (1.0 / math.sqrt(k.size(-1)))", "(1.0 / math.sqrt(k.size(-1)))", "att * ", "att"),
    "helpers": ("dots = dots * self.scale", "self.scale", "dots * ", "dots"),
    "grouped rotary": ("scores = scores / self.head_dim ** 0.5", "self.head_dim ** 0.5", "scores / ", "scores"),
    "head list": ("wei = wei * k.shape[-1] ** -0.5", "k.shape[-1] ** -0.5", "wei * ", "wei"),
    "cross": ("sim = sim / self.temperature", "self.temperature", "sim / ", "sim"),
}
TARGETS = {
    "function": "attention", "einsum": "attend", "numpy": "attention", "four linears": "MultiHeadedAttention",
    "fused causal": "CausalSelfAttention", "helpers": "Attention", "fused kernel": "SelfAttention",
    "grouped rotary": "Attention", "head list": "Head", "cross": "CrossAttention",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One changed line of a style, and the name of the mistake."""

    style: str
    old: str
    new: str
    mistake: str

    @property
    def source(self) -> str:
        """The source with the line changed."""
        text = STYLES[self.style]
        assert text.count(self.old) == 1, (self.style, self.old, text.count(self.old))
        return text.replace(self.old, self.new)

    @property
    def line(self) -> int:
        """The number of the changed line."""
        return STYLES[self.style][: STYLES[self.style].index(self.old)].count("\n") + 1


def _scale_mutants() -> list[Mutant]:
    d_k = {"function": "d_k", "einsum": "width", "numpy": "K.shape[-1]", "four linears": "self.d_k",
           "fused causal": "k.size(-1)", "grouped rotary": "self.head_dim", "head list": "k.shape[-1]"}  # fmt: skip
    mutants = []
    for style, (line, _, _, name) in _SCALES.items():
        mutants.append(Mutant(style, line, f"{name} = {name} * 1", "no scale"))
        if style in d_k:
            mutants.append(Mutant(style, line, f"{name} = {name} / {d_k[style]}", "scale by d_k"))
            mutants.append(Mutant(style, line, f"{name} = {name} * {d_k[style]} ** 0.5", "scale multiplied"))
            mutants.append(Mutant(style, line, f"{name} = {name} / {d_k[style]} ** 1/2", "power before division"))
    tokens = {"function": "q.size(-2)", "einsum": "logits.shape[-1]", "numpy": "K.shape[-2]", "head list": "T"}
    mutants += [Mutant(s, _SCALES[s][0], f"{_SCALES[s][3]} = {_SCALES[s][3]} / {t} ** 0.5", "scale by number of tokens")
                for s, t in tokens.items()]  # fmt: skip
    widths = {"four linears": "query.size(-1)", "fused causal": "C", "grouped rotary": "x.size(-1)", "head list": "C"}
    mutants += [Mutant(s, _SCALES[s][0], f"{_SCALES[s][3]} = {_SCALES[s][3]} / {w} ** 0.5", "scale by model width")
                for s, w in widths.items()]  # fmt: skip
    floors = {"function": "math.sqrt(d_k)", "numpy": "np.sqrt(K.shape[-1])", "grouped rotary": "self.head_dim ** 0.5"}
    mutants += [Mutant(s, _SCALES[s][0], f"{_SCALES[s][3]} = {_SCALES[s][3]} // {f}", "floor division")
                for s, f in floors.items()]  # fmt: skip
    return mutants


_SOFTMAX_LINES = {
    "function": ("weights = torch.softmax(scores, dim=-1)", "weights", "scores"),
    "einsum": ("attn = F.softmax(logits, dim=-1)", "attn", "logits"),
    "four linears": ("weights = scores.softmax(dim=-1)", "weights", "scores"),
    "fused causal": ("att = F.softmax(att, dim=-1)", "att", "att"),
    "helpers": ("attn = dots.softmax(dim=-1)", "attn", "dots"),
    "grouped rotary": ("weights = torch.softmax(scores, dim=-1)", "weights", "scores"),
    "head list": ("wei = F.softmax(wei, dim=-1)", "wei", "wei"),
}


def _softmax_mutants() -> list[Mutant]:
    mutants = []
    for style, (line, out, scores) in _SOFTMAX_LINES.items():
        mutants.append(Mutant(style, line, line.replace("dim=-1", "dim=-2"), "softmax over queries"))
        mutants.append(Mutant(style, line, f"{out} = {scores}.softmax(-1).softmax(-1)", "double softmax"))
        if style in ("four linears", "fused causal", "helpers", "grouped rotary"):
            mutants.append(Mutant(style, line, line.replace("dim=-1", "dim=1"), "softmax over heads"))
        if style in ("function", "four linears"):
            mutants.append(
                Mutant(style, line, f"{out} = {scores} / {scores}.sum(-1, keepdim=True)", "sum instead of softmax")
            )
            mutants.append(Mutant(style, line, f"{out} = {scores} * 1", "no softmax"))
            mutants.append(Mutant(style, line, line.replace("dim=-1", "dim=0"), "softmax over the batch"))
    numpy_line = "weights = softmax(scores, axis=-1)"
    divided = "attn = attn / attn.sum(dim=-1, keepdim=True)"
    return [
        *mutants,
        Mutant("numpy", numpy_line, "weights = softmax(scores, axis=-2)", "softmax over queries"),
        Mutant("numpy", numpy_line, "weights = softmax(softmax(scores))", "double softmax"),
        Mutant("cross", divided, divided.replace("dim=-1", "dim=-2"), "softmax over queries"),
    ]


_OTHERS = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text(encoding="utf-8"))["mutants"]

MUTANTS = [*_scale_mutants(), *_softmax_mutants(), *(Mutant(**row) for row in _OTHERS)]
NO_LINE = {"mask ignored", "named causal but not causal", "output projection not used", "no softmax"}
"""Mistakes whose changed line does nothing, so that no operation can be pointed at."""

OTHER_LINES: dict[tuple[str, str], tuple[int, ...]] = {}
"""Other lines that are right as well, by style and mistake."""
