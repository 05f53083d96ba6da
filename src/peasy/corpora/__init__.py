"""Datasets: built-in and user corpora, token shards, stateless shuffling, batches as NumPy arrays.

May import: tokenization, config, extras, errors; no torch. Imported by: training, views, commands.
In: the name of a corpus, or files. Out: documents with a dataset card, and batches as plain arrays.
"""

from peasy.corpora.batches import Padded, Windows, padded, picks, window_count, windows, windows_in_order
from peasy.corpora.catalogue import BUILT_IN, open_corpus
from peasy.corpora.corpus import Card, Corpus, Problems, Size, Unlabelled
from peasy.corpora.order import indices, permute, share
from peasy.corpora.sample import Labelled, Pair, Probe, Sample
from peasy.corpora.shards import Column, Shards, fingerprint, open_shards, prepare

__all__ = [
    "BUILT_IN",
    "Card",
    "Column",
    "Corpus",
    "Labelled",
    "Padded",
    "Pair",
    "Probe",
    "Problems",
    "Sample",
    "Shards",
    "Size",
    "Unlabelled",
    "Windows",
    "fingerprint",
    "indices",
    "open_corpus",
    "open_shards",
    "padded",
    "permute",
    "picks",
    "prepare",
    "share",
    "window_count",
    "windows",
    "windows_in_order",
]
