"""A model leaving as a Hugging Face folder: the same tables as on the way in, read from the other side."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.huggingface.family import Family
from peasy.checkpoint.huggingface.registry import family_for, match
from peasy.checkpoint.huggingface.rule import take_out
from peasy.checkpoint.huggingface.sentence import write_pooling
from peasy.checkpoint.store import CONFIG, TOKENIZER, write_tokenizer
from peasy.checkpoint.tensors import SHARD_BYTES, write_tensors
from peasy.commit import committed
from peasy.models.config import Config, EncoderConfig, Special

TOKENIZER_SETTINGS = "tokenizer_config.json"
SPECIAL_TOKENS = {"padding": "pad_token", "begin": "bos_token", "mask": "mask_token", "unknown": "unk_token"}


def write_folder(
    folder: str | Path,
    config: Config,
    tensors: Mapping[str, Tensor],
    tokenizer: Any = None,
    *,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write a new folder that transformers (and for encoders sentence-transformers) loads; there whole or not at all.

    `tensors` have our names. `tokenizer` is anything with `save(path)`, or the path of a tokenizer.json.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> config = preset("gpt-tiny")
    >>> with TemporaryDirectory() as home:
    ...     sorted(file.name for file in write_folder(f"{home}/out", config, build(config).state_dict()).iterdir())
    ['config.json', 'model.safetensors']
    """
    family = family_for(config)
    theirs = their_tensors(family, config, tensors)
    with committed(folder) as part:
        write_tensors(part, theirs, shard_bytes=shard_bytes)
        _write(part / CONFIG, their_settings(family, config) | {"dtype": _dtype(theirs)})
        _write_tokenizer(part, tokenizer, config.special)
        if isinstance(config, EncoderConfig):
            write_pooling(part, config)
    return Path(folder)


def their_settings(family: Family, config: Any) -> dict[str, Any]:
    """What stands in their config.json."""
    architecture = family.called(config) if family.called else family.architectures[0]
    return {"architectures": [architecture], "model_type": family.name, **family.write(config)}


def their_tensors(family: Family, config: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under their names."""
    pairs, expected = match(family, config)
    theirs = take_out(pairs, tensors)
    assert theirs.keys() == expected.keys()
    if config.head is None:
        return {name.removeprefix(family.prefix): tensor for name, tensor in theirs.items()}
    return theirs


def _dtype(tensors: Mapping[str, Tensor]) -> str:
    return str(next(iter(tensors.values())).dtype).removeprefix("torch.")


def _write_tokenizer(folder: Path, tokenizer: Any, special: Special) -> None:
    if tokenizer is None:
        return
    write_tokenizer(folder / TOKENIZER, tokenizer)
    place = Folder(folder)
    words = {entry["id"]: entry["content"] for entry in place.read_json(TOKENIZER).get("added_tokens", [])}
    ids = {theirs: getattr(special, ours) for ours, theirs in SPECIAL_TOKENS.items()}
    ids["eos_token"] = special.end[0] if special.end else None
    named = {name: words[id] for name, id in ids.items() if id in words}
    kept = place.read_json(TOKENIZER_SETTINGS) if place.has(TOKENIZER_SETTINGS) else {}
    kept = {key: value for key, value in kept.items() if key not in ("auto_map", "peasy_vocabulary")}
    _write(folder / TOKENIZER_SETTINGS, {"tokenizer_class": "PreTrainedTokenizerFast", **named, **kept})


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
