"""Packed weights: the same model with its products laid out for decoding on this processor.

A packed model keeps the protocol, shares everything but its products with the model it came from, and only answers.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from peasy.errors import InvalidInput, MissingPart, did_you_mean
from peasy.generation import packed_compiled as compiled
from peasy.generation import packed_product as product
from peasy.generation.packed_check import Held, hold_bits
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.even import evenly
from peasy.nn.feedforward import FeedForward
from peasy.nn.head import Head

Kind = Literal["auto", "float32", "bfloat16", "int8", "int8-tensor"]
KINDS = ("auto", "float32", "bfloat16", "int8", "int8-tensor")


SMALL = 4_000_000
"""Below so many weights a step of float32 is not the time of reading them, and a kernel is not worth its loading."""


@dataclass(frozen=True)
class Packing:
    """What was chosen for a model, and why; `held` tells whether equal bits were asked for, found, and at what cost.

    `seconds` is what laying them out took: a kernel that this machine has never used is compiled first.
    """

    kind: str
    why: str
    nbytes: int
    held: Held | None = None
    compiled: bool = False
    seconds: float = 0.0

    def says(self) -> str:
        """One line about it."""
        bits = "bits depend on the batch" if self.held is None else self.held.says()
        how = ", compiled for this processor" if self.compiled else ""
        size = f"{self.nbytes / 2**20:.0f} MiB of products"
        return f"{self.kind} ({self.why}), {size}{how}, laid out in {self.seconds:.1f} s; {bits}"


def pack(model: Model, kind: Kind = "auto", *, deterministic: bool | None = None, kernel: bool | None = None) -> Model:
    """The model with packed products; `packing_of(packed).says()` tells what was chosen.

    float32 is exact; bfloat16 and int8 are near, int8 with a scale for each row, "int8-tensor" with one for all rows
    of a pass. "auto" takes bfloat16 where the processor has it, else float32. `deterministic`: the same prompt gives
    the same bits alone and in any batch, order and chunking, which is tried out here; None = where it can be had for
    at most 15 % of the time. `kernel`: products compiled by numba; None = where it is installed and of use.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> packed = pack(build(preset("gpt-tiny"), seed=1), "float32", deterministic=False)
    >>> packing_of(packed).kind
    'float32'
    """
    began, plan = time.perf_counter(), _choose(model, kind, deterministic, kernel)
    packed = _lay_out(model, plan)
    if plan.compiled and not _proved(packed):
        plan = _choose(model, kind, deterministic, kernel=False)
        plan = replace(plan, why=f"{plan.why}; the kernel is not exact here")
        packed = _lay_out(model, plan)
    nbytes = sum(part.nbytes() for part in packed.modules() if isinstance(part, product.Product))
    spent = time.perf_counter() - began
    packing = Packing(plan.kind, plan.why, nbytes, compiled=plan.compiled, seconds=spent)
    packed.packing = replace(packing, held=hold_bits(packed, deterministic)) if plan.invariant else packing
    return packed


def packing_of(model: Model) -> Packing | None:
    """How a model was packed; None for one that was not."""
    return getattr(model, "packing", None)


Makes = dict[str, product.Make]
"""How products are made: "any", and "bent" for what follows an activation."""


@dataclass(frozen=True)
class _Plan:
    """What will be made, and why; `invariant`: equal bits are wanted."""

    kind: str
    why: str
    make: Makes
    invariant: bool
    compiled: bool = False


def _choose(model: Model, kind: str, deterministic: bool | None, kernel: bool | None) -> _Plan:
    if kind not in KINDS:
        raise InvalidInput(
            f'There is no packing "{kind}".', hint=did_you_mean(kind, KINDS) or f"Known: {', '.join(KINDS)}."
        )
    why = "as asked"
    if kind == "auto":
        half = product.has_bfloat16() and deterministic is not True
        kind = "bfloat16" if half else "float32"
        why = "this processor has instructions for it" if half else "exact"
    if deterministic and kind not in ("float32", "int8"):
        raise InvalidInput(f"{kind} cannot give the same bits in every batch.", hint="float32 and int8 can.")
    invariant = kind in ("float32", "int8") and deterministic is not False
    if _compiles(model, kind, kernel):
        each = compiled.Whole if kind == "int8" else compiled.Floating
        return _Plan(kind, why, {"any": each, "bent": each}, invariant, compiled=True)
    if kind.startswith("int8"):
        return _Plan(kind, why, _bytes(kind), invariant)
    ready = product.Prepacked if product.has_onednn() else product.Plain
    if kind == "bfloat16" and not product.has_bfloat16():
        ready, why = product.Plain, "as asked; slow, since this processor has no instructions for it"
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    make: product.Make = lambda weight, bias: ready(weight.to(dtype), None if bias is None else bias.to(dtype))  # noqa: E731
    return _Plan(kind, why, {"any": make, "bent": make}, invariant)


def _compiles(model: Model, kind: str, kernel: bool | None) -> bool:
    """Are products compiled? Only those that the kernel has, and unless asked only where it pays."""
    if kind not in ("float32", "int8") or kernel is False:
        return False
    if kernel and not compiled.has_kernel():
        raise MissingPart("The kernel needs numba.", hint="pip install 'peasy[kernel]'")
    return compiled.has_kernel() and (bool(kernel) or kind == "int8" or model.count_parameters() >= SMALL)


@torch.no_grad()
def _lay_out(model: Model, plan: _Plan) -> Any:
    """The model with the products of a plan, and attention that goes with them."""
    packed = _share(model, plan.make).eval()
    looker = compiled.Looker() if plan.compiled else None
    for part in list(packed.modules()):
        if isinstance(part, FeedForward):
            part.bend = _bend(part, plan)
        if isinstance(part, Attention):
            part.apart = plan.invariant
            part.looker = looker if part.d_head % 8 == 0 and not part.softcap else None
        if isinstance(part, Head):
            part.product = _head(packed, part, plan.make["any"])
    return packed


def _bend(part: Any, plan: _Plan) -> Callable[[torch.Tensor], torch.Tensor]:
    """The activation: done by the product before it, or evenly where equal bits are wanted."""
    before = part.joined or part.up
    if plan.compiled and before.bend_too(part.settings.activation, part.settings.width):
        return _as_it_is
    return partial(evenly, part.bend) if plan.invariant else part.bend


def _as_it_is(x: torch.Tensor) -> torch.Tensor:
    return x


@torch.inference_mode()
def _proved(packed: Any) -> bool:
    """Does the kernel multiply as it should? Each shape is tried once."""
    parts = {part.shape: part for part in packed.modules() if isinstance(part, compiled.Compiled)}
    return all(part.agrees() for part in parts.values())


def _bytes(kind: str) -> Makes:
    if not product.has_bytes():
        raise MissingPart("This build of torch cannot multiply in 8 bits.", hint="Choose float32.")
    if kind == "int8-tensor":
        return {"any": product.ByTensor, "bent": product.ByTensor}
    return {"any": product.ByRow, "bent": product.ByRowFromLeast}


def _share(module: Any, make: Makes) -> Any:
    """The same module once more, with packed products; all other parameters are shared."""
    twin = object.__new__(type(module))
    twin.__dict__ = module.__dict__ | {"_modules": dict(module._modules)}
    if isinstance(module, Attention) and not module.cross:
        _join(twin, make["any"], "query", "key", "value")
    if isinstance(module, FeedForward) and module.gate is not None:
        _join(twin, make["any"], "gate", "up")
    norms = make["any"] in (compiled.Whole, compiled.Floating) and not isinstance(module, Attention)
    for name, child in twin._modules.items():
        if type(child) is nn.Linear:
            bent = isinstance(module, FeedForward) and name == "down"
            twin._modules[name] = make["bent" if bent else "any"](child.weight, child.bias)
        elif norms and isinstance(child, nn.LayerNorm | nn.RMSNorm) and child.eps is not None:
            twin._modules[name] = compiled.CompiledNorm(child)
        elif child is not None and not isinstance(child, product.Product):
            twin._modules[name] = _share(child, make)
    return twin


def _join(twin: Any, make: product.Make, *names: str) -> None:
    """Several maps of the same vector become one product."""
    maps = [twin._modules[name] for name in names]
    bias = None if maps[0].bias is None else torch.cat([each.bias for each in maps])
    twin.joined = make(torch.cat([each.weight for each in maps]), bias)
    for name in names:
        twin._modules[name] = None


def _head(model: Any, head: Head, make: product.Make) -> product.Product:
    """The head's own weights, or the token vectors it borrows."""
    if head.weight is not None:
        return make(head.weight, head.bias)
    embedding = getattr(model, "writing", model.embedding)
    return make(getattr(embedding, "token", embedding).weight, head.bias)
