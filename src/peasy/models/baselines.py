"""Baseline language models: LSTM or GRU, causal convolutions, n-gram counts, and word2vec."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from peasy.models.config import ConvolutionConfig, NGramConfig, RecurrentConfig, Word2VecConfig
from peasy.models.describe import Box
from peasy.models.protocol import Model, ModelInputs, State
from peasy.models.transformer import check_token_ids, normalize_padding_mask
from peasy.nn import config as nn_config
from peasy.nn.convolution import ConvolutionState, GatedConvolution
from peasy.nn.kv_cache import ForwardOnlyState
from peasy.nn.lm_head import LMHead
from peasy.nn.module_path import ModulePath
from peasy.nn.recurrent import Recurrent, RecurrentState
from peasy.nn.tap import record_step


class _EmbeddingModel(Model[State]):
    """Base of the models with a plain token embedding."""

    embedding: nn.Embedding
    lm_head: LMHead

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next token (of any neighbour, for skip-gram)."""
        return self.lm_head(hidden_states, self.embedding.weight)


class RecurrentModel(_EmbeddingModel[RecurrentState]):
    """Recurrent language model: embedding, LSTM or GRU, LM head."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.decoder = Recurrent(config.cell, config.d_model, config.d_model, config.num_layers, config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.lm_head = LMHead(config.vocab_size, config.d_model, config.lm_head)

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> RecurrentState:
        return RecurrentState()

    def _hidden(self, ids: Tensor, inputs: ModelInputs[RecurrentState]) -> Tensor:
        check_token_ids(ids, self.config.vocab_size)
        x, cache = self.dropout(self.embedding(ids)), inputs.cache
        record_step(inputs.tap, ModulePath("decoder", 0, "stream"), "residual", x)
        old_state = None if cache is None else cache.hidden_state
        outputs, state = self.decoder(x, old_state, normalize_padding_mask(inputs.padding_mask))
        if cache is not None:
            cache.hidden_state, cache.length = state, cache.length + ids.shape[1]
        record_step(inputs.tap, ModulePath("decoder", self.config.num_layers, "stream"), "final", outputs)
        return self.dropout(outputs)


class ConvolutionModel(_EmbeddingModel[ConvolutionState]):
    """Convolutional language model: embedding, gated convolutions, norm, LM head."""

    config: ConvolutionConfig

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(
            GatedConvolution(config.d_model, config.kernel_size, config.dilation**layer, path, config.dropout)
            for layer in range(config.num_layers)
            for path in [ModulePath("decoder", layer, "convolution")]
        )
        self.norm = nn.LayerNorm(config.d_model)
        self.lm_head = LMHead(config.vocab_size, config.d_model, config.lm_head)

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> ConvolutionState:
        return ConvolutionState([None] * self.config.num_layers)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[ConvolutionState]) -> Tensor:
        check_token_ids(ids, self.config.vocab_size)
        padding_mask, x, cache = normalize_padding_mask(inputs.padding_mask), self.embedding(ids), inputs.cache
        left_contexts = [None] * len(self.blocks) if cache is None else cache.layer_inputs
        for layer, block in enumerate(self.blocks):
            record_step(inputs.tap, ModulePath("decoder", layer, "stream"), "residual", x)
            x, left_contexts[layer] = block(x, left_contexts[layer], padding_mask, inputs.tap)
        if cache is not None:
            cache.length += ids.shape[1]
        x = self.norm(x)
        record_step(inputs.tap, ModulePath("decoder", len(self.blocks), "stream"), "final", x)
        return x


@dataclass(eq=False)
class _TokenWindow(ForwardOnlyState):
    """The last `size` ids of each sequence, and their padding mask."""

    size: int
    ids: Tensor | None = None
    padding_mask: Tensor | None = None
    length: int = 0

    def extend(self, ids: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Append new ids; return them after the kept ones."""
        self.length += ids.shape[1]
        if self.ids is not None and self.padding_mask is not None:
            ids, padding_mask = torch.cat([self.ids, ids], dim=1), torch.cat([self.padding_mask, padding_mask], dim=1)
        start = max(ids.shape[1] - self.size, 0)
        self.ids, self.padding_mask = ids[:, start:], padding_mask[:, start:]
        return ids, padding_mask


class Word2VecModel(_EmbeddingModel[_TokenWindow]):
    """Word2vec: the mean vector of the last words predicts the next word.

    With the task "skip-gram" a word predicts any of its neighbours.
    """

    config: Word2VecConfig

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.lm_head = LMHead(config.vocab_size, config.d_model, nn_config.LMHeadConfig(tied=False))

    @property
    def window(self) -> int:
        """Number of words from which the next one is predicted."""
        return self.config.window if self.config.task == "next" else 1

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> _TokenWindow:
        return _TokenWindow(size=self.window - 1)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[_TokenWindow]) -> Tensor:
        """Return the mean vector of the last words up to each token."""
        check_token_ids(ids, self.config.vocab_size)
        new = ids.shape[1]
        ids, padding_mask = _extend_window(inputs.cache, ids, inputs.padding_mask)
        before = self.window - 1, 0
        words, mask = (pad(array, before).unfold(1, self.window, 1)[:, -new:] for array in (ids, padding_mask))
        weight = mask[..., None].to(self.embedding.weight.dtype)
        x = (self.embedding(words) * weight).sum(dim=2) / weight.sum(dim=2).clamp(min=1)
        record_step(inputs.tap, ModulePath("words", 0, "stream"), "residual", x)
        return x


class NGramModel(Model[_TokenWindow]):
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
        contexts, new_index = torch.zeros_like(ids), None  # index 0: the empty context
        _, padding_mask = _extend_window(None, ids, padding_mask)
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
        previous = torch.cat([torch.zeros_like(ids[:, :1]) - int(n > 1), contexts[:, :-1]], dim=1)
        return previous * self.config.vocab_size + ids, padding_mask & (previous >= 0)

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> _TokenWindow:
        return _TokenWindow(size=self.config.order - 1)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[_TokenWindow]) -> Tensor:
        """Return for each token the table index of its contexts of 0, 1, ... tokens, -1 = never seen."""
        check_token_ids(ids, self.config.vocab_size)
        new = ids.shape[1]
        ids, padding_mask = _extend_window(inputs.cache, ids, inputs.padding_mask)
        contexts = [torch.zeros_like(ids)]
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
            context = contexts[:, n - 1]
            (rows, counts), vocab_size, discount = self.table(n), self.config.vocab_size, self.config.discount
            first = torch.searchsorted(rows, context * vocab_size)
            distinct = torch.where(context >= 0, torch.searchsorted(rows, (context + 1) * vocab_size) - first, 0)
            owner = torch.repeat_interleave(torch.arange(len(context), device=rows.device), distinct)
            index = torch.arange(len(owner), device=rows.device) - (distinct.cumsum(0) - distinct)[owner] + first[owner]
            total = torch.zeros_like(probabilities[:, 0]).index_add_(0, owner, counts[index].to(probabilities.dtype))
            backoff = torch.where(total > 0, discount * distinct / total.clamp(min=1), 1.0)
            discounted = (counts[index] - discount) / total[owner]
            cells = owner, rows[index] % vocab_size
            probabilities = (probabilities * backoff[:, None]).index_put_(cells, discounted, accumulate=True)
        return probabilities.log().reshape(*hidden_states.shape[:-1], -1)

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


def _extend_window(window: _TokenWindow | None, ids: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return ids and padding mask (True = token) after those in the window, to which they are appended."""
    mask = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask.bool()
    return (ids, mask) if window is None else window.extend(ids, mask)
