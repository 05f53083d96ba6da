"""NaN and infinity detection: stops at the step where they appear and names the first module that produced one."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput


class Diverged(InvalidInput):
    """Loss, gradient or weights became NaN or infinite."""

    code = "diverged"


def is_nonfinite(value: float) -> bool:
    """Return whether the value is NaN or infinite."""
    return not math.isfinite(value)


def check_weights_finite(model: nn.Module, step: int) -> None:
    """Raise if weights contain NaN or infinity, so that they are never saved."""
    for name, weight in model.state_dict().items():
        if not _is_finite(weight):
            raise diverged_error(step, f"the weights {name} contain NaN or infinity")


def find_nan_source(model: nn.Module, repeat_step: Callable[[], Tensor], step: int) -> Diverged:
    """Repeat the step with hooks on all modules and name the first source: weights, forward or backward pass."""
    for name, weight in model.named_parameters():
        if not _is_finite(weight):
            return diverged_error(step, f"the weights {name} contain NaN or infinity")
    for weight in model.parameters():
        weight.grad = None
    with _nonfinite_hooks(model) as nonfinite:
        loss = repeat_step()
        if nonfinite:
            return diverged_error(step, f"the first module with NaN or infinity in its output is {nonfinite[0]}")
        if not _is_finite(loss):
            return diverged_error(step, "the loss is not finite, although every module's output is")
        loss.backward()
    bad_gradients = [
        name for name, weight in model.named_parameters() if weight.grad is not None and not _is_finite(weight.grad)
    ]
    if not bad_gradients:
        return diverged_error(step, "the loss was not finite, but is when the step is repeated")
    module = (
        bad_gradients[-1].rpartition(".")[0] or type(model).__name__
    )  # the backward pass runs from the last parameter to the first
    return diverged_error(step, f"the first module with NaN or infinity in its gradient is {module}")


def diverged_error(step: int, reason: str) -> Diverged:
    """Return the error of a step, with what to do next."""
    hint = "Lower the learning rate (--set optimizer.lr=...), and continue from the last checkpoint with --resume."
    return Diverged(f"Step {step}: {reason}.", hint=hint)


@contextmanager
def _nonfinite_hooks(model: nn.Module) -> Iterator[list[str]]:
    """Collect the names of modules with non-finite outputs inside the block, in order of execution."""
    nonfinite: list[str] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():

            def check_output(_: nn.Module, inputs: object, output: object, name: str = name) -> None:
                if not all(map(_is_finite, _nested_tensors(output))):
                    nonfinite.append(name or type(model).__name__)

            hooks.callback(module.register_forward_hook(check_output).remove)
        yield nonfinite


def _nested_tensors(output: object) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, tuple | list):
        for item in output:
            yield from _nested_tensors(item)


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
