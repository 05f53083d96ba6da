"""Sweep of interventions: one variant per head, pattern or position, all in one batch of the rows that differ.

Row 0 of the batch is the unchanged text. A variant that changes layer l is a copy of row 0 made before that layer, so
nothing is computed twice that no variant has changed yet: the batch grows from layer to layer.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.inspection.forward import ModelInput, attentions_of, default_stack, forward_hidden
from peasy.models.protocol import Model
from peasy.nn.intervention import Intervention
from peasy.nn.module_path import Address
from peasy.nn.stack import Stack
from peasy.nn.tap import Activation, Tap
from peasy.parameters import Record

MAX_BATCH_TOKENS = 4096
"""Tokens of all variants that run at once: more need memory and are not faster."""


class SweepVariant(Record):
    """One changed activation: a head of an address, or a position of the residual stream."""

    address: Address
    index: int


def head_variants(model: Model, step: str) -> list[list[SweepVariant]]:
    """Return a row of variants for each layer, one for each head: of its output (context) or its pattern (weights)."""
    infos = [info for info in attentions_of(model) if info.path[::2] == (default_stack(model), "attention")]
    if not infos:
        raise InvalidInput(f"A {type(model.config).kind} has no self-attention to sweep over.")
    return [[SweepVariant(Address(*info.path, step), head) for head in range(info.num_heads)] for info in infos]


def position_variants(model: Model, length: int) -> list[list[SweepVariant]]:
    """Return a row of variants for each layer, one for each position of the residual stream before it."""
    name = default_stack(model)
    stack = getattr(model, name, None)
    if not isinstance(stack, Stack):
        raise InvalidInput(f"A {type(model.config).kind} has no residual stream to sweep over.")
    layers = range(len(stack.blocks))
    return [[SweepVariant(Address(name, at, "stream", "residual"), time) for time in range(length)] for at in layers]


class _GrowingBatch(Intervention):
    """Intervention that adds each variant to the batch before its layer and changes only its own row."""

    def __init__(self, variants: Sequence[SweepVariant], replacements: Mapping[Address, Tensor]) -> None:
        self.replacements = replacements
        self.by_address: dict[Address, list[SweepVariant]] = {}
        for variant in variants:
            self.by_address.setdefault(variant.address, []).append(variant)
        self.starts = {address._replace(part="stream", step="residual"): address for address in self.by_address}
        self.rows: dict[Address, Tensor] = {}

    def edits(self, address: Address) -> bool:
        return address in self.starts or address in self.by_address

    def edit(self, address: Address, array: Tensor, positions: Tensor) -> Tensor:
        if address in self.starts:
            changed = self.starts[address]
            count = len(self.by_address[changed])
            self.rows[changed] = torch.arange(len(array), len(array) + count, device=array.device)
            array = torch.cat([array, array[:1].expand(count, *array.shape[1:])])
        if address not in self.by_address:
            return array
        index = torch.tensor([variant.index for variant in self.by_address[address]], device=array.device)
        array = array.clone()
        array[self.rows[address], index] = self.replacements[address][index].to(array.dtype)
        return array


@torch.inference_mode()
def run_variants(
    model: Model, base: ModelInput, variants: Sequence[SweepVariant], replacements: Mapping[Address, Tensor]
) -> Iterator[Tensor]:
    """Yield the logits after the last token `[1 + variants, vocab_size]`, a chunk of the variants at a time.

    The first row of each chunk is the unchanged text. `replacements` are by head or position, `[index, ...]`.
    """
    ids = torch.tensor([base.output_ids], device=model.device)
    source = torch.tensor([base.ids], device=model.device) if model.is_encoder_decoder else None
    size = max(1, MAX_BATCH_TOKENS // ids.shape[1])
    for start in range(0, len(variants), size):
        batch = _GrowingBatch(variants[start : start + size], replacements)
        hidden = model.hidden(ids, source=source, intervention=batch)
        yield model.logits(hidden[:, -1:])[:, -1]


def make_replacements(
    model: Model, addresses: Sequence[Address], clean: ModelInput, method: str, texts: Sequence[ModelInput] = ()
) -> dict[Address, Tensor]:
    """Return what each activation is replaced by: that of the clean text, zeros, or the mean over tokens of texts."""
    found = _capture_all(model, clean, addresses)
    if method == "patch":
        return found
    if method == "zero":
        return {address: torch.zeros_like(array) for address, array in found.items()}
    if any(address.step == "weights" for address in addresses):
        raise InvalidInput("Patterns of different texts have no mean.", hint='Choose method="patch" or "zero".')
    captured = [_capture_all(model, text, addresses) for text in texts]
    means = {at: torch.cat([one[at] for one in captured], dim=-2).double().mean(dim=-2, keepdim=True) for at in found}
    return {at: means[at].to(array).expand_as(array) for at, array in found.items()}


def _capture_all(model: Model, text: ModelInput, addresses: Sequence[Address]) -> dict[Address, Tensor]:
    """Return the activations of a text at some addresses of one step and part, in one pass."""
    found: list[Activation] = []
    stacks, _, parts, steps = zip(*addresses, strict=True)
    forward_hidden(model, text, Tap(found.append, steps=set(steps), parts=set(parts), stacks=set(stacks)))
    by_address = {Address(*one.path, one.step): one.array[0].clone() for one in found}
    return {address: by_address[address] for address in addresses}
