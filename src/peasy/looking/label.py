"""Labels: the words and facts without which an array means nothing. Plain data, no torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from peasy.nn.place import Place

CAVEAT = "weights show where a head looked, not why the model answered; switch it off to test."
"""Stands beside every attention picture."""

MERGED = "Words: weights summed over the tokens of a key word, averaged over those of a query word."
"""How sub-words become words; stands wherever words are shown."""


@dataclass(frozen=True)
class Tokens:
    """A text as the model read it, along one axis.

    `pieces` are readable (`·the`, `⏎`, `<eos>`). `words` are whole words, and `groups` the places of the tokens of
    each: every token is in exactly one group, in order; `<eos>` and blanks are words of their own. `numbers` gives
    each word its number as `split_words` counts the text's words, None for what is not one of them.
    """

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    words: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    numbers: tuple[int | None, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Grid:
    """Numbers with a name for each row and column: `np.asarray(grid)` is the bare array.

    Rows are queries and columns are keys unless the axes say otherwise.
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
        """How many rows and columns."""
        return self.values.shape

    def __repr__(self) -> str:
        return f"Grid({self.name}: {len(self.rows)} x {len(self.columns)}, {self.row_axis} x {self.column_axis})"


@dataclass(frozen=True)
class Part:
    """What one attention of a model is: facts that a picture of it must not hide.

    `key_head[h]` is the head of keys and values that query head h shares with others (h itself, where none does).
    `window`: how many places back (and forward, in an encoder) it sees at most; None = all. `causal`: it only looks
    back. `cross`: its keys are the source's. `scale` is what products of queries and keys are multiplied with (None: it
    scores in another way), `softcap` what they are kept within.
    """

    place: Place
    heads: int
    key_head: tuple[int, ...]
    window: int | None = None
    causal: bool = False
    cross: bool = False
    scale: float | None = None
    softcap: float | None = None

    @property
    def grouped(self) -> bool:
        """Do query heads share keys and values?"""
        return len(set(self.key_head)) < self.heads


@dataclass(frozen=True)
class Candidate:
    """A token that could come next, and its probability."""

    piece: str
    id: int
    chance: float
