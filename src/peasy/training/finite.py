"""NaN and infinity detection: stops at the step where they appear and names the first module that produced one."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput


class Diverged(InvalidInput):
    """Loss, gradient or weights became NaN or infinite."""

    code = "diverged"


def broken(number: float) -> bool:
    """Return whether the value is NaN or infinite."""
    return not math.isfinite(number)


def check_weights(model: nn.Module, step: int) -> None:
    """Raise if weights contain NaN or infinity, so that they are never saved."""
    for name, weight in model.state_dict().items():
        if not _finite(weight):
            raise Diverged(f"Step {step}: the weights {name} contain NaN or infinity.", hint=_ADVICE)


def blame(model: nn.Module, again: Callable[[], Tensor], step: int) -> Diverged:
    """Repeat the step with hooks on all modules and name the first source: weights, forward or backward pass."""
    for name, weight in model.named_parameters():
        if not _finite(weight):
            return _diverged(step, f"the weights {name} contain NaN or infinity")
    for weight in model.parameters():
        weight.grad = None
    with _watched(model) as nonfinite:
        loss = again()
        if nonfinite:
            return _diverged(step, f"the first module with NaN or infinity in its output is {nonfinite[0]}")
        if not _finite(loss):
            return _diverged(step, "the loss is not finite, although every module's output is")
        loss.backward()
    bad_gradients = [
        name for name, weight in model.named_parameters() if weight.grad is not None and not _finite(weight.grad)
    ]
    if not bad_gradients:
        return _diverged(step, "the loss was not finite, but is when the step is repeated")
    module = (
        bad_gradients[-1].rpartition(".")[0] or type(model).__name__
    )  # the backward pass runs from the last parameter to the first
    return _diverged(step, f"the first module with NaN or infinity in its gradient is {module}")


_ADVICE = "Lower the learning rate (--set optimizer.lr=...), and continue from the last checkpoint with --resume."


def _diverged(step: int, what: str) -> Diverged:
    return Diverged(f"Step {step}: {what}.", hint=_ADVICE)


def _watched(model: nn.Module) -> "_Watch":
    return _Watch(model)


class _Watch(ExitStack):
    """Forward hooks that collect the names of modules with non-finite outputs, in order of execution."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def __enter__(self) -> list[str]:  # type: ignore[override]
        super().__enter__()
        nonfinite: list[str] = []
        for name, module in self.model.named_modules():

            def check_output(_: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
                if not all(map(_finite, _tensors(output))):
                    nonfinite.append(name or type(self.model).__name__)

            self.callback(module.register_forward_hook(check_output).remove)
        return nonfinite


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for item in result:
            yield from _tensors(item)


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
