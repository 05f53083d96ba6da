"""Datasets: built-in and user corpora, token shards, stateless shuffling, batches as NumPy arrays.

May import: tokenization, config, extras, errors; no torch. Imported by: training, views, commands.
In: the name of a corpus, or files. Out: documents with a dataset card, and batches as plain arrays.
"""

from peasy.datasets.batches import (
    PaddedBatch,
    WindowBatch,
    bucketed_indices,
    num_windows,
    padded_batch,
    permute,
    rank_slice,
    sequential_windows,
    shuffled_indices,
    window_batch,
)
from peasy.datasets.catalogue import BUILT_IN, open_corpus
from peasy.datasets.corpus import (
    Conversation,
    Corpus,
    DataProblems,
    DatasetCard,
    LabelledText,
    Probe,
    Sample,
    SplitSize,
    TextPair,
    UnlabelledCorpus,
    sample_texts,
)
from peasy.datasets.shards import TokenColumn, TokenShards, open_shards, prepare_shards, shards_fingerprint

__all__ = [
    "BUILT_IN", "Conversation", "Corpus", "DataProblems", "DatasetCard", "LabelledText", "PaddedBatch", "Probe",
    "Sample", "SplitSize", "TextPair", "TokenColumn", "TokenShards", "UnlabelledCorpus", "WindowBatch",
    "bucketed_indices", "num_windows",
    "open_corpus", "open_shards", "padded_batch", "permute", "prepare_shards", "rank_slice", "sample_texts",
    "sequential_windows", "shards_fingerprint", "shuffled_indices", "window_batch",
]  # fmt: skip
