"""Functions of einops, xformers and flash_attn, for examined code that imports them where they are not installed."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def rearrange(x: Any, pattern: str, /, **sizes: int) -> object:
    """Return a tensor or array, or a list of them as one, with its axes split, merged and in another order."""
    if isinstance(x, list | tuple):
        x = torch.stack(list(x)) if isinstance(x[0], torch.Tensor) else np.stack(list(x))
    dots = range(x.ndim - len(re.findall(r"\([^)]*\)|\w+", pattern.partition("->")[0])))
    sides = pattern.replace("...", " ".join(f"axis_{n}" for n in dots)).split("->")
    left, right = ([re.findall(r"\w+", axis) for axis in re.findall(r"\([^)]*\)|\w+", side)] for side in sides)
    sizes = {"1": 1, **sizes}
    for group, size in zip(left, x.shape, strict=True):
        unknown = [name for name in group if name not in sizes]
        known = math.prod(sizes[name] for name in group if name in sizes)
        if len(unknown) > 1 or known == 0 or (size % known if unknown else size != known):
            raise ValueError(f'A tensor of shape {tuple(x.shape)} does not fit "{pattern}".')
        sizes |= dict.fromkeys(unknown, size // known)
    names = [name for group in left for name in group if name != "1"]
    order = [names.index(name) for group in right for name in group if name != "1"]
    split = x.reshape([sizes[name] for name in names])
    split = split.permute(order) if isinstance(x, torch.Tensor) else split.transpose(order)
    return split.reshape([math.prod(sizes[name] for name in group) for group in right])


def rearrange_many(tensors: Any, pattern: str, /, **sizes: int) -> object:
    """Yield several tensors rearranged in the same way, as einops_exts does."""
    return (rearrange(x, pattern, **sizes) for x in tensors)


def repeat(x: Any, pattern: str, /, **sizes: int) -> object:
    """Return a tensor or array repeated along the axes that only the right side of the pattern has."""
    left, right = pattern.split("->")
    right = re.sub(r"\b([2-9]|\d\d+)\b", r"repeats_\1", right)
    sizes |= {f"repeats_{number}": int(number) for number in re.findall(r"repeats_(\d+)", right)}
    new = [name for name in dict.fromkeys(re.findall(r"[^\W\d]\w*", right)) if not re.search(rf"\b{name}\b", left)]
    shape = [*(sizes[name] for name in new), *x.shape]
    wide = x.expand(shape) if isinstance(x, torch.Tensor) else np.broadcast_to(x, shape, subok=True)
    return rearrange(wide, f"{' '.join(new)} {left}->{right}", **sizes)


def reduce(x: object, pattern: str, reduction: str, /, **sizes: int) -> Any:
    """Return a tensor or array without the axes that only the left side has: their mean, sum, max or min."""
    left, right = pattern.split("->")
    gone = [name for name in re.findall(r"[^\W\d]\w*", left) if not re.search(rf"\b{name}\b", right)]
    merged = rearrange(x, f"{left}->{right} ({' '.join(gone)})", **sizes)
    tensor_names = {"max": "amax", "min": "amin"} if isinstance(merged, torch.Tensor) else {}
    return getattr(merged, tensor_names.get(reduction, reduction))(axis=-1)


def einsum(*arguments: Any) -> torch.Tensor:
    """Return the sum of products by a pattern with words for axes, the last argument or (in fancy_einsum) the first."""
    *tensors, pattern = arguments if isinstance(arguments[-1], str) else (*arguments[1:], arguments[0])
    names = dict.fromkeys(re.findall(r"\w+", pattern))
    letters = dict(zip(names, "abcdefghijklmnopqrstuvwxyz", strict=False))
    return torch.einsum(re.sub(r"\w+", lambda word: letters[word[0]], pattern), *tensors)


class Rearrange(nn.Module):
    """Layer that rearranges."""

    def __init__(self, pattern: str, /, **sizes: int) -> None:
        super().__init__()
        self.pattern, self.sizes = pattern, sizes

    def forward(self, x: torch.Tensor) -> object:
        """Return the tensor rearranged."""
        return rearrange(x, self.pattern, **self.sizes)


def memory_efficient_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None = None, p: float = 0.0,
    scale: float | None = None, op: object = None,
) -> torch.Tensor:  # fmt: skip
    """Return fused attention with the heads after the tokens; without heads if there are three axes."""
    q, k, v = (x.transpose(1, 2) if x.ndim == 4 else x for x in (query, key, value))
    result = scaled_dot_product_attention(q, k, v, attn_bias, scale=scale)
    return result.transpose(1, 2).contiguous() if result.ndim == 4 else result


def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return fused attention with the heads after the tokens; causal masks end with the last key."""
    allowed = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1]) if causal else None
    return memory_efficient_attention(q, k, v, allowed, scale=softmax_scale)


KNOWN: dict[str, tuple[Callable[..., object], ...]] = {
    "einops": (rearrange, repeat, reduce, einsum, Rearrange),
    "einops_exts": (rearrange_many,),
    "fancy_einsum": (einsum,),
    "xformers": (memory_efficient_attention,),
    "flash_attn": (flash_attn_func,),
}
"""Functions by the package whose they are: another package's function of the same name may do something else."""


class ParallelLinear(nn.Linear):
    """Linear layer that is spread over several devices, on one."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, **options: object) -> None:
        super().__init__(inputs, outputs, bias)


class TransposedLinear(nn.Module):
    """Linear layer whose weight is [inputs, outputs]: Conv1D of transformers, which has moved it."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(inputs, outputs)), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product with the weight, and the bias."""
        return x @ self.weight + self.bias


KNOWN_ANYWHERE: dict[str, object] = {
    "trunc_normal_": nn.init.trunc_normal_, "lecun_normal_": nn.init.normal_, "DropPath": nn.Identity,
    "Conv1D": TransposedLinear, "to_2tuple": lambda value: value if isinstance(value, tuple) else (value, value),
    "Module": nn.Module, "LightningModule": nn.Module, "ColumnParallelLinear": ParallelLinear,
    "RowParallelLinear": ParallelLinear, "get_model_parallel_world_size": lambda: 1,
    "use_fused_attn": lambda **options: True, "print0": print, "_LinearWithBias": nn.Linear,
}  # fmt: skip
"""Objects that several packages have under the same name."""
