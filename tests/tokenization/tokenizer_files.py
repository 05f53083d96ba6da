"""Tokenizer files of the kinds that published models have, with a small vocabulary."""

import json
from functools import cache
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from peasy.tokenization import Tokenizer

from .conftest import CORPUS

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _trained(model, trainer, special, **options):
    """Return a trained tokenizer of the library; `options` are parts of its pipeline."""
    tokenizer = tokenizers.Tokenizer(model)
    for name, part in options.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(CORPUS, trainer(vocab_size=600, special_tokens=special, show_progress=False))
    return tokenizer


def _template(tokenizer, single):
    names = [name for name in single.split() if not name.startswith("$")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names]
    )
    return tokenizer


def _byte_level(special, single=None, digits=False):
    split, alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.ByteLevel.alphabet()
    split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split]) if digits else split
    made = _trained(
        models.BPE(), lambda **more: trainers.BpeTrainer(initial_alphabet=alphabet, **more), special,
        pre_tokenizer=split, decoder=decoders.ByteLevel(),
    )  # fmt: skip
    return _template(made, single) if single else made


def _byte_fallback(special, strip):
    """Return a BPE tokenizer as Llama 2 (with `strip`) and Gemma have it: spaces are U+2581, rare characters bytes."""
    replace = normalizers.Replace(" ", "▁")
    first = [normalizers.Prepend("▁")] if strip else []
    made = _trained(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainers.BpeTrainer, [*special, *_BYTES],
        normalizer=normalizers.Sequence([*first, replace]),
        decoder=decoders.Sequence([
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if strip else []),
        ]),
    )  # fmt: skip
    data = json.loads(made.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in special]
    return _template(tokenizers.Tokenizer.from_str(json.dumps(data)), f"{special[1]} $A")


def _unigram(special=("<pad>", "</s>", "<unk>"), template="$A </s>"):
    space = pre_tokenizers.Metaspace(prepend_scheme="always")
    made = _trained(
        models.Unigram(), lambda **more: trainers.UnigramTrainer(unk_token="<unk>", **more), [*special],
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space]),
        decoder=decoders.Metaspace(prepend_scheme="always"),
    )  # fmt: skip
    return _template(made, template)


def _unigram_with_bytes():
    """Return a tokenizer that has a piece for each byte, and the unknown token at another place than T5."""
    data = json.loads(_unigram(("<pad>", "<unk>", "</s>")).to_str())
    data["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    data["model"]["byte_fallback"] = True
    return tokenizers.Tokenizer.from_str(json.dumps(data))


def _wordpiece(lowercase):
    made = _trained(
        models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        normalizer=normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(prefix="##"),
    )  # fmt: skip
    return _template(made, "[CLS] $A [SEP]")


def _clip():
    """Return CLIP's tokenizer: pieces at the end of a word end with </w>, which is a space when decoded."""
    pattern = tokenizers.Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    made = _trained(
        models.BPE(unk_token=_END, end_of_word_suffix="</w>"),
        lambda **more: trainers.BpeTrainer(end_of_word_suffix="</w>", **more), ["<|startoftext|>", _END],
        normalizer=normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "), normalizers.Lowercase()]
        ),
        pre_tokenizer=pre_tokenizers.Sequence(
            [pre_tokenizers.Split(pattern, "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
        decoder=decoders.ByteLevel(),
    )  # fmt: skip
    return _template(made, f"<|startoftext|> $A {_END}")


_END = "<|endoftext|>"
FILES = {
    "gpt2": (lambda: _byte_level([_END]), {"tokenizer_class": "GPT2Tokenizer", "bos_token": _END, "eos_token": _END}),
    "gpt2-prefix-space": (
        lambda: _byte_level([_END]),
        {"tokenizer_class": "GPT2Tokenizer", "eos_token": _END, "add_prefix_space": True},
    ),
    "gpt2-digits": (lambda: _byte_level([_END], digits=True), {"tokenizer_class": "GPT2Tokenizer", "eos_token": _END}),
    "mistral": (
        lambda: _byte_fallback(["<unk>", "<s>", "</s>"], strip=True),
        {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    ),
    "llama-3": (
        lambda: _byte_level(["<|begin|>", "<|end|>"], "<|begin|> $A"),
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>", "eos_token": "<|end|>"},
    ),
    "roberta": (
        lambda: _byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "<s> $A </s>"),
        {"tokenizer_class": "RobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>"},
    ),
    "llama": (
        lambda: _byte_fallback(["<unk>", "<s>", "</s>"], strip=True),
        {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    ),
    "llama-legacy": (
        lambda: _byte_fallback(["<unk>", "<s>", "</s>"], strip=True),
        {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "legacy": True},
    ),
    "llama-file": (
        lambda: _byte_fallback(["<unk>", "<s>", "</s>"], strip=True),
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"},
    ),
    "gemma": (
        lambda: _byte_fallback(["<unk>", "<bos>", "<eos>", "<pad>"], strip=False),
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"},
    ),
    "gemma-class": (
        lambda: _byte_fallback(["<unk>", "<bos>", "<eos>", "<pad>"], strip=False),
        {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "mask_token": None},
    ),
    "t5": (
        _unigram,
        {
            "tokenizer_class": "T5Tokenizer",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "extra_ids": 0,
        },
    ),
    "t5-unknown": (
        _unigram_with_bytes,  # transformers gives unknown characters the id 2 all the same, and never bytes
        {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>", "extra_ids": 0},
    ),
    "pegasus": (_unigram, {"tokenizer_class": "PegasusTokenizer", "eos_token": "</s>", "unk_token": "<unk>"}),
    "mbart": (
        lambda: _unigram(("<s>", "<pad>", "</s>", "<unk>", "en_XX"), "$A </s> en_XX"),
        {"tokenizer_class": "MBartTokenizer", "bos_token": "<s>", "eos_token": "</s>"},
    ),
    "bert": (lambda: _wordpiece(False), {"tokenizer_class": "BertTokenizer", "do_lower_case": True}),
    "bert-cased": (lambda: _wordpiece(True), {"tokenizer_class": "BertTokenizer", "do_lower_case": False}),
}
"""For each kind: tokenizer.json, and what tokenizer_config.json says; they differ as in published models."""

OF_ENCODERS = {"clip": (_clip, {"tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>", "eos_token": _END})}
"""The same for models that generate no text."""


@cache
def file_contents(name: str) -> tuple[str, str]:
    """Return the contents of tokenizer.json and tokenizer_config.json."""
    make, config = (FILES | OF_ENCODERS)[name]
    return make().to_str(), json.dumps(config)


def write_files(name: str, folder: Path) -> None:
    """Write both files."""
    for file, content in zip(("tokenizer.json", "tokenizer_config.json"), file_contents(name), strict=True):
        (folder / file).write_text(content, encoding="utf-8")


@cache
def make_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of the files."""
    return Tokenizer.from_json(*file_contents(name))
