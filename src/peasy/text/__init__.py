"""Tokenizers: training, loading, encoding, incremental decoding and chat templates.

May import: config, errors; no torch. Imported by: every package that handles text.
In: text, or a tokenizer.json. Out: ids with pieces, offsets and words, and text again.
"""

from peasy.text.encoding import Encoding
from peasy.text.sentencepiece import from_sentencepiece
from peasy.text.stream import Stream
from peasy.text.tokenizer import Special, Tokenizer
from peasy.text.train import KINDS, train
from peasy.text.vocabulary import from_merges, from_words

__all__ = [
    "KINDS",
    "Encoding",
    "Special",
    "Stream",
    "Tokenizer",
    "from_merges",
    "from_sentencepiece",
    "from_words",
    "train",
]
