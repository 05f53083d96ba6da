"""The peer: a GPT as nanoGPT's defaults describe it, and its steps of training, written from those facts.

Learned places, LayerNorm and maps without bias, GELU, one map for query, key and value, torch's fused attention, tied
token vectors; weights of spread 0.02, those that add to the stream smaller; AdamW with betas 0.9 and 0.99, a decay of
0.1 on matrices, gradients clipped at 1; float32, nothing compiled. `fused` is torch's fused AdamW, which nanoGPT takes
on GPUs only.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """How large the model is, and how much it reads at once."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    vocabulary: int = 65


class Block(nn.Module):
    """Attention and feed-forward, each added to the stream after a norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.first, self.second = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.look, self.join = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.look(self.first(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.join(found.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Peer(nn.Module):
    """Token and place, blocks, norm, scores by the token vectors; gives the mean loss."""

    def __init__(self, shape: Shape, seed: int = 1337) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.place = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                adds = name.endswith(("join.weight", "down.weight"))
                nn.init.normal_(weight, 0.0, 0.02 / (math.sqrt(2 * shape.layers) if adds else 1))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        scores = functional.linear(self.norm(x), self.token.weight)
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


class Steps:
    """One step after the other, of windows drawn anywhere from the text."""

    def __init__(self, model: Peer, ids: Tensor, shape: Shape, *, fused: bool = False) -> None:
        self.model, self.ids, self.shape = model, ids, shape
        matrices = [weight for weight in model.parameters() if weight.ndim > 1]
        rest = [weight for weight in model.parameters() if weight.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=fused or None)

    def step(self, lr: float = 1e-3) -> float:
        starts = torch.randint(len(self.ids) - self.shape.context, (self.shape.batch,))
        windows = torch.stack([self.ids[start : start + self.shape.context + 1] for start in starts])
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        loss = self.model(windows[:, :-1], windows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())


def rate(step: int, steps: int, warm: int = 100, most: float = 1e-3, least: float = 1e-4) -> float:
    """A hundred steps up, then along a cosine down."""
    if step < warm:
        return most * (step + 1) / (warm + 1)
    return least + 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) * (most - least)
