"""Datasets: built-in and user corpora, token shards, stateless shuffling, batches as NumPy arrays.

May import: tokenization, config, extras, errors; no torch. Imported by: training, views, commands.
In: the name of a corpus, or files. Out: documents with a dataset card, and batches as plain arrays.
"""

from peasy.datasets.catalogue import BUILT_IN, open_corpus
from peasy.datasets.corpus import (
    Conversation,
    Corpus,
    DataProblems,
    DatasetCard,
    LabelledText,
    Probe,
    Sample,
    TextPair,
    UnlabelledCorpus,
    sample_texts,
)

__all__ = [
    "BUILT_IN", "Conversation", "Corpus", "DataProblems", "DatasetCard", "LabelledText", "Probe", "Sample", "TextPair",
    "UnlabelledCorpus", "open_corpus", "sample_texts",
]  # fmt: skip
