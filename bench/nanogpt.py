"""Reference GPT with nanoGPT's default architecture and training step, written from its description.

Learned positions, LayerNorm and linear layers without bias, GELU, fused query-key-value projection, torch's fused
attention, tied token embedding; weights initialised with standard deviation 0.02, residual projections smaller; AdamW
with betas 0.9 and 0.99, weight decay 0.1 on matrices, gradients clipped at 1; float32, not compiled. `fused`: torch's
fused AdamW, which nanoGPT uses on GPUs only.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of a batch."""

    num_layers: int
    num_heads: int
    d_model: int
    seq_len: int
    batch_size: int
    vocab_size: int = 65


class Block(nn.Module):
    """Pre-norm Transformer block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.d_model
        self.num_heads = shape.num_heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        projections = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        query, key, value = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in projections)
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(context.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x))))


class NanoGPT(nn.Module):
    """Decoder with tied embeddings; its forward pass returns the mean loss."""

    def __init__(self, shape: Shape, seed: int = 1337) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.token = nn.Embedding(shape.vocab_size, shape.d_model)
        self.position = nn.Embedding(shape.seq_len, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.norm = nn.LayerNorm(shape.d_model, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                is_residual = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(weight, 0.0, 0.02 / (math.sqrt(2 * shape.num_layers) if is_residual else 1))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.token.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:
    """Training steps on random windows of a text."""

    def __init__(self, model: NanoGPT, ids: Tensor, shape: Shape, *, fused: bool = False) -> None:
        self.model, self.ids, self.shape = model, ids, shape
        matrices = [weight for weight in model.parameters() if weight.ndim > 1]
        rest = [weight for weight in model.parameters() if weight.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=fused or None)

    def step(self, lr: float = 1e-3) -> float:
        starts = torch.randint(len(self.ids) - self.shape.seq_len, (self.shape.batch_size,))
        windows = torch.stack([self.ids[start : start + self.shape.seq_len + 1] for start in starts])
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        loss = self.model(windows[:, :-1], windows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())


def learning_rate(step: int, steps: int, warmup: int = 100, lr: float = 1e-3, min_lr: float = 1e-4) -> float:
    """Linear warmup, then cosine decay."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    return min_lr + 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) * (lr - min_lr)
