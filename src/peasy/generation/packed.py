"""Weight packing: a copy of a model whose linear layers are prepacked for fast decoding on this CPU.

A packed model has the same interface, shares all other parameters with the original, and is for inference only.
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
"""Smaller float32 models are not bound by memory bandwidth, and loading the numba kernel does not pay."""


@dataclass(frozen=True)
class Packing:
    """Packing of a model and why it was chosen; `batch_invariance`: result of the check (None = not requested).

    `seconds`: packing time, including the compilation of a kernel that is used for the first time on this machine.
    """

    kind: str
    why: str
    nbytes: int
    held: Held | None = None
    compiled: bool = False
    seconds: float = 0.0

    def says(self) -> str:
        """Return a one-line description."""
        invariance = "not batch-invariant" if self.held is None else self.held.says()
        kernel = ", numba kernel" if self.compiled else ""
        size = f"{self.nbytes / 2**20:.0f} MiB of linear layers"
        return f"{self.kind} ({self.why}), {size}{kernel}, packed in {self.seconds:.1f} s; {invariance}"


def pack(model: Model, kind: Kind = "auto", *, deterministic: bool | None = None, kernel: bool | None = None) -> Model:
    """Return a copy of the model with packed linear layers; `packing_of(packed).summary()` describes the choice.

    float32 is exact; bfloat16 and int8 are approximate: "int8" scales activations per row, "int8-tensor" per tensor.
    "auto" takes bfloat16 if the CPU supports it, else float32. `deterministic`: batch-invariant, the same prompt gives
    the same bits in any batch, order and chunking (checked here); None = if it costs at most 15 % of prefill time.
    `kernel`: linear layers compiled by numba; None = if installed and useful.

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
        plan = replace(plan, why=f"{plan.why}; the kernel is not exact on this CPU")
        packed = _lay_out(model, plan)
    nbytes = sum(module.nbytes() for module in packed.modules() if isinstance(module, product.Product))
    seconds = time.perf_counter() - began
    packing = Packing(plan.kind, plan.why, nbytes, compiled=plan.compiled, seconds=seconds)
    packed.packing = replace(packing, held=hold_bits(packed, deterministic)) if plan.invariant else packing
    return packed


def packing_of(model: Model) -> Packing | None:
    """Return the packing of a model, or None if it is not packed."""
    return getattr(model, "packing", None)


Makes = dict[str, product.Make]
"""Constructors of linear layers: "any", and "after_activation" for inputs that follow an activation."""


@dataclass(frozen=True)
class _Plan:
    """Chosen packing, its reason and constructors; `batch_invariant`: invariance is requested."""

    kind: str
    why: str
    make: Makes
    invariant: bool
    compiled: bool = False


def _choose(model: Model, kind: str, deterministic: bool | None, kernel: bool | None) -> _Plan:
    if kind not in KINDS:
        raise InvalidInput(
            f'There is no packing "{kind}".', hint=did_you_mean(kind, KINDS) or f"Choose from {', '.join(KINDS)}."
        )
    why = "requested"
    if kind == "auto":
        use_bfloat16 = product.has_bfloat16() and deterministic is not True
        kind = "bfloat16" if use_bfloat16 else "float32"
        why = "supported by this CPU" if use_bfloat16 else "exact"
    if deterministic and kind not in ("float32", "int8"):
        raise InvalidInput(f"{kind} cannot be batch-invariant.", hint="Choose float32 or int8.")
    invariant = kind in ("float32", "int8") and deterministic is not False
    if _compiles(model, kind, kernel):
        factory = compiled.Whole if kind == "int8" else compiled.Floating
        return _Plan(kind, why, {"any": factory, "after_activation": factory}, invariant, compiled=True)
    if kind.startswith("int8"):
        return _Plan(kind, why, _bytes(kind), invariant)
    linear = product.Prepacked if product.has_onednn() else product.Plain
    if kind == "bfloat16" and not product.has_bfloat16():
        linear, why = product.Plain, "requested; slow, this CPU has no bfloat16 instructions"
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    make: product.Make = lambda weight, bias: linear(weight.to(dtype), None if bias is None else bias.to(dtype))  # noqa: E731
    return _Plan(kind, why, {"any": make, "after_activation": make}, invariant)


def _compiles(model: Model, kind: str, kernel: bool | None) -> bool:
    """True if the numba kernel should be used: it supports the dtype, and is requested or pays off."""
    if kind not in ("float32", "int8") or kernel is False:
        return False
    if kernel and not compiled.has_kernel():
        raise MissingPart("The kernel needs numba.", hint="pip install 'peasy[kernel]'")
    return compiled.has_kernel() and (bool(kernel) or kind == "int8" or model.count_parameters() >= SMALL)


@torch.no_grad()
def _lay_out(model: Model, plan: _Plan) -> Any:
    """Return the packed copy of the model, with matching activations and attention backend."""
    packed = _share(model, plan.make).eval()
    backend = compiled.Looker() if plan.compiled else None
    for module in list(packed.modules()):
        if isinstance(module, FeedForward):
            module.bend = _bend(module, plan)
        if isinstance(module, Attention):
            module.apart = plan.invariant
            module.looker = backend if module.d_head % 8 == 0 and not module.softcap else None
        if isinstance(module, Head):
            module.product = _head(packed, module, plan.make["any"])
    return packed


def _bend(part: Any, plan: _Plan) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the activation: fused into the linear layer before it, or batch-invariant if requested."""
    linear = part.joined or part.up
    if plan.compiled and linear.bend_too(part.settings.activation, part.settings.width):
        return _as_it_is
    return partial(evenly, part.bend) if plan.invariant else part.bend


def _as_it_is(x: torch.Tensor) -> torch.Tensor:
    return x


@torch.inference_mode()
def _proved(packed: Any) -> bool:
    """True if the kernel's results are correct; each shape is checked once."""
    by_shape = {module.shape: module for module in packed.modules() if isinstance(module, compiled.Compiled)}
    return all(module.agrees() for module in by_shape.values())


def _bytes(kind: str) -> Makes:
    if not product.has_bytes():
        raise MissingPart("This build of torch has no int8 linear layers.", hint="Choose float32.")
    if kind == "int8-tensor":
        return {"any": product.ByTensor, "after_activation": product.ByTensor}
    return {"any": product.ByRow, "after_activation": product.ByRowFromLeast}


def _share(module: Any, make: Makes) -> Any:
    """Return a copy of the module with packed linear layers; all other parameters are shared."""
    twin = object.__new__(type(module))
    twin.__dict__ = module.__dict__ | {"_modules": dict(module._modules)}
    if isinstance(module, Attention) and not module.cross:
        _join(twin, make["any"], "query", "key", "value")
    if isinstance(module, FeedForward) and module.gate is not None:
        _join(twin, make["any"], "gate", "up")
    compile_norms = make["any"] in (compiled.Whole, compiled.Floating) and not isinstance(module, Attention)
    for name, child in twin._modules.items():
        if type(child) is nn.Linear:
            after_activation = isinstance(module, FeedForward) and name == "down"
            factory = make["after_activation" if after_activation else "any"]
            twin._modules[name] = factory(child.weight, child.bias)
        elif compile_norms and isinstance(child, nn.LayerNorm | nn.RMSNorm) and child.eps is not None:
            twin._modules[name] = compiled.CompiledNorm(child)
        elif child is not None and not isinstance(child, product.Product):
            twin._modules[name] = _share(child, make)
    return twin


def _join(twin: Any, make: product.Make, *names: str) -> None:
    """Fuse several linear layers with the same input into one (q, k, v; gate, up)."""
    linears = [twin._modules[name] for name in names]
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    twin.joined = make(torch.cat([linear.weight for linear in linears]), bias)
    for name in names:
        twin._modules[name] = None


def _head(model: Any, head: Head, make: product.Make) -> product.Product:
    """Pack the LM head: its own weights, or the tied token embeddings."""
    if head.weight is not None:
        return make(head.weight, head.bias)
    embedding = getattr(model, "writing", model.embedding)
    return make(getattr(embedding, "token", embedding).weight, head.bias)
