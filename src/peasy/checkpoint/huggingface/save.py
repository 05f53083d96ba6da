"""Save a model as a Hugging Face folder, with the same weight maps as for loading, in reverse."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from peasy.atomic import atomic_dir
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.registry import family_for, match_weights
from peasy.checkpoint.huggingface.sentence_transformers import write_pooling
from peasy.checkpoint.huggingface.weight_map import export_weights
from peasy.checkpoint.safe_folder import SafeFolder, write_json
from peasy.checkpoint.store import (
    CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    TokenizerSource,
    write_tokenizer,
)
from peasy.checkpoint.tensors import SHARD_BYTES, write_tensors
from peasy.models.config import EncoderConfig, ModelConfig, SpecialTokensConfig


def write_folder(
    folder: str | Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: TokenizerSource = None,
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
    hf_tensors = _hf_weights(family, config, tensors)
    architecture = family.architecture_of(config) if family.architecture_of else family.architectures[0]
    hf_config = {"architectures": [architecture], "model_type": family.name, **family.write_config(config)}
    dtype = str(next(iter(hf_tensors.values())).dtype).removeprefix("torch.")
    with atomic_dir(folder) as temporary:
        write_tensors(temporary, hf_tensors, shard_bytes=shard_bytes)
        write_json(temporary / CONFIG_FILE, hf_config | {"dtype": dtype})
        _write_tokenizer(temporary, tokenizer, config.special_tokens)
        if isinstance(config, EncoderConfig):
            write_pooling(temporary, config)
    return Path(folder)


def _hf_weights(family: ModelFamily, config: ModelConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their Hugging Face names."""
    pairs, expected = match_weights(family, config)
    renamed = export_weights(pairs, tensors)
    assert renamed.keys() == expected.keys()
    if getattr(config, "lm_head", None) is None:
        return {name.removeprefix(family.prefix): tensor for name, tensor in renamed.items()}
    return renamed


def _write_tokenizer(folder: Path, tokenizer: TokenizerSource, special: SpecialTokensConfig) -> None:
    if tokenizer is None:
        return
    write_tokenizer(folder / TOKENIZER_FILE, tokenizer)
    safe_folder = SafeFolder(folder)
    contents = {
        entry["id"]: entry["content"] for entry in safe_folder.read_json(TOKENIZER_FILE).get("added_tokens", [])
    }
    ids = {f"{role}_token": getattr(special, role) for role in ("pad", "bos", "mask", "unk")}
    ids["eos_token"] = special.eos[0] if special.eos else None
    special_tokens = {name: contents[id] for name, id in ids.items() if id in contents}
    existing = safe_folder.read_json(TOKENIZER_CONFIG_FILE) if safe_folder.has(TOKENIZER_CONFIG_FILE) else {}
    existing = {key: value for key, value in existing.items() if key not in ("auto_map", "peasy_vocab_size")}
    write_json(
        folder / TOKENIZER_CONFIG_FILE, {"tokenizer_class": "PreTrainedTokenizerFast", **special_tokens, **existing}
    )
