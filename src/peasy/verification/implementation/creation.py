"""Creation of the objects under test, with parameters that hide nothing."""

import contextlib
import re
import sys
from collections.abc import Mapping
from typing import Any

from peasy.verification.implementation.repeated_call import quiet
from peasy.verification.implementation.trace import Op


def instantiate(
    cls: type, arguments: Mapping[str, object], seed: int, positional: tuple[object, ...] = ()
) -> tuple[object, dict[int, list[Op]], dict[str, object]]:
    """Create an object; return it with the operations that made its buffers, and its buffers."""
    base = module_class()
    with quiet():
        if base is None or not issubclass(cls, base):
            made = cls(*positional, **arguments)
            with contextlib.suppress(Exception):
                made.eval()  # its own switch, if it has one
            return made, {}, {}
        import torch

        from peasy.verification.implementation.torch_trace import TorchRecorder, buffer_ops

        torch.manual_seed(seed)
        recorder = TorchRecorder({}, {}, snapshots=False)
        with recorder:
            made = cls(*positional, **arguments)
    made.eval()
    if any(p.is_floating_point() and p.dtype != torch.float32 for p in made.parameters()):
        made.float()
    tensors = dict(made.named_buffers())
    for name, submodule in made.named_modules():
        tensors |= {f"{name}.{key}": value for key, value in vars(submodule).items() if isinstance(value, torch.Tensor)}
    return made, buffer_ops(recorder, tensors), tensors


def module_class() -> Any:
    """Return `nn.Module`, None if torch is not loaded."""
    torch_nn = sys.modules.get("torch.nn")
    return None if torch_nn is None else torch_nn.Module


def is_module(value: object) -> bool:
    """Return whether this is an nn.Module."""
    base = module_class()
    return base is not None and isinstance(value, base)


def fill_parameters(module: Any, seed: int) -> None:
    """Fill all parameters with seeded, distinct, well-scaled numbers: nothing is zero, equal or an identity."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    kernels = {id(each.weight) for each in module.modules() if isinstance(each, torch.nn.modules.conv._ConvNd)}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not parameter.is_floating_point():
                continue
            if parameter.numel() <= 1:  # a gate that begins at 0 hides the attention; a logarithm of a scale does not
                if not re.search(r"log|scale|temp|tau", name):
                    parameter.masked_fill_(parameter == 0, 0.7)
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                value = noise * (parameter[0].numel() if id(parameter) in kernels else parameter.shape[-1]) ** -0.5
            elif name.endswith("weight") or "gamma" in name or "scale" in name:
                value = 1 + 0.2 * noise
            else:
                value = 0.2 * noise
            parameter.copy_(value.to(parameter.dtype))
