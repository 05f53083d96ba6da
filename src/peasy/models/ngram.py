"""N-gram language model: the last few words alone decide what comes next, by counting."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from peasy.models.config import NGramConfig
from peasy.models.describe import Box
from peasy.models.memory import LastWords
from peasy.models.protocol import Model
from peasy.models.transformer import check_ids
from peasy.nn.scene import Edit
from peasy.nn.tap import Tap


class NGramModel(Model):
    """Counts of word rows of each length up to `order`, mixed from short to long.

    A row of n words is numbered by (number of its first n-1 words) * vocabulary + last word; `rows_n` holds the
    sorted numbers that occurred and `counts_n` how often. So each length is one sorted list, and a context's
    continuations stand side by side in it.
    """

    config: NGramConfig
    learns = "counts"

    def __init__(self, config: NGramConfig) -> None:
        super().__init__(config)
        for n in range(1, config.order + 1):
            self.register_buffer(f"rows_{n}", torch.empty(0, dtype=torch.int64))
            self.register_buffer(f"counts_{n}", torch.empty(0, dtype=torch.int64))

    def table(self, n: int) -> tuple[Tensor, Tensor]:
        """The numbers and counts of rows of `n` words."""
        return self.get_buffer(f"rows_{n}"), self.get_buffer(f"counts_{n}")

    def expect(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Make room for tables of the sizes a file tells; one dimension each, numbers and counts alike."""
        for n in range(1, self.config.order + 1):
            size = shapes.get(f"rows_{n}", (0,))
            for name in (f"rows_{n}", f"counts_{n}"):
                held = self.get_buffer(name)
                setattr(self, name, torch.empty(size[:1], dtype=torch.int64, device=held.device))

    def observe(self, ids: Tensor, real: Tensor | None = None) -> None:
        """Count all rows of words in `ids` `[batch, time]`; counts add up over calls."""
        check_ids(ids, self.config.vocabulary)
        ends, moved = _empty_row(ids), None
        for n in range(1, self.config.order + 1):
            numbers, whole = self._numbers(ids, _shown(ids, real), ends, n)
            moved = self._count(n, numbers[whole], moved)
            ends = torch.where(whole, torch.searchsorted(self.table(n)[0], numbers), -1)

    def _count(self, n: int, seen: Tensor, moved: Tensor | None) -> Tensor:
        """Add rows to the table of length n; tells where its old rows stand now. `moved`: the same of length n-1."""
        rows, counts = self.table(n)
        if moved is not None and len(rows):
            rows = moved[rows // self.config.vocabulary] * self.config.vocabulary + rows % self.config.vocabulary
        merged, at = torch.unique(torch.cat([rows, seen]), return_inverse=True)
        total = torch.zeros_like(merged)
        total.scatter_add_(0, at, torch.cat([counts, torch.ones_like(seen)]))
        setattr(self, f"rows_{n}", merged)
        setattr(self, f"counts_{n}", total)
        return at[: len(rows)]

    def _numbers(self, ids: Tensor, real: Tensor, ends: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The number of the row of n words that ends at each place, and where there is one."""
        before = torch.cat([_empty_row(ids[:, :1]) - int(n > 1), ends[:, :-1]], dim=1)
        return before * self.config.vocabulary + ids, real & (before >= 0)

    def start(self, batch: int = 1, *, room: int = 0, **source: Any) -> LastWords:
        """Nothing read yet."""
        return LastWords(keep=self.config.order - 1)

    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: LastWords | None = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        **source: Any,
    ) -> Tensor:
        """For each token where the rows of 0, 1, ... words that end there stand in their tables, -1 = never seen."""
        check_ids(ids, self.config.vocabulary)
        new, real = ids.shape[1], _shown(ids, real)
        if cache is not None:
            ids, real = cache.extend(ids, real)
        found = [_empty_row(ids)]
        for n in range(1, self.config.order):
            numbers, whole = self._numbers(ids, real, found[-1], n)
            rows, _ = self.table(n)
            at = torch.searchsorted(rows, numbers)
            known = whole & (at < len(rows)) & (rows[at.clamp(max=len(rows) - 1)] == numbers if len(rows) else False)
            found.append(torch.where(known, at, -1))
        return torch.stack(found, dim=-1)[:, -new:]

    def scores(self, hidden: Tensor) -> Tensor:
        """Logarithms of probabilities: longer rows first, what they leave over goes to the shorter ones."""
        contexts = hidden.reshape(-1, self.config.order)
        chance = torch.full((len(contexts), self.config.vocabulary), 1 / self.config.vocabulary, device=hidden.device)
        for n in range(1, self.config.order + 1):
            chance = self._mix(chance, contexts[:, n - 1], n)
        return chance.log().reshape(*hidden.shape[:-1], -1)

    def _mix(self, shorter: Tensor, context: Tensor, n: int) -> Tensor:
        (rows, counts), size, cut = self.table(n), self.config.vocabulary, self.config.discount
        first = torch.searchsorted(rows, context * size)
        kinds = torch.where(context >= 0, torch.searchsorted(rows, (context + 1) * size) - first, 0)
        whose = torch.repeat_interleave(torch.arange(len(context), device=rows.device), kinds)
        at = torch.arange(len(whose), device=rows.device) - (kinds.cumsum(0) - kinds)[whose] + first[whose]
        total = torch.zeros_like(shorter[:, 0]).index_add_(0, whose, counts[at].to(shorter.dtype))
        left = torch.where(total > 0, cut * kinds / total.clamp(min=1), 1.0)
        own = (counts[at] - cut) / total[whose]
        return (shorter * left[:, None]).index_put_((whose, rows[at] % size), own, accumulate=True)

    def describe(self) -> Box:
        """A box for each length of rows."""
        whole = super().describe()
        tables = [(n, *self.table(n)) for n in range(1, self.config.order + 1)]
        boxes = tuple(
            Box(f"rows of {n}", "counted", len(rows), rows.nbytes + counts.nbytes, ((f"rows_{n}", tuple(rows.shape)),))
            for n, rows, counts in tables
        )
        return replace(whole, boxes=boxes, parameters=self.count_parameters())

    def count_parameters(self) -> int:
        """How many rows of words were counted."""
        return sum(len(self.table(n)[0]) for n in range(1, self.config.order + 1))


def _shown(ids: Tensor, real: Tensor | None) -> Tensor:
    return torch.ones_like(ids, dtype=torch.bool) if real is None else real.bool()


def _empty_row(ids: Tensor) -> Tensor:
    """The row of no words has the number 0 everywhere."""
    return torch.zeros_like(ids)
