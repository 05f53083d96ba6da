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

from peasy.errors import InvalidInput, MissingExtra, did_you_mean
from peasy.generation import packed_linear, packed_numba
from peasy.generation.batch_invariance import BatchInvariance, ensure_batch_invariance
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.batch_invariant import batch_invariant
from peasy.nn.feedforward import FeedForward
from peasy.nn.lm_head import LMHead

PackingKind = Literal["auto", "float32", "bfloat16", "int8", "int8-tensor"]
PACKING_KINDS = ("auto", "float32", "bfloat16", "int8", "int8-tensor")


MIN_KERNEL_PARAMETERS = 4_000_000
"""Smaller float32 models are not bound by memory bandwidth, and loading the numba kernel does not pay."""


@dataclass(frozen=True)
class Packing:
    """Packing of a model and why it was chosen; `batch_invariance`: result of the check (None = not requested).

    `seconds`: packing time, including the compilation of a kernel that is used for the first time on this machine.
    """

    kind: str
    reason: str
    nbytes: int
    batch_invariance: BatchInvariance | None = None
    compiled: bool = False
    seconds: float = 0.0

    def summary(self) -> str:
        """Return a one-line description."""
        invariance = "not batch-invariant" if self.batch_invariance is None else self.batch_invariance.summary()
        kernel = ", numba kernel" if self.compiled else ""
        size = f"{self.nbytes / 2**20:.0f} MiB of linear layers"
        return f"{self.kind} ({self.reason}), {size}{kernel}, packed in {self.seconds:.1f} s; {invariance}"


def pack(
    model: Model, kind: PackingKind = "auto", *, deterministic: bool | None = None, kernel: bool | None = None
) -> Model:
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
    began, plan = time.perf_counter(), _choose_packing(model, kind, deterministic, kernel)
    packed = _apply_packing(model, plan)
    if plan.compiled and not _kernel_is_exact(packed):
        plan = _choose_packing(model, kind, deterministic, kernel=False)
        plan = replace(plan, reason=f"{plan.reason}; the kernel is not exact on this CPU")
        packed = _apply_packing(model, plan)
    nbytes = sum(module.nbytes() for module in packed.modules() if isinstance(module, packed_linear.PackedLinear))
    seconds = time.perf_counter() - began
    packing = Packing(plan.kind, plan.reason, nbytes, compiled=plan.compiled, seconds=seconds)
    packed.packing = (
        replace(packing, batch_invariance=ensure_batch_invariance(packed, deterministic))
        if plan.batch_invariant
        else packing
    )
    return packed


def packing_of(model: Model) -> Packing | None:
    """Return the packing of a model, or None if it is not packed."""
    return getattr(model, "packing", None)


LinearFactories = dict[str, packed_linear.LinearFactory]
"""Constructors of linear layers: "any", and "after_activation" for inputs that follow an activation."""


@dataclass(frozen=True)
class _PackingPlan:
    """Chosen packing, its reason and constructors; `batch_invariant`: invariance is requested."""

    kind: str
    reason: str
    factories: LinearFactories
    batch_invariant: bool
    compiled: bool = False


def _choose_packing(model: Model, kind: str, deterministic: bool | None, kernel: bool | None) -> _PackingPlan:
    if kind not in PACKING_KINDS:
        raise InvalidInput(
            f'There is no packing "{kind}".',
            hint=did_you_mean(kind, PACKING_KINDS) or f"Choose from {', '.join(PACKING_KINDS)}.",
        )
    why = "requested"
    if kind == "auto":
        use_bfloat16 = packed_linear.has_bfloat16() and deterministic is not True
        kind = "bfloat16" if use_bfloat16 else "float32"
        why = "supported by this CPU" if use_bfloat16 else "exact"
    if deterministic and kind not in ("float32", "int8"):
        raise InvalidInput(f"{kind} cannot be batch-invariant.", hint="Choose float32 or int8.")
    invariant = kind in ("float32", "int8") and deterministic is not False
    if _use_kernel(model, kind, kernel):
        factory = packed_numba.Int8Kernel if kind == "int8" else packed_numba.Float32Kernel
        return _PackingPlan(kind, why, {"any": factory, "after_activation": factory}, invariant, compiled=True)
    if kind.startswith("int8"):
        return _PackingPlan(kind, why, _int8_factories(kind), invariant)
    linear = packed_linear.OneDNNLinear if packed_linear.has_onednn() else packed_linear.TorchLinear
    if kind == "bfloat16" and not packed_linear.has_bfloat16():
        linear, why = packed_linear.TorchLinear, "requested; slow, this CPU has no bfloat16 instructions"
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32

    def make(weight: torch.Tensor, bias: torch.Tensor | None) -> packed_linear.PackedLinear:
        return linear(weight.to(dtype), None if bias is None else bias.to(dtype))

    return _PackingPlan(kind, why, {"any": make, "after_activation": make}, invariant)


def _use_kernel(model: Model, kind: str, kernel: bool | None) -> bool:
    """True if the numba kernel should be used: it supports the dtype, and is requested or pays off."""
    if kind not in ("float32", "int8") or kernel is False:
        return False
    if kernel and not packed_numba.has_numba():
        raise MissingExtra("The kernel needs numba.", hint="pip install 'peasy[kernel]'")
    return packed_numba.has_numba() and (
        bool(kernel) or kind == "int8" or model.count_parameters() >= MIN_KERNEL_PARAMETERS
    )


@torch.no_grad()
def _apply_packing(model: Model, plan: _PackingPlan) -> Any:
    """Return the packed copy of the model, with matching activations and attention backend."""
    packed = _packed_copy(model, plan.factories).eval()
    backend = packed_numba.PackedVarlenAttention() if plan.compiled else None
    for module in list(packed.modules()):
        if isinstance(module, FeedForward):
            module.activation = _activation(module, plan)
        if isinstance(module, Attention):
            module.batch_invariant = plan.batch_invariant
            module.backend = backend if module.d_head % 8 == 0 and not module.softcap else None
        if isinstance(module, LMHead):
            module.packed_linear = _pack_lm_head(packed, module, plan.factories["any"])
    return packed


def _activation(feedforward: Any, plan: _PackingPlan) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the activation: fused into the linear layer before it, or batch-invariant if requested."""
    linear = feedforward.gate_up_proj or feedforward.up
    if plan.compiled and linear.fuse_activation(feedforward.settings.activation, feedforward.settings.d_ff):
        return _identity
    return partial(batch_invariant, feedforward.activation) if plan.batch_invariant else feedforward.activation


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


@torch.inference_mode()
def _kernel_is_exact(packed: Any) -> bool:
    """True if the kernel's results are correct; each shape is checked once."""
    by_shape = {module.shape: module for module in packed.modules() if isinstance(module, packed_numba.KernelLinear)}
    return all(module.is_exact() for module in by_shape.values())


def _int8_factories(kind: str) -> LinearFactories:
    if not packed_linear.has_int8():
        raise MissingExtra("This build of torch has no int8 linear layers.", hint="Choose float32.")
    if kind == "int8-tensor":
        return {"any": packed_linear.Int8PerTensor, "after_activation": packed_linear.Int8PerTensor}
    return {"any": packed_linear.Int8PerRow, "after_activation": packed_linear.Int8PerRowAsymmetric}


def _packed_copy(module: Any, factories: LinearFactories) -> Any:
    """Return a copy of the module with packed linear layers; all other parameters are shared."""
    twin = object.__new__(type(module))
    twin.__dict__ = module.__dict__ | {"_modules": dict(module._modules)}
    if isinstance(module, Attention) and not module.is_cross:
        twin.qkv_proj = _fuse_linears(twin, factories["any"], "query", "key", "value")
    if isinstance(module, FeedForward) and module.gate is not None:
        twin.gate_up_proj = _fuse_linears(twin, factories["any"], "gate", "up")
    compile_norms = factories["any"] in (packed_numba.Int8Kernel, packed_numba.Float32Kernel) and not isinstance(
        module, Attention
    )
    for name, child in twin._modules.items():
        if type(child) is nn.Linear:
            after_activation = isinstance(module, FeedForward) and name == "down"
            factory = factories["after_activation" if after_activation else "any"]
            twin._modules[name] = factory(child.weight, child.bias)
        elif compile_norms and isinstance(child, nn.LayerNorm | nn.RMSNorm) and child.eps is not None:
            twin._modules[name] = packed_numba.KernelNorm(child)
        elif child is not None and not isinstance(child, packed_linear.PackedLinear):
            twin._modules[name] = _packed_copy(child, factories)
    return twin


def _fuse_linears(module: Any, factory: packed_linear.LinearFactory, *names: str) -> packed_linear.PackedLinear:
    """Fuse several linear layers with the same input into one (q, k, v; gate, up)."""
    linears = [module._modules[name] for name in names]
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    fused = factory(torch.cat([linear.weight for linear in linears]), bias)
    for name in names:
        module._modules[name] = None
    return fused


def _pack_lm_head(model: Any, head: LMHead, factory: packed_linear.LinearFactory) -> packed_linear.PackedLinear:
    """Pack the LM head: its own weights, or the tied token embeddings."""
    if head.weight is not None:
        return factory(head.weight, head.bias)
    embedding = getattr(model, "decoder_embedding", model.embedding)
    return factory(getattr(embedding, "token", embedding).weight, head.bias)
