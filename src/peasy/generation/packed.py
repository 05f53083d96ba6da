"""Weight packing: a copy of a model whose linear layers are prepacked for fast decoding on this CPU.

A packed model has the same interface, shares all other parameters with the original, and is for inference only.
"""

import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import torch
from torch import nn

from peasy.errors import InvalidInput, MissingExtra, did_you_mean
from peasy.extras import install_line
from peasy.generation import packed_linear, packed_numba
from peasy.generation.batch_invariance import BatchInvariance, check_batch_invariance, linear_kind, pad_small_batches
from peasy.generation.machine_measurements import remembered
from peasy.generation.sampling_params import WeightFormat
from peasy.models.baselines import NGramModel
from peasy.models.build import build
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.attention_backends import FUSED, ROW_WISE
from peasy.nn.feedforward import FeedForward
from peasy.nn.functional import HAS_BFLOAT16, batch_invariant
from peasy.nn.lm_head import LMHead
from peasy.nn.stack import Stack

_LOG = logging.getLogger(__name__)

_MIN_KERNEL_PARAMETERS = 4_000_000
"""Smaller float32 models are not bound by memory bandwidth, and loading the numba kernel does not pay."""


@dataclass(frozen=True)
class Packing:
    """Packing of a model and why it was chosen; `batch_invariance`: result of the check (None = not requested).

    `seconds`: packing time, with the checks and the compilation of a kernel when it is first used on this machine.
    """

    kind: str
    reason: str
    nbytes: int
    batch_invariance: BatchInvariance | None = None
    compiled: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        invariance = "not batch-invariant" if self.batch_invariance is None else self.batch_invariance.summary()
        kernel = ", numba kernel" if self.compiled else ""
        size = f"{self.nbytes / 2**20:.0f} MiB of linear layers"
        return f"{self.kind} ({self.reason}), {size}{kernel}, packed in {self.seconds:.1f} s; {invariance}"


def pack(
    model: Model, kind: WeightFormat = "auto", *, deterministic: bool | None = None, kernel: bool | None = None
) -> Model:
    """Return a copy of the model with packed linear layers; `str(packing_of(packed))` describes the choice.

    float32 is exact; bfloat16 and int8 are approximate. "auto" takes bfloat16 if the CPU supports it, else float32.
    `deterministic`: batch-invariant, the same prompt gives the same bits in any batch, order and chunking (checked once
    per machine, `PEASY_MEASURE_AGAIN=1` checks again); None = with the numba kernel, where it is free, and not with
    torch's, where a prefill would take half as long again. `kernel`: linear layers compiled by numba; None = if
    installed and useful.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> packed = pack(build(preset("gpt-tiny"), seed=1), "float32", deterministic=False)
    >>> packing_of(packed).kind
    'float32'
    """
    began, plan = time.perf_counter(), _choose_packing(model, kind, deterministic, kernel)
    packed, checked = _apply_packing(model, plan), BatchInvariance()
    if plan.compiled or plan.batch_invariant:
        layers = {linear_kind(module) for module in packed.modules() if isinstance(module, packed_linear.PackedLinear)}
        dtype = next((weight.dtype for weight in packed.parameters()), None)
        choice = f"{plan.kind}, kernel {plan.compiled}, invariant {plan.batch_invariant}, {dtype}"
        subject = {"packing": choice, "layers": "; ".join(sorted(layers)), "model": repr(packed.config)}
        checked = remembered(subject, partial(_check, packed, plan), BatchInvariance)
    if not checked.exact:
        packed = pack(model, kind, deterministic=deterministic, kernel=False)
        packing = packing_of(packed)
        assert packing is not None
        reason = f"{packing.reason}; the kernel is not exact on this CPU"
        packed.packing = replace(packing, reason=reason)  # type: ignore[assignment]
        return packed
    nbytes = sum(module.nbytes() for module in packed.modules() if isinstance(module, packed_linear.PackedLinear))
    if plan.batch_invariant:
        pad_small_batches(packed, checked.min_rows)
    seconds, invariance = time.perf_counter() - began, checked if plan.batch_invariant else None
    packing = Packing(plan.kind, plan.reason, nbytes, invariance, plan.compiled, seconds)
    _LOG.info("weights packed: %s", packing)
    packed.packing = packing  # type: ignore[assignment]
    return packed


@torch.inference_mode()
def _check(packed: Model, plan: "_PackingPlan") -> BatchInvariance:
    """Check the kernel on each shape once, then the model's batch invariance."""
    kernels = {module.shape: module for module in packed.modules() if isinstance(module, packed_numba.KernelLinear)}
    exact = all(kernel.is_exact() for kernel in kernels.values())
    return check_batch_invariance(packed) if exact and plan.batch_invariant else BatchInvariance(exact)


def packing_of(model: Model) -> Packing | None:
    """Return the packing of a model, or None if it is not packed."""
    return getattr(model, "packing", None)


@dataclass(frozen=True)
class _PackingPlan:
    """Chosen packing and its reason; `linear` makes linear layers, `down` those whose input follows an activation."""

    kind: str
    reason: str
    linear: packed_linear.LinearFactory
    down: packed_linear.LinearFactory
    batch_invariant: bool
    compiled: bool = False


def _choose_packing(model: Model, kind: str, deterministic: bool | None, kernel: bool | None) -> _PackingPlan:
    if kind not in (known := get_args(WeightFormat)):
        hint = did_you_mean(kind, known) or f"Known: {', '.join(known)}."
        raise InvalidInput(f'There is no weight format "{kind}".', hint=hint)
    why = "requested"
    if kind == "auto":
        use_bfloat16 = HAS_BFLOAT16 and deterministic is not True
        kind = "bfloat16" if use_bfloat16 else "float32"
        why = "supported by this CPU" if use_bfloat16 else "exact"
    if deterministic and kind == "bfloat16":
        raise InvalidInput("bfloat16 cannot be batch-invariant.", hint="Choose float32 or int8.")
    invariant = bool(deterministic)
    has_kernel = kind in ("float32", "int8") and kernel is not False
    if has_kernel and kernel and not packed_numba.has_numba():
        raise MissingExtra("The kernel needs numba.", hint=install_line("kernel"))
    if (
        has_kernel
        and packed_numba.has_numba()
        and (kernel or kind == "int8" or model.count_parameters() >= _MIN_KERNEL_PARAMETERS)
    ):
        linear: packed_linear.LinearFactory = packed_numba.Int8Kernel if kind == "int8" else packed_numba.Float32Kernel
        return _PackingPlan(kind, why, linear, linear, deterministic is not False, compiled=True)
    if kind == "int8":
        if not packed_linear.has_int8():
            raise MissingExtra("This build of torch has no int8 linear layers.", hint="Choose float32.")
        return _PackingPlan(kind, why, packed_linear.Int8PerRow, packed_linear.Int8PerRowAsymmetric, invariant)
    layer_class = packed_linear.OneDNNLinear if packed_linear.HAS_ONEDNN else packed_linear.TorchLinear
    if kind == "bfloat16" and not HAS_BFLOAT16:
        layer_class, why = packed_linear.TorchLinear, "requested; slow, this CPU has no bfloat16 instructions"
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32

    def make(weight: torch.Tensor, bias: torch.Tensor | None) -> packed_linear.PackedLinear:
        return layer_class(weight.to(dtype), None if bias is None else bias.to(dtype))

    return _PackingPlan(kind, why, make, make, invariant)


@torch.no_grad()
def _apply_packing(model: Model, plan: _PackingPlan) -> Model:
    """Return a new model of the same config that shares the parameters and has packed linear layers."""
    packed = build(model.config, seed=None)
    if isinstance(packed, NGramModel):
        packed.allocate({name: tuple(array.shape) for name, array in model.state_dict().items()})
    packed.load_state_dict(model.state_dict(keep_vars=True), assign=True)
    embedding = getattr(packed, "decoder_embedding", None) or getattr(packed, "embedding", None)
    for module in list(packed.modules()):
        if isinstance(module, Stack) and module.causal:  # an encoder keeps the fused kernel
            for attention in module.modules():
                if isinstance(attention, Attention):
                    attention.backend = ROW_WISE if plan.batch_invariant else FUSED
                    biased = not attention.is_cross and (module.alibi or module.relative) is not None
                    special = biased or attention.softcap or attention.sinks is not None
                    if plan.compiled and attention.d_head % 8 == 0 and not special:
                        attention.backend = packed_numba.PackedVarlenBackend(attention.backend)
        if isinstance(module, Attention | FeedForward):
            module.fuse_projections(plan.linear)
        elif isinstance(module, LMHead):
            assert embedding is not None, "a model with an LM head has an embedding"
            weight: torch.Tensor = getattr(embedding, "token", embedding).weight
            module.pack(plan.linear, weight)
    _replace_layers(packed, plan)
    return packed.eval()


def _replace_layers(module: nn.Module, plan: _PackingPlan) -> None:
    """Replace the linear layers and, with the numba kernel, the norms outside attention."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            make_linear = plan.down if isinstance(module, FeedForward) and name == "down" else plan.linear
            setattr(module, name, make_linear(child.weight, child.bias))
        elif isinstance(child, nn.LayerNorm | nn.RMSNorm):
            if plan.compiled and not isinstance(module, Attention) and child.eps is not None:
                setattr(module, name, packed_numba.KernelNorm(child))
        else:
            _replace_layers(child, plan)
    if isinstance(module, FeedForward):
        linear, settings = module.gate_up_proj or module.up, module.settings
        if isinstance(linear, packed_numba.KernelLinear) and linear.fuse_activation(settings.activation, settings.d_ff):
            module.activation = torch.positive  # nothing: the activation is fused into the layer before it
        elif plan.batch_invariant:
            module.activation = partial(batch_invariant, module.activation)
