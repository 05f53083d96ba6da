"""What a head does: its attention over some sentences, and over random tokens that are repeated, in a few numbers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.looking.label import Part
from peasy.looking.part import parts_of
from peasy.looking.reading import Reading, run
from peasy.looking.record import HeadReport, HeadScore
from peasy.models.protocol import Model
from peasy.nn.place import Place
from peasy.nn.tap import Seen, Tap

HALF, DRAWS, FAR = 24, 4, 32
"""Random sequences of so many tokens, each twice in a row; so many of them; profiles of so many places."""


@dataclass(eq=False)
class _Sums:
    """Sums over queries, for all heads of one attention: `total[name]` `[head]` over `count[name]` queries."""

    heads: int
    total: dict[str, Tensor] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, values: Tensor) -> None:
        """Values `[head, query, ...]`: one more for each query."""
        new = values.double().sum(dim=1)
        self.total[name] = self.total[name] + new if name in self.total else new
        self.count[name] = self.count.get(name, 0) + values.shape[1]

    def mean(self, name: str, default: float = 0.0) -> Tensor:
        """The mean over all queries, for each head."""
        if not self.count.get(name):
            return torch.full((self.heads,), default, dtype=torch.float64)
        return self.total[name] / self.count[name]


def study_heads(model: Model, readings: Iterable[Reading], *, name: str = "", seed: int = 0) -> HeadReport:
    """What every self-attention head does across some texts, and on random tokens that are repeated."""
    parts = [part for part in parts_of(model) if not part.cross]
    if not parts:
        raise InvalidInput(
            f"{name or 'This model'} has no self-attention.", hint="A translator's heads: see alignment."
        )
    sums = {part.place: _Sums(part.heads) for part in parts}
    sentences = tokens = 0
    for reading in readings:
        sentences, tokens = sentences + 1, tokens + len(reading.ids)
        for place, weights in _weights(model, reading):
            _add_text(sums[place], weights, _ids(place, reading, model))
    if not sentences:
        raise InvalidInput("There is no sentence to study heads by.")
    half = _add_random(model, sums, seed)
    scores = tuple(_score(part, sums[part.place], head) for part in parts for head in range(part.heads))
    return HeadReport(name, scores, sentences, tokens, _notes(half))


def _notes(half: int) -> tuple[str, ...]:
    if not half:
        return ("No room for random tokens: induction and position are not measured.",)
    drawn = f"Induction and position: on {DRAWS} sequences of {half} random tokens, each twice in a row."
    return (drawn, "The first query, which sees only itself, counts for nothing where a head only looks back.")


def _weights(model: Model, reading: Reading) -> Iterator[tuple[Place, Tensor]]:
    """One layer after the other, so that only one is held."""
    found: list[Seen] = []
    run(model, reading, Tap(found.append, steps=["weights"], parts=["attention"]))
    for seen in found:
        yield seen.place, seen.array[0].float()


def _ids(place: Place, reading: Reading, model: Model) -> Tensor:
    return torch.tensor(reading.ids if place.stack == "encoder" or not model.reads_source else reading.writes)


def _add_text(sums: _Sums, weights: Tensor, ids: Tensor) -> None:
    """One text: weights `[head, query, key]`. Queries that have no choice count for nothing."""
    count = len(ids)
    weights = weights.cpu()
    choice = (weights > 0).any(dim=0).sum(dim=1) > 1
    seen = ((weights > 0).any(dim=0).sum(dim=1)).clamp(min=2).double().log2()
    bits = -torch.special.xlogy(weights, weights).sum(-1).double() / np.log(2)
    sums.add("entropy", bits[:, choice])
    sums.add("sharpness", 1 - (bits / seen)[:, choice])
    sums.add("own", torch.diagonal(weights, dim1=1, dim2=2)[:, choice])
    sums.add("first", weights[:, choice, 0])
    if count > 1:
        sums.add("previous", torch.diagonal(weights, -1, 1, 2))
        if bool(torch.diagonal(weights, 1, 1, 2).any()):
            sums.add("next", torch.diagonal(weights, 1, 1, 2))
    same = (ids[:, None] == ids) & ~torch.eye(count, dtype=torch.bool) & (weights > 0).any(dim=0)
    sums.add("same", (weights * same).sum(-1)[:, same.any(dim=1)])
    away = (torch.arange(count)[:, None] - torch.arange(count)).abs()
    sums.add("distance", (weights * away).sum(-1)[:, choice])
    profile = torch.zeros(*weights.shape[:2], FAR + 1)
    profile.scatter_add_(2, away.clamp(max=FAR).expand_as(weights), weights)
    sums.add("profile", profile[:, choice])


def _add_random(model: Model, sums: dict[Place, _Sums], seed: int) -> int:
    """Random tokens, twice in a row: who finds what came after the same token before, and who looks at places only."""
    context = getattr(model.config, "context", None)
    half = HALF if context is None else min(HALF, context // 2)
    if half < 4:
        return 0
    before: dict[Place, Tensor] = {}
    for reading in _random_readings(model, half, seed):
        for place, weights in _weights(model, reading):
            rows = torch.arange(half, 2 * half)
            sums[place].add("induction", weights[:, rows, rows - half + 1].cpu())
            first = weights[:, 1:half].cpu()
            if place in before:
                sums[place].add("position", torch.minimum(first, before[place]).sum(-1))
            before[place] = first
    return half


def _random_readings(model: Model, half: int, seed: int) -> Iterator[Reading]:
    draw = np.random.default_rng(seed)
    config = model.config
    special = {config.special.padding, config.special.begin, config.special.start, *config.special.end, 0}
    sizes = [config.vocabulary, getattr(config, "target_vocabulary", None) or config.vocabulary]
    pools = [np.array([id for id in range(size) if id not in special]) for size in sizes]
    for _ in range(DRAWS):
        ids, target = (tuple(int(id) for id in np.tile(draw.choice(pool, half), 2)) for pool in pools)
        yield Reading(ids, target if model.reads_source else None)


def _score(part: Part, sums: _Sums, head: int) -> HeadScore:
    def mean(name: str) -> float:
        return float(sums.mean(name)[head])

    induction = mean("induction") if "induction" in sums.count else None
    profile = sums.mean("profile")[head].numpy() if "profile" in sums.count else np.zeros(FAR + 1)
    return HeadScore(
        part.place, head, mean("entropy"), mean("sharpness"), mean("previous"), mean("next"), mean("first"),
        mean("own"), mean("same"), induction, mean("position"), mean("distance"), np.atleast_1d(profile),
    )  # fmt: skip
