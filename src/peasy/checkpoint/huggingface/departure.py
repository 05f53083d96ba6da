"""Save a model as a Hugging Face folder, with the same weight maps as for loading, in reverse."""

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
    """Write a new folder that transformers (for encoders also sentence-transformers) can load, atomically.

    `tensors` have peasy's names. `tokenizer` is anything with `save(path)`, or the path of a tokenizer.json.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> config = preset("gpt-tiny")
    >>> with TemporaryDirectory() as home:
    ...     sorted(file.name for file in write_folder(f"{home}/out", config, build(config).state_dict()).iterdir())
    ['config.json', 'model.safetensors']
    """
    family = family_for(config)
    hf_tensors = their_tensors(family, config, tensors)
    with committed(folder) as temporary:
        write_tensors(temporary, hf_tensors, shard_bytes=shard_bytes)
        _write(temporary / CONFIG, their_settings(family, config) | {"dtype": _dtype(hf_tensors)})
        _write_tokenizer(temporary, tokenizer, config.special)
        if isinstance(config, EncoderConfig):
            write_pooling(temporary, config)
    return Path(folder)


def their_settings(family: Family, config: Any) -> dict[str, Any]:
    """Return the contents of config.json."""
    architecture = family.called(config) if family.called else family.architectures[0]
    return {"architectures": [architecture], "model_type": family.name, **family.write(config)}


def their_tensors(family: Family, config: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their Hugging Face names."""
    pairs, expected = match(family, config)
    renamed = take_out(pairs, tensors)
    assert renamed.keys() == expected.keys()
    if config.head is None:
        return {name.removeprefix(family.prefix): tensor for name, tensor in renamed.items()}
    return renamed


def _dtype(tensors: Mapping[str, Tensor]) -> str:
    return str(next(iter(tensors.values())).dtype).removeprefix("torch.")


def _write_tokenizer(folder: Path, tokenizer: Any, special: Special) -> None:
    if tokenizer is None:
        return
    write_tokenizer(folder / TOKENIZER, tokenizer)
    safe_folder = Folder(folder)
    contents = {entry["id"]: entry["content"] for entry in safe_folder.read_json(TOKENIZER).get("added_tokens", [])}
    ids = {token: getattr(special, attribute) for attribute, token in SPECIAL_TOKENS.items()}
    ids["eos_token"] = special.end[0] if special.end else None
    special_tokens = {name: contents[id] for name, id in ids.items() if id in contents}
    existing = safe_folder.read_json(TOKENIZER_SETTINGS) if safe_folder.has(TOKENIZER_SETTINGS) else {}
    existing = {key: value for key, value in existing.items() if key not in ("auto_map", "peasy_vocabulary")}
    _write(folder / TOKENIZER_SETTINGS, {"tokenizer_class": "PreTrainedTokenizerFast", **special_tokens, **existing})


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
