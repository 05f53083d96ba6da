"""The one loop of generation: read the prompt, then one token at a time, each from all tokens before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.models.protocol import Memory, Model
from peasy.nn.part import Learned, check

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. `temperature` 0 takes the best; above 0 draws, row i from `seed` + i."""

    max_tokens: int = 20
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, max_tokens=1, temperature=0)


@dataclass(frozen=True, eq=False)
class Written:
    """One step: the new id of each text, or None where the text had ended before."""

    step: int
    ids: tuple[int | None, ...]


def generate(model: Model, prompts: Ids | None = None, sampling: Sampling | None = None, **how: Any) -> list[list[int]]:
    """What the model writes after each prompt, the prompt not included. `how` is that of `decode`.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> len(generate(model, [[1, 2, 3]], Sampling(max_tokens=4))[0])
    4
    """
    written: list[list[int]] = [[] for _ in (prompts or how.get("source") or [])]
    for event in decode(model, prompts, sampling, **how):
        for text, new in zip(written, event.ids, strict=True):
            if new is not None:
                text.append(new)
    return written


def decode(
    model: Model,
    prompts: Ids | None = None,
    sampling: Sampling | None = None,
    *,
    source: Ids | None = None,
    cached: bool = True,
) -> Iterator[Written]:
    """Write on after `prompts`, step by step; closing the iterator stops the work.

    A text ends with one of the model's end ids, which is the last it gets. A model that answers a source needs
    `source`, and begins with its start id unless there are prompts. Without `cached` every step reads all again.
    Where a model has learned only so many places, all texts end when the longest has filled them.
    """
    sampling = sampling or Sampling()
    prompts = _begin(model, prompts, source)
    ids, real = pad_left(prompts)
    shown: Tensor | None = real  # after the prompts everything is
    choose = _Chooser(sampling, len(ids))
    end = torch.tensor(model.config.special.end, dtype=ids.dtype)
    running = torch.ones(len(ids), dtype=torch.bool)
    with torch.inference_mode():
        reader = _Reader(model, source, cached, room=ids.shape[1] + sampling.max_tokens)
        for step in range(_steps(model, sampling, ids.shape[1])):
            chosen = choose(reader.read(ids, shown))
            yield Written(step, tuple(int(new) if on else None for new, on in zip(chosen, running, strict=True)))
            running = running & ~torch.isin(chosen, end)
            if not running.any():
                return
            ids, shown = chosen[:, None], None


class _Reader:
    """Reads what is new and gives the scores of what comes next, with a memory or from the start each time."""

    def __init__(self, model: Model, source: Ids | None, cached: bool, room: int) -> None:
        self.model, self.device = model, model.device
        self.source = _source(source, self.device)
        self.memory: Memory | None = model.start(room=room, **self.source) if cached else None
        self.ids: Tensor | None = None
        self.real: Tensor | None = None

    def read(self, ids: Tensor, real: Tensor | None) -> Tensor:
        ids = ids.to(self.device)
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real.to(self.device)
        if self.memory is not None:
            return self.model(ids, real=real, cache=self.memory, last=True)[:, -1]
        self.ids = ids if self.ids is None else torch.cat([self.ids, ids], dim=1)
        self.real = real if self.real is None else torch.cat([self.real, real], dim=1)
        return self.model(self.ids, real=self.real, last=True, **self.source)[:, -1]


class _Chooser:
    """The best token, or one drawn: each row of a batch has its own random numbers, whoever stands beside it."""

    def __init__(self, sampling: Sampling, batch: int) -> None:
        self.temperature = sampling.temperature
        self.draws = [torch.Generator().manual_seed(sampling.seed + row) for row in range(batch)]

    def __call__(self, scores: Tensor) -> Tensor:
        scores = scores.float().cpu()
        if self.temperature == 0:
            return scores.argmax(dim=-1)
        # The largest of scores with Gumbel noise is a draw from their softmax; what has no chance stays at -inf.
        noise = torch.stack([torch.empty(scores.shape[-1]).exponential_(generator=draw) for draw in self.draws])
        return (scores / self.temperature - noise.log()).argmax(dim=-1)


def pad_left(rows: Ids, padding: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one array, their ends aligned, and which entries are real.

    >>> pad_left([[5, 6, 7], [8]])[0].tolist()
    [[5, 6, 7], [0, 0, 8]]
    """
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[padding] * (longest - len(row)) + list(row) for row in rows])
    real = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return ids, real


def _begin(model: Model, prompts: Ids | None, source: Ids | None) -> Ids:
    special = model.config.special
    first = special.start if model.reads_source else special.begin
    if prompts is None and source is not None and first is not None:
        prompts = [[first]] * len(source)
    if not prompts or not all(prompts):
        raise InvalidInput("There is nothing to write on from.", hint="Give at least one id in every prompt.")
    if source is not None and len(source) != len(prompts):
        raise InvalidInput(f"There are {len(source)} sources and {len(prompts)} prompts.", hint="Give as many of each.")
    return prompts


def _steps(model: Model, sampling: Sampling, length: int) -> int:
    """How many tokens can be written: learned places may run out before."""
    if not isinstance(getattr(model.config, "position", None), Learned):
        return sampling.max_tokens
    context = getattr(model.config, "context", None) or length
    return min(sampling.max_tokens, max(context - length + 1, 1))


def _source(source: Ids | None, device: torch.device) -> dict[str, Any]:
    if source is None:
        return {}
    ids, real = pad_left(source)
    return {"source": ids.to(device), "source_real": real.to(device)}
