"""`bench`: prefill and decode throughput on this machine, by weight format and batch size."""

import math
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import Result
from peasy.errors import InvalidInput
from peasy.views.document import Cell, Document, Paragraph, Table

if TYPE_CHECKING:
    from peasy.generation.packed import PackingKind
    from peasy.models.protocol import Model

PACKED_FORMATS: "tuple[PackingKind, ...]" = ("float32", "int8")
OnStatus = Callable[[str], None]


@dataclass(frozen=True)
class Throughput:
    """Tokens per second of one weight format, phase and batch size: median, minimum and maximum of all rounds."""

    weight_format: str
    phase: str
    batch_size: int
    median: float
    minimum: float
    maximum: float


@dataclass(frozen=True, repr=False)
class BenchResult(Result):
    """Result of `bench`: `speeds` are tokens per second of the whole batch."""

    name: str
    parameters: int
    throughputs: tuple[Throughput, ...]
    description: tuple[str, ...]
    machine: str

    def document(self) -> Document:
        """One row for each weight format, phase and batch size."""
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (s.weight_format, s.phase, str(s.batch_size), f"{s.median:,.1f}", f"{s.minimum:,.1f} to {s.maximum:,.1f}")
            for s in self.throughputs
        )
        notes = [Paragraph(line, "note") for line in (*self.description, self.machine)]
        title = f"{self.name}: {self.parameters:,} parameters"
        return Document(title, (Table(("weights", "does", "batch", "tokens/s", "all rounds"), rows), *notes))

    def data(self) -> dict[str, Any]:
        """The measurements as plain data."""
        return {
            "model": self.name,
            "parameters": self.parameters,
            "speeds": [asdict(speed) for speed in self.throughputs],
            "description": list(self.description),
            "machine": self.machine,
        }

    def __repr__(self) -> str:
        return f"BenchResult({self.name}: {', '.join(f'{s.weight_format} {s.phase} {s.median:,.0f}/s' for s in self.throughputs)})"


def bench(
    model: str | Path | LoadedModel,
    *,
    prompt: int = 32,
    tokens: int = 64,
    batch: int = 8,
    rounds: int = 3,
    seed: int = 0,
    offline: bool = False,
    ask: Confirm | None = None,
    hear: OnStatus | None = None,
) -> BenchResult:
    """Time prefill of `prompt` tokens and decoding of `tokens` tokens, with batch size 1 and `batch`.

    Weight formats alternate in each round, so that other load affects all alike; prompts are random, drawn by `seed`.

    >>> bench("stories", prompt=2, tokens=1, batch_size=1, rounds=1).name
    'stories'
    """
    import torch

    loaded = model if isinstance(model, LoadedModel) else load(model, device="cpu", offline=offline, ask=ask)
    if loaded.model.is_encoder_decoder or loaded.kind in ("encoder", "ngram"):
        raise InvalidInput(f"{loaded.name} ({loaded.kind}) cannot be timed: bench takes models that continue a text.")
    if min(prompt, tokens, batch, rounds) < 1:
        raise InvalidInput("prompt, tokens, batch and rounds must be at least 1.")
    context = getattr(loaded.model.config, "max_seq_len", None)
    if context is not None and prompt + tokens > context:
        raise InvalidInput(
            f"{loaded.name} has a context of {context} tokens, not {prompt + tokens}.", hint="Give fewer --tokens."
        )
    variants, notes = _weight_variants(loaded.model)
    generator = torch.Generator().manual_seed(seed)
    prompts = torch.randint(loaded.model.config.vocab_size, (batch, prompt), generator=generator).tolist()
    samples: dict[tuple[str, str, int], list[float]] = {}
    for number, (name, variant), size in product(range(rounds), variants.items(), sorted({1, batch})):
        if hear is not None:
            hear(f"round {number + 1} of {rounds}: {name}, batch size {size}")
        for phase, speed in zip(("reads", "writes"), _measure_throughput(variant, prompts[:size], tokens), strict=True):
            samples.setdefault((name, phase, size), []).append(speed)
    speeds = tuple(Throughput(*key, statistics.median(rates), min(rates), max(rates)) for key, rates in samples.items())
    return BenchResult(loaded.name, loaded.model.count_parameters(), speeds, notes, _machine_description())


def _weight_variants(model: "Model") -> tuple[dict[str, "Model"], tuple[str, ...]]:
    """Return the model and its packed variants by name, with a description of each packing."""
    from peasy.generation.packed import pack, packing_of

    variants = {"as it is": model} | {form: pack(model, form) for form in PACKED_FORMATS}
    descriptions = tuple(packing.summary() for packing in map(packing_of, variants.values()) if packing is not None)
    return variants, descriptions


def _measure_throughput(model: "Model", prompts: list[list[int]], tokens: int) -> tuple[float, float]:
    """Tokens per second of the first forward pass (prefill) and of all others (decode)."""
    from peasy.generation.decode import Pass, decode
    from peasy.generation.sampling import SamplingParams

    no_eos = dict.fromkeys(model.config.special_tokens.eos, -math.inf)
    sampling = SamplingParams(max_tokens=tokens + 1, logit_bias=no_eos)
    prefill, *decodes = [event.seconds for event in decode(model, prompts, sampling) if isinstance(event, Pass)]
    return len(prompts) * len(prompts[0]) / prefill, len(prompts) * len(decodes) / max(sum(decodes), 1e-9)


def _machine_description() -> str:
    import torch

    return (
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, {platform.machine()}, torch {torch.__version__}. "
        "Run nothing else meanwhile."
    )
