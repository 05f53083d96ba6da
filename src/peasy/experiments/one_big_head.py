"""`one-big-head`: one wide head or several narrow ones, in a task that needs one place or two places at once."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from peasy.experiments.models import fit
from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison
from peasy.extras import require_extra
from peasy.formula import attend

if TYPE_CHECKING:
    from torch import Tensor

_NUM_KEYS, NUM_VALUES, _NUM_PLACES, _WIDTH = 12, 8, 6, 32
"""A text has `_NUM_PLACES` places, each with one of `_NUM_KEYS` keys and one of `NUM_VALUES` values."""
_HEADS = (1, 2, 4)
_TASKS = {"one place": 1, "two places": 2}
"""How many keys are asked for at once; the values have to be named in the order of the question."""
_BATCH_SIZE = 64


def run(seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 600, texts: int = 512) -> ExperimentResult:
    """Train one attention layer for each number of heads and each task, with the same parameter count."""
    require_extra("torch")
    losses: dict[str, Points] = {}
    hits: dict[str, dict[int, list[bool]]] = {}
    for task, asked in _TASKS.items():
        hits[task] = {}
        for heads in _HEADS:
            on_status(f"{task}, {heads} head{'s' * (heads > 1)} ...")
            points, hits[task][heads] = train_lookup(heads, asked, seed, steps, texts)
            if asked > 1:
                losses[f"{heads} head{'s' * (heads > 1)}"] = points
    return conclude(hits, losses, seed)


def train_lookup(
    heads: int, asked: int, seed: int, steps: int, texts: int, scale: float | None = None
) -> tuple[Points, list[bool]]:
    """Train one attention layer to look up values; return the loss by step, and for each new text whether all values
    asked for were named."""
    import torch

    rng = torch.Generator().manual_seed(seed)

    def weight(*shape: int) -> torch.nn.Parameter:
        return torch.nn.Parameter(torch.randn(*shape, generator=rng) * shape[0] ** -0.5)

    key_table, value_table = weight(_NUM_KEYS, _WIDTH), weight(NUM_VALUES, _WIDTH)
    projections = [weight(asked * _WIDTH, _WIDTH), *(weight(_WIDTH, _WIDTH) for _ in range(3))]
    outputs = [weight(_WIDTH, NUM_VALUES) for _ in range(asked)]

    def split(x: "Tensor") -> "Tensor":
        by_head: Tensor = x.unflatten(-1, (heads, _WIDTH // heads))
        return by_head.transpose(-2, -3)

    def answer(keys: "Tensor", values: "Tensor", questions: "Tensor") -> "Tensor":
        """Logits of the values asked for: `[batch, asked, values]`."""
        places = key_table[keys] + value_table[values]
        query = key_table[questions].flatten(1)[:, None] @ projections[0]
        key, value = (split(places @ projection) for projection in projections[1:3])
        context = attend(split(query), key, value, scale=scale).context
        joined: Tensor = context.transpose(-2, -3).flatten(-2)[:, 0] @ projections[3]
        return torch.stack([joined @ output for output in outputs], dim=1)

    def draw(count: int, rng: torch.Generator) -> tuple["Tensor", "Tensor", "Tensor", "Tensor"]:
        keys = torch.rand(count, _NUM_KEYS, generator=rng).argsort(dim=1)[:, :_NUM_PLACES]
        values = torch.randint(NUM_VALUES, keys.shape, generator=rng)
        at = torch.rand(count, _NUM_PLACES, generator=rng).argsort(dim=1)[:, :asked]
        return keys, values, keys.gather(1, at), values.gather(1, at)

    def loss(rng: torch.Generator) -> "Tensor":
        *text, targets = draw(_BATCH_SIZE, rng)
        return torch.nn.functional.cross_entropy(answer(*text).flatten(0, 1), targets.flatten())

    points = fit([key_table, value_table, *projections, *outputs], loss, steps, seed, lr=1e-2)
    *text, targets = draw(texts, torch.Generator().manual_seed(seed + 10**6))
    with torch.inference_mode():
        hits: list[bool] = (answer(*text).argmax(dim=-1) == targets).all(dim=1).tolist()
    return points, hits


def conclude(hits: Mapping[str, Mapping[int, list[bool]]], losses: Mapping[str, Points], seed: int) -> ExperimentResult:
    """Two and four heads against one, where two places are needed at once; text by text."""
    accuracy = {task: {heads: float(np.mean(right)) for heads, right in by.items()} for task, by in hits.items()}
    two = hits["two places"]
    comparisons = [
        Comparison.of_pairs(f"{heads} heads find two places", "both right", two[heads], "one head", two[1])
        for heads in _HEADS[1:]
    ]
    alone, both = accuracy["one place"], accuracy["two places"]
    verdict = (
        f"Asked for one value, one head is right in {alone[1]:.0%} of texts and two heads in {alone[2]:.0%}. Asked for "
        f"two values at once, one head of the same total width names both in {both[1]:.0%} of texts, two heads in "
        f"{both[2]:.0%}, four in {both[4]:.0%} (chance: {NUM_VALUES**-2:.1%})."
    )
    columns = [("heads", ""), ("width of a head", ""), *((task, ".0%") for task in _TASKS)]
    rows = ((heads, _WIDTH // heads, *(accuracy[task][heads] for task in _TASKS)) for heads in _HEADS)
    parts = (
        table("All values right, same parameter count", columns, rows),
        curves("Learning to look in two places", losses, "step", "loss"),
    )
    return make_result("one-big-head", parts, verdict, comparisons, accuracy, seed)
