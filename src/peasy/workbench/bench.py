"""`bench`: how fast a model reads and writes on this machine, by the form of its weights and the size of the batch."""

import math
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.hub import Ask
from peasy.errors import InvalidInput
from peasy.views.document import Cell, Document, Paragraph, Table
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.result import Result

if TYPE_CHECKING:
    from peasy.generation.packed import Kind
    from peasy.models.protocol import Model

FORMS: "tuple[Kind, ...]" = ("float32", "int8")
Hear = Callable[[str], None]


@dataclass(frozen=True)
class Speed:
    """Tokens a second of one form: the median of all rounds, the least and the most."""

    weights: str
    does: str
    batch: int
    median: float
    least: float
    most: float


@dataclass(frozen=True, repr=False)
class BenchResult(Result):
    """What was timed. `speeds` are in tokens a second, all texts of a batch together."""

    name: str
    parameters: int
    speeds: tuple[Speed, ...]
    says: tuple[str, ...]
    machine: str

    def document(self) -> Document:
        """One row for each form, batch and work."""
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (each.weights, each.does, str(each.batch), f"{each.median:,.1f}", f"{each.least:,.1f} to {each.most:,.1f}")
            for each in self.speeds
        )
        notes = [Paragraph(line, "note") for line in (*self.says, self.machine)]
        title = f"{self.name}: {self.parameters:,} parameters"
        return Document(title, (Table(("weights", "does", "batch", "tokens/s", "all rounds"), rows), *notes))

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "model": self.name,
            "parameters": self.parameters,
            "speeds": [asdict(speed) for speed in self.speeds],
            "says": list(self.says),
            "machine": self.machine,
        }

    def __repr__(self) -> str:
        return f"BenchResult({self.name}: {', '.join(f'{s.weights} {s.does} {s.median:,.0f}/s' for s in self.speeds)})"


def bench(
    model: str | Path | LoadedModel,
    *,
    prompt: int = 32,
    tokens: int = 64,
    batch: int = 8,
    rounds: int = 3,
    seed: int = 0,
    offline: bool = False,
    ask: Ask | None = None,
    hear: Hear | None = None,
) -> BenchResult:
    """Time a model that writes: reading `prompt` tokens, then writing `tokens`, alone and `batch` at once.

    Forms alternate from round to round, so that a busy minute hurts all of them alike; prompts are drawn by `seed`.

    >>> bench("stories", prompt=2, tokens=1, batch=1, rounds=1).name
    'stories'
    """
    import torch

    loaded = model if isinstance(model, LoadedModel) else load(model, device="cpu", offline=offline, ask=ask)
    if loaded.model.reads_source or loaded.kind in ("encoder", "ngram"):
        raise InvalidInput(
            f"{loaded.name} ({loaded.kind}) cannot be timed: bench takes models that write on from a text."
        )
    if min(prompt, tokens, batch, rounds) < 1:
        raise InvalidInput("prompt, tokens, batch and rounds are counts: at least 1 each.")
    longest = getattr(loaded.model.config, "context", None)
    if longest is not None and prompt + tokens > longest:
        raise InvalidInput(
            f"{loaded.name} reads at most {longest} tokens, not {prompt + tokens}.", hint="Give fewer --tokens."
        )
    forms, said = _forms(loaded.model)
    draw = torch.Generator().manual_seed(seed)
    texts = torch.randint(loaded.model.config.vocabulary, (batch, prompt), generator=draw).tolist()
    taken: dict[tuple[str, str, int], list[float]] = {}
    for number, (name, form), size in product(range(rounds), forms.items(), sorted({1, batch})):
        if hear is not None:
            hear(f"round {number + 1} of {rounds}: {name}, {size} at once")
        for does, speed in zip(("reads", "writes"), _time(form, texts[:size], tokens), strict=True):
            taken.setdefault((name, does, size), []).append(speed)
    speeds = tuple(Speed(*key, statistics.median(each), min(each), max(each)) for key, each in taken.items())
    return BenchResult(loaded.name, loaded.model.count_parameters(), speeds, said, _machine())


def _forms(model: "Model") -> tuple[dict[str, "Model"], tuple[str, ...]]:
    """The model as it is and packed, with what packing says of itself."""
    from peasy.generation.packed import pack, packing_of

    forms = {"as it is": model} | {form: pack(model, form) for form in FORMS}
    told = tuple(packing.says() for packing in map(packing_of, forms.values()) if packing is not None)
    return forms, told


def _time(model: "Model", texts: list[list[int]], tokens: int) -> tuple[float, float]:
    """Tokens a second of the first pass, which reads, and of all others, which write."""
    from peasy.generation.decode import Pass, decode
    from peasy.generation.sampling import Sampling

    never = dict.fromkeys(model.config.special.end, -math.inf)
    sampling = Sampling(max_tokens=tokens + 1, logit_bias=never)
    first, *others = [event.seconds for event in decode(model, texts, sampling) if isinstance(event, Pass)]
    return len(texts) * len(texts[0]) / first, len(texts) * len(others) / max(sum(others), 1e-9)


def _machine() -> str:
    import torch

    return (
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, {platform.machine()}, torch {torch.__version__}. "
        "Nothing else should run meanwhile."
    )
