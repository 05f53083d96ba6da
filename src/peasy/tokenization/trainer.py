"""Tokenizer training: characters, words, byte-level BPE, WordPiece or unigram."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from peasy.errors import InvalidInput, did_you_mean
from peasy.tokenization.encoding import WORD_PATTERN
from peasy.tokenization.tokenizer import Tokenizer, library_errors
from peasy.tokenization.tokenizer_validation import JsonDict

if TYPE_CHECKING:  # an extra: imported where it is used
    import tokenizers
    from tokenizers import trainers

SPECIAL_TOKENS = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>")
"""Special tokens of every trained tokenizer, its first ids."""

_UNK = "<unk>"
_LONG_RUN = re.compile(r"\S{256}(?=\S)")
"""Longer runs without a space are split to this length for training: merging is quadratic in their length."""


TOKENIZER_KINDS = {"characters": 5_000, "words": 20_000, "bpe": 8_000, "wordpiece": 8_000, "unigram": 8_000}
"""The kinds that can be trained, each with its default vocabulary size."""


def _make_parts(kind: str) -> "tuple[tokenizers.Tokenizer, Callable[..., trainers.Trainer]]":
    """Return an untrained tokenizer of this kind, and what makes its trainer."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    model: models.Model
    split: pre_tokenizers.PreTokenizer
    decoder: decoders.Decoder
    make_trainer: Callable[..., trainers.Trainer]
    match kind:
        case "characters":
            model, make_trainer = models.WordLevel(unk_token=_UNK), trainers.WordLevelTrainer
            split, decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
        case "words":
            model, make_trainer = models.WordLevel(unk_token=_UNK), trainers.WordLevelTrainer
            words = pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated")
            split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words])
            decoder = decoders.WordPiece(prefix="##", cleanup=True)
        case "bpe":
            # Single digits, so that unseen numbers can be copied and translated like any other.
            digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel
            split = pre_tokenizers.Sequence([digits, byte_level(add_prefix_space=False)])
            make_trainer = partial(trainers.BpeTrainer, initial_alphabet=sorted(byte_level.alphabet()))
            model, decoder = models.BPE(), decoders.ByteLevel()
        case "wordpiece":
            model, make_trainer = models.WordPiece(unk_token=_UNK), trainers.WordPieceTrainer
            split, decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##", cleanup=True)
        case _:
            model, make_trainer = models.Unigram(), partial(trainers.UnigramTrainer, unk_token=_UNK)
            split, decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    inner = Tokenizer(model)
    inner.pre_tokenizer, inner.decoder = split, decoder
    return inner, make_trainer


def train_tokenizer(
    corpus: Iterable[str],
    kind: str = "bpe",
    vocab_size: int | None = None,
    *,
    lowercase: bool = False,
    add_bos_eos: bool = False,
) -> Tokenizer:
    """Train a tokenizer on texts. `add_bos_eos` adds `<bos>` and `<eos>` to each encoded text.

    `bpe` is lossless for every text, `characters` for texts of known characters.

    >>> train_tokenizer(["low lower lowest"] * 9, kind="characters").encode("slow").pieces
    ('s', 'l', 'o', 'w')
    """
    if kind not in TOKENIZER_KINDS:
        hint = did_you_mean(kind, TOKENIZER_KINDS) or f"Known: {', '.join(TOKENIZER_KINDS)}."
        raise InvalidInput(f'There is no kind of tokenizer "{kind}".', hint=hint)
    size = TOKENIZER_KINDS[kind] if vocab_size is None else vocab_size
    minimum = len(SPECIAL_TOKENS) + (256 if kind == "bpe" else 1)
    if size < minimum:
        raise InvalidInput(f"A vocabulary of {size} is too small.", hint=f"{kind} needs at least {minimum}.")
    from tokenizers import normalizers, processors

    with library_errors(f"Training a tokenizer ({kind})"):
        inner, make_trainer = _make_parts(kind)
        if kind == "wordpiece":
            inner.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        elif lowercase:
            inner.normalizer = normalizers.Lowercase()
        texts: Iterable[str] = _split_long_runs(corpus)
        alphabet: list[str] = []
        if kind == "wordpiece":
            words = _count_words(inner, texts)
            texts = _repeat_words(words)
            # Characters at the start of words and inside them, sorted, so that their ids are reproducible.
            alphabet = sorted({word[0] for word in words})
            alphabet += sorted({"##" + char for word in words for char in word[1:]})
        special = [*SPECIAL_TOKENS, *alphabet]
        trainer = make_trainer(vocab_size=size, special_tokens=special, show_progress=False)
        inner.train_from_iterator(texts, trainer=trainer)
        if add_bos_eos:
            ends = [(name, inner.token_to_id(name)) for name in ("<bos>", "<eos>")]
            inner.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=ends)
        named = {f"{name[1:-1]}_token": name for name in SPECIAL_TOKENS}
        return Tokenizer(_make_reproducible(json.loads(inner.to_str())), named)


def _make_reproducible(data: JsonDict) -> JsonDict:
    """Make the result reproducible: the library sums scores in the order of a hash table."""
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in SPECIAL_TOKENS]
    vocabulary = data["model"]["vocab"]
    if isinstance(vocabulary, list):
        first, rest = vocabulary[: len(SPECIAL_TOKENS)], vocabulary[len(SPECIAL_TOKENS) :]
        data["model"]["vocab"] = first + _sort_tied_scores([(piece, round(score, 6)) for piece, score in rest])
    return data


def _sort_tied_scores(scored: list[tuple[str, float]]) -> list[list[str | float]]:
    """Sort the single characters at the bottom, 0.0001 apart, whose order depends on the library's hash table."""
    bottom = min((score for _, score in scored), default=0.0)
    steps = {piece: (score - bottom) / 0.0001 for piece, score in scored if len(piece) == 1}
    kept = [piece for piece, step in steps.items() if step < len(steps) and abs(step - round(step)) < 0.02]
    scores = dict(scored)
    reassigned = zip(sorted(kept), sorted((scores[piece] for piece in kept), reverse=True), strict=True)
    return [list(pair) for pair in sorted((scores | dict(reassigned)).items(), key=lambda pair: (-pair[1], pair[0]))]


def _count_words(inner: "tokenizers.Tokenizer", texts: Iterable[str]) -> Counter[str]:
    words: Counter[str] = Counter()
    for text in texts:
        normalized = inner.normalizer.normalize_str(text)
        words.update(word for word, _ in inner.pre_tokenizer.pre_tokenize_str(normalized))
    return words


def _repeat_words(words: Counter[str]) -> Iterator[str]:
    for word, count in words.items():
        for _ in range(count // 1000):
            yield f"{word} " * 1000
        yield f"{word} " * (count % 1000)


def _split_long_runs(corpus: Iterable[str]) -> Iterator[str]:
    if isinstance(corpus, str):
        raise InvalidInput("The corpus should be a list of texts, not one string.", hint="Put the text into a list.")
    empty = True
    for text in corpus:
        empty = empty and not text.strip()
        start = 0
        for run in _LONG_RUN.finditer(text):
            yield text[start : run.end()]
            start = run.end()
        yield text[start:]
    if empty:
        raise InvalidInput("There is no text to train a tokenizer on.")
