"""Mixed precision: bfloat16 autocast if the hardware supports it, else float32."""

import contextlib
from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16"]


def choose_precision(precision: Precision, device: str = "cpu") -> Literal["float32", "bfloat16"]:
    """Resolve "auto". On a CPU without bfloat16 instructions, float32 is faster."""
    if precision != "auto":
        return precision
    return "bfloat16" if has_bfloat16(device) else "float32"


def has_bfloat16(device: str = "cpu") -> bool:
    """Return whether the hardware has bfloat16 matrix products."""
    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if device != "cpu":
        return False
    checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(is_supported is not None and is_supported() for is_supported in checks)


def autocast(precision: str, device: str = "cpu") -> contextlib.AbstractContextManager[object]:
    """Autocast context: matrix products in this precision; weights and reductions stay float32."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)
