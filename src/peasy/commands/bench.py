"""`bench`: prefill and decode throughput on this machine, by weight format and batch size."""

import math
import os
import platform
import statistics
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, Result
from peasy.errors import InvalidInput
from peasy.generation.sampling_params import SamplingParams
from peasy.parameters import Record
from peasy.views.document import Document, Paragraph, Table

if TYPE_CHECKING:
    from peasy.generation.sampling_params import WeightFormat
    from peasy.models.protocol import Model

_PACKED_FORMATS: "tuple[WeightFormat, ...]" = ("float32", "int8")
OnStatus = Callable[[str], None]


class Throughput(Record):
    """Tokens per second of one weight format, phase and batch size: median, minimum and maximum of all repeats."""

    weight_format: str
    phase: str
    batch_size: int
    median: float
    minimum: float
    maximum: float


class BenchResult(Result):
    """Result of `bench`: `throughputs` are tokens per second of the whole batch."""

    name: str
    parameters: int
    throughputs: tuple[Throughput, ...]
    description: tuple[str, ...]
    machine: str

    def document(self) -> Document:
        """One row for each weight format, phase and batch size."""
        rows = tuple(
            (s.weight_format, s.phase, str(s.batch_size), f"{s.median:,.1f}", f"{s.minimum:,.1f} to {s.maximum:,.1f}")
            for s in self.throughputs
        )
        notes = [Paragraph(line, "note") for line in (*self.description, self.machine)]
        title = f"{self.name}: {self.parameters:,} parameters"
        return Document(title, (Table(("weights", "phase", "batch size", "tokens/s", "all repeats"), rows), *notes))

    def data(self) -> JsonDict:
        data = super().data()
        return {"model": data.pop("name")} | data

    def __repr__(self) -> str:
        medians = ", ".join(f"{s.weight_format} {s.phase} {s.median:,.0f}/s" for s in self.throughputs)
        return f"BenchResult({self.name}: {medians})"


def bench(
    model: str | Path | LoadedModel,
    *,
    prompt_tokens: Annotated[int, Ge(1)] = 32,
    max_tokens: Annotated[int, Ge(1)] = 64,
    batch_size: Annotated[int, Ge(1)] = 8,
    repeats: Annotated[int, Ge(1)] = 3,
    seed: int = 0,
    offline: bool = False,
    confirm: Confirm | None = None,
    on_status: OnStatus | None = None,
) -> BenchResult:
    """Time prefill of `prompt_tokens` and decoding of `max_tokens` tokens, with batch size 1 and `batch_size`.

    Weight formats alternate in each repeat, so that other load affects all alike; prompts are random, drawn by `seed`.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; must be a decoder.
        prompt_tokens: Number of prompt tokens.
        max_tokens: Number of generated tokens.
        batch_size: Batch size; batch size 1 is always measured too.
        repeats: Number of repetitions; the table shows medians.
        seed: Seed of the prompts.

    >>> bench("stories", prompt_tokens=2, max_tokens=1, batch_size=1, repeats=1).name
    'stories'
    """
    import torch

    from peasy.generation.packed import pack, packing_of

    loaded = load(model, device="cpu", offline=offline, confirm=confirm)
    if loaded.model.is_encoder_decoder or loaded.kind in ("encoder", "ngram"):
        raise InvalidInput(f"{loaded.name} ({loaded.kind}) cannot be timed: bench takes models that continue a text.")
    if min(prompt_tokens, max_tokens, batch_size, repeats) < 1:
        raise InvalidInput("prompt_tokens, max_tokens, batch_size and repeats must be at least 1.")
    context, needed = loaded.max_seq_len, prompt_tokens + max_tokens
    if context is not None and needed > context:
        message = f"{loaded.name} has a context of {context} tokens, not {needed}."
        raise InvalidInput(message, hint="Give fewer --max-tokens.")
    variants = {"original": loaded.model} | {form: pack(loaded.model, form) for form in _PACKED_FORMATS}
    notes = tuple(str(packing) for packing in map(packing_of, variants.values()) if packing is not None)
    generator = torch.Generator().manual_seed(seed)
    prompts = torch.randint(loaded.model.config.vocab_size, (batch_size, prompt_tokens), generator=generator).tolist()
    samples: dict[tuple[str, str, int], list[float]] = {}
    for number, (name, variant), size in product(range(repeats), variants.items(), sorted({1, batch_size})):
        if on_status is not None:
            on_status(f"repeat {number + 1} of {repeats}: {name}, batch size {size}")
        rates = _measure_throughput(variant, prompts[:size], max_tokens)
        for phase, rate in zip(("prefill", "decode"), rates, strict=True):
            samples.setdefault((name, phase, size), []).append(rate)
    throughputs = tuple(Throughput(*key, statistics.median(s), min(s), max(s)) for key, s in samples.items())
    cores = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, {platform.machine()}"
    machine = f"{cores}, torch {torch.__version__}. Run nothing else meanwhile."
    return BenchResult(loaded.name, loaded.model.count_parameters(), throughputs, notes, machine)


def _measure_throughput(model: "Model", prompts: list[list[int]], max_tokens: int) -> tuple[float, float]:
    """Tokens per second of the first forward pass (prefill) and of all others (decode)."""
    from peasy.generation.decode import Pass, decode

    no_eos = dict.fromkeys(model.config.special_tokens.eos, -math.inf)
    sampling = SamplingParams(max_tokens=max_tokens + 1, logit_bias=no_eos)
    prefill, *decodes = [event.seconds for event in decode(model, prompts, sampling) if isinstance(event, Pass)]
    return len(prompts) * len(prompts[0]) / prefill, len(prompts) * len(decodes) / max(sum(decodes), 1e-9)
