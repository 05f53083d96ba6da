"""NaN and infinity are caught at their step, and the first module that made one is named."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput


class Diverged(InvalidInput):
    """A number of the run stopped being one."""

    code = "diverged"


def broken(number: float) -> bool:
    """Whether a number is none any more."""
    return not math.isfinite(number)


def check_weights(model: nn.Module, step: int) -> None:
    """Refuse weights that hold NaN or infinity: they are never saved."""
    for name, weight in model.state_dict().items():
        if not _finite(weight):
            raise Diverged(f"Step {step}: the weights {name} hold NaN or infinity.", hint=_ADVICE)


def blame(model: nn.Module, again: Callable[[], Tensor], step: int) -> Diverged:
    """Run the step again with everybody watched, and say who was first: in the weights, forwards, or backwards."""
    for name, weight in model.named_parameters():
        if not _finite(weight):
            return _diverged(step, f"the weights {name} hold NaN or infinity")
    for weight in model.parameters():
        weight.grad = None
    with _watched(model) as first:
        loss = again()
        if first:
            return _diverged(step, f"the first module with NaN or infinity in its result is {first[0]}")
        if not _finite(loss):
            return _diverged(step, "the loss is not finite, though every module's result is")
        loss.backward()
    wrong = [name for name, weight in model.named_parameters() if weight.grad is not None and not _finite(weight.grad)]
    if not wrong:
        return _diverged(step, "the loss was not finite, and is when the step is repeated")
    owner = wrong[-1].rpartition(".")[0] or type(model).__name__  # gradients flow from the end to the beginning
    return _diverged(step, f"the first module with NaN or infinity in its gradient is {owner}")


_ADVICE = "Lower the rate (--set optimizer.lr=...), and go on from the last checkpoint with --resume."


def _diverged(step: int, what: str) -> Diverged:
    return Diverged(f"Step {step}: {what}.", hint=_ADVICE)


def _watched(model: nn.Module) -> "_Watch":
    return _Watch(model)


class _Watch(ExitStack):
    """While it is open, the names of modules whose results are not finite are collected, the first one first."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def __enter__(self) -> list[str]:  # type: ignore[override]
        super().__enter__()
        found: list[str] = []
        for name, module in self.model.named_modules():

            def look(_: nn.Module, given: Any, result: Any, name: str = name) -> None:
                if not all(map(_finite, _tensors(result))):
                    found.append(name or type(self.model).__name__)

            self.callback(module.register_forward_hook(look).remove)
        return found


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for each in result:
            yield from _tensors(each)


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
