"""Tokenizers: training, loading, encoding, incremental decoding and chat templates.

May import: config, errors; no torch. Imported by: every package that handles text.
In: text, or a tokenizer.json. Out: ids with pieces, offsets and words, and text again.
"""

from peasy.tokenization.convert import from_merges, from_sentencepiece, from_vocab_txt
from peasy.tokenization.encoding import Encoding
from peasy.tokenization.tokenizer import IncrementalDecoder, SpecialTokenIds, Tokenizer
from peasy.tokenization.trainer import TOKENIZER_KINDS, train_tokenizer

__all__ = [
    "TOKENIZER_KINDS", "Encoding", "IncrementalDecoder", "SpecialTokenIds", "Tokenizer", "from_merges",
    "from_sentencepiece", "from_vocab_txt", "train_tokenizer",
]  # fmt: skip
