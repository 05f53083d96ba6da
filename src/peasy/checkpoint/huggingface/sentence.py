"""Pooling configuration of sentence-transformers: modules.json, 1_Pooling and maximum length."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

from peasy.checkpoint.folder import Folder, parse_json, short
from peasy.errors import InvalidInput
from peasy.models.config import Config, EncoderConfig

MODULES = "modules.json"
LENGTH = "sentence_bert_config.json"
POOLING = "1_Pooling"
"""Fixed folder name; a path in modules.json is not followed."""

Mode = Literal["mean", "first", "max", "pooler"]
MODES: dict[str, Mode] = {"mean": "mean", "cls": "first", "max": "max"}
OLDER = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def read_pooling(folder: Folder, config: Config) -> Config:
    """Return the config with the folder's pooling settings; unchanged if the folder has none."""
    if not isinstance(config, EncoderConfig) or not folder.has(MODULES):
        return config
    kinds = _read_kinds(folder)
    unsupported = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if unsupported:
        raise InvalidInput(f"{folder.path / MODULES}: the module {short(unsupported[0])} is not supported.")
    mode = _read_mode(folder) if "Pooling" in kinds else config.pooling
    longest = _read_longest(folder, config.context)
    return dataclasses.replace(config, pooling=mode, normalise="Normalize" in kinds, longest=longest)


def write_pooling(folder: Path, config: EncoderConfig) -> None:
    """Write the files with which sentence-transformers computes the same embeddings as our encoder."""
    if config.pooling == "pooler":
        return  # sentence-transformers has no such pooling; the folder is still a valid encoder
    steps = [("", "Transformer"), (POOLING, "Pooling"), *([("2_Normalize", "Normalize")] if config.normalise else [])]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(steps)
    ]
    hf_modes = {mode: hf_mode for hf_mode, mode in MODES.items()}
    dimension = {"word_embedding_dimension": config.d_model}
    flags = {flag: hf_mode == hf_modes[config.pooling] for flag, hf_mode in OLDER.items()}
    (folder / POOLING).mkdir()
    _write(folder / MODULES, modules)
    _write(folder / POOLING / "config.json", dimension | flags)
    _write(folder / LENGTH, {"max_seq_length": config.longest or config.context, "do_lower_case": False})


def _read_kinds(folder: Folder) -> list[str]:
    where = str(folder.path / MODULES)
    modules = parse_json(folder.read(MODULES), where)
    types = [module.get("type") for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    kinds = [name.rsplit(".", 1)[-1] for name in types if isinstance(name, str)]
    if not kinds or len(kinds) != len(modules):
        raise InvalidInput(f"{where} should be a list of modules, each with a type.")
    return kinds


def _read_longest(folder: Folder, context: int | None) -> int | None:
    longest = folder.read_json(LENGTH).get("max_seq_length") if folder.has(LENGTH) else None
    if longest is not None and (type(longest) is not int or longest < 1):
        raise InvalidInput(f"{folder.path / LENGTH}: max_seq_length should be an integer, not {short(longest)}.")
    return None if longest is None or (context is not None and longest >= context) else longest


def _read_mode(folder: Folder) -> Mode:
    if (folder.path / POOLING).is_symlink():
        raise InvalidInput(f"{folder.path / POOLING} is a link; it must be a real folder.")
    inner = Folder(folder.path / POOLING)
    pooling = inner.read_json("config.json")
    modes = pooling.get("pooling_mode", [mode for flag, mode in OLDER.items() if pooling.get(flag) is True])
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in MODES:
        hint = f"Supported, one at a time: {', '.join(MODES)}."
        raise InvalidInput(f"{inner.path}: the pooling {short(modes)} is not supported.", hint=hint)
    return MODES[modes[0]]


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
