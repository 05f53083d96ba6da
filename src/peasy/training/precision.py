"""Which numbers a model is trained with: bfloat16 products where the processor has them, float32 elsewhere."""

import contextlib
from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16"]


def choose_precision(asked: Precision, device: str = "cpu") -> Literal["float32", "bfloat16"]:
    """What "auto" means here. On a processor without bfloat16 in its hardware, float32 is faster."""
    if asked != "auto":
        return asked
    return "bfloat16" if has_bfloat16(device) else "float32"


def has_bfloat16(device: str = "cpu") -> bool:
    """Whether products in bfloat16 are done by the hardware."""
    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if device != "cpu":
        return False
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask is not None and ask() for ask in asked)


def cast(precision: str, device: str = "cpu") -> contextlib.AbstractContextManager[object]:
    """Inside it, matrix products run in this precision; weights and sums stay float32."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)
