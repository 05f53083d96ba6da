"""N-gram language model: interpolated counts with absolute discounting."""

from dataclasses import replace

import torch
from torch import Tensor

from peasy.models.config import NGramConfig
from peasy.models.describe import Box
from peasy.models.protocol import Model, ModelInputs
from peasy.models.token_window import TokenWindow, extend_window
from peasy.models.transformer import check_token_ids


class NGramModel(Model[TokenWindow]):
    """N-gram counts up to `order`, interpolated from short to long.

    An n-gram's id is (index of its first n-1 tokens in their table) * vocab_size + last token; `rows_n` holds the
    sorted ids that occurred and `counts_n` their counts. So each length is one sorted table in which the
    continuations of a context are adjacent.
    """

    config: NGramConfig
    trained_by = "counts"

    def __init__(self, config: NGramConfig) -> None:
        super().__init__(config)
        for n in range(1, config.order + 1):
            self.register_buffer(f"rows_{n}", torch.empty(0, dtype=torch.int64))
            self.register_buffer(f"counts_{n}", torch.empty(0, dtype=torch.int64))

    def table(self, n: int) -> tuple[Tensor, Tensor]:
        """Return the ids and counts of n-grams of length `n`."""
        return self.get_buffer(f"rows_{n}"), self.get_buffer(f"counts_{n}")

    def allocate(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Allocate tables of the shapes in a checkpoint, before they are loaded."""
        for n in range(1, self.config.order + 1):
            size = shapes.get(f"rows_{n}", (0,))
            for name in (f"rows_{n}", f"counts_{n}"):
                old = self.get_buffer(name)
                setattr(self, name, torch.empty(size[:1], dtype=torch.int64, device=old.device))

    def add_counts(self, ids: Tensor, padding_mask: Tensor | None = None) -> None:
        """Count all n-grams in `ids` `[batch, time]`; counts accumulate over calls."""
        check_token_ids(ids, self.config.vocab_size)
        contexts, new_index = _empty_context(ids), None
        _, padding_mask = extend_window(None, ids, padding_mask)
        for n in range(1, self.config.order + 1):
            ngram_ids, valid = self._ngram_ids(ids, padding_mask, contexts, n)
            new_index = self._merge_counts(n, ngram_ids[valid], new_index)
            contexts = torch.where(valid, torch.searchsorted(self.table(n)[0], ngram_ids), -1)

    def _merge_counts(self, n: int, ngram_ids: Tensor, new_index: Tensor | None) -> Tensor:
        """Add n-grams to the table of length n; return new indices of old rows. `new_index`: those of length n-1."""
        rows, counts = self.table(n)
        if new_index is not None and len(rows):
            rows = new_index[rows // self.config.vocab_size] * self.config.vocab_size + rows % self.config.vocab_size
        merged, index = torch.unique(torch.cat([rows, ngram_ids]), return_inverse=True)
        total = torch.zeros_like(merged)
        total.scatter_add_(0, index, torch.cat([counts, torch.ones_like(ngram_ids)]))
        setattr(self, f"rows_{n}", merged)
        setattr(self, f"counts_{n}", total)
        return index[: len(rows)]

    def _ngram_ids(self, ids: Tensor, padding_mask: Tensor, contexts: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Return the id of the n-gram that ends at each position, and where there is one."""
        previous = torch.cat([_empty_context(ids[:, :1]) - int(n > 1), contexts[:, :-1]], dim=1)
        return previous * self.config.vocab_size + ids, padding_mask & (previous >= 0)

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> TokenWindow:
        return TokenWindow(size=self.config.order - 1)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[TokenWindow]) -> Tensor:
        """Return for each token the table index of its contexts of 0, 1, ... tokens, -1 = never seen."""
        check_token_ids(ids, self.config.vocab_size)
        new = ids.shape[1]
        ids, padding_mask = extend_window(inputs.cache, ids, inputs.padding_mask)
        contexts = [_empty_context(ids)]
        for n in range(1, self.config.order):
            ngram_ids, valid = self._ngram_ids(ids, padding_mask, contexts[-1], n)
            rows, _ = self.table(n)
            index = torch.searchsorted(rows, ngram_ids)
            same = rows[index.clamp(max=len(rows) - 1)] == ngram_ids if len(rows) else False
            contexts.append(torch.where(valid & (index < len(rows)) & same, index, -1))
        return torch.stack(contexts, dim=-1)[:, -new:]

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return log-probabilities, interpolated from the shortest context to the longest."""
        contexts = hidden_states.reshape(-1, self.config.order)
        shape = len(contexts), self.config.vocab_size
        probabilities = torch.full(shape, 1 / self.config.vocab_size, device=hidden_states.device)
        for n in range(1, self.config.order + 1):
            probabilities = self._interpolate(probabilities, contexts[:, n - 1], n)
        return probabilities.log().reshape(*hidden_states.shape[:-1], -1)

    def _interpolate(self, lower_order: Tensor, context: Tensor, n: int) -> Tensor:
        (rows, counts), vocab_size, discount = self.table(n), self.config.vocab_size, self.config.discount
        first = torch.searchsorted(rows, context * vocab_size)
        distinct = torch.where(context >= 0, torch.searchsorted(rows, (context + 1) * vocab_size) - first, 0)
        owner = torch.repeat_interleave(torch.arange(len(context), device=rows.device), distinct)
        index = torch.arange(len(owner), device=rows.device) - (distinct.cumsum(0) - distinct)[owner] + first[owner]
        total = torch.zeros_like(lower_order[:, 0]).index_add_(0, owner, counts[index].to(lower_order.dtype))
        backoff = torch.where(total > 0, discount * distinct / total.clamp(min=1), 1.0)
        discounted = (counts[index] - discount) / total[owner]
        return (lower_order * backoff[:, None]).index_put_(
            (owner, rows[index] % vocab_size), discounted, accumulate=True
        )

    def describe(self) -> Box:
        """Return the model diagram with one box per n-gram length."""
        box = super().describe()
        boxes = tuple(
            Box(f"order {n}", "n-gram counts", len(rows), rows.nbytes + counts.nbytes, ((f"rows_{n}", (len(rows),)),))
            for n in range(1, self.config.order + 1)
            for rows, counts in [self.table(n)]
        )
        return replace(box, boxes=boxes, parameters=self.count_parameters())

    def count_parameters(self) -> int:
        """Return the number of distinct n-grams."""
        return sum(len(self.table(n)[0]) for n in range(1, self.config.order + 1))


def _empty_context(ids: Tensor) -> Tensor:
    """Return index 0, the empty context, at every position."""
    return torch.zeros_like(ids)
