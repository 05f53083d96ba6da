"""Labels of captured arrays: tokens, labelled matrices, facts about an attention. Plain data, no torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from peasy.nn.module_path import ModulePath

CAVEAT = "weights show where a head attends, not why the model answered; ablate it to test."
"""Shown with every attention picture."""

WORD_MERGE_NOTE = "Words: weights summed over the tokens of a key word, averaged over those of a query word."
"""How sub-words are merged; shown wherever words are shown."""


@dataclass(frozen=True)
class Tokens:
    """Tokens of a sequence, as labels of one axis.

    `pieces` are printable (`·the`, `⏎`, `<eos>`). `words` are whole words, and `word_positions` the token positions of
    each: every token is in exactly one word, in order; `<eos>` and spaces are separate words. `word_numbers`: number of
    each word as counted by `split_words`, None for special tokens and spaces.
    """

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    words: tuple[str, ...]
    word_positions: tuple[tuple[int, ...], ...]
    word_numbers: tuple[int | None, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class LabelledMatrix:
    """Matrix with a label for each row and column; `np.asarray(matrix)` is the bare array.

    Rows are queries and columns are keys by default.
    """

    values: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str = "query"
    column_axis: str = "key"
    name: str = ""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows and columns."""
        return self.values.shape

    def __repr__(self) -> str:
        size = f"{len(self.rows)} x {len(self.columns)}"
        return f"{type(self).__name__}({self.name}: {size}, {self.row_axis} x {self.column_axis})"


@dataclass(frozen=True)
class AttentionInfo:
    """Configuration of one attention, shown with every picture of it.

    `kv_head[h]`: KV head of query head h (grouped-query attention; h itself without grouping). `window`: sliding window
    in positions (both directions in an encoder), None = all. `cross`: keys come from the encoder. `scale`: factor of
    the query-key products (None = other scoring). `softcap`: bound of the scores.
    """

    path: ModulePath
    num_heads: int
    kv_head: tuple[int, ...]
    window: int | None = None
    causal: bool = False
    cross: bool = False
    scale: float | None = None
    softcap: float | None = None

    @property
    def is_grouped(self) -> bool:
        """True if query heads share KV heads."""
        return len(set(self.kv_head)) < self.num_heads


@dataclass(frozen=True)
class TokenProbability:
    """Candidate next token and its probability."""

    piece: str
    id: int
    probability: float
