"""The files that sentence-transformers puts beside an encoder: how token vectors become one vector of the text."""

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
"""The folder is always called so; a path that modules.json names is not followed."""

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
    """The settings with the pooling that the folder names; unchanged where it names none."""
    if not isinstance(config, EncoderConfig) or not folder.has(MODULES):
        return config
    kinds = _read_kinds(folder)
    extra = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if extra:
        raise InvalidInput(f"{folder.path / MODULES}: the module {short(extra[0])} is not supported.")
    mode = _read_mode(folder) if "Pooling" in kinds else config.pooling
    longest = _read_longest(folder, config.context)
    return dataclasses.replace(config, pooling=mode, normalise="Normalize" in kinds, longest=longest)


def write_pooling(folder: Path, config: EncoderConfig) -> None:
    """The files by which sentence-transformers gives the vectors that our encoder gives."""
    if config.pooling == "pooler":
        return  # It has no name for this one; the folder is still a plain encoder.
    steps = [("", "Transformer"), (POOLING, "Pooling"), *([("2_Normalize", "Normalize")] if config.normalise else [])]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(steps)
    ]
    words = {ours: theirs for theirs, ours in MODES.items()}
    told = {"word_embedding_dimension": config.d_model}
    chosen = {older: theirs == words[config.pooling] for older, theirs in OLDER.items()}
    (folder / POOLING).mkdir()
    _write(folder / MODULES, modules)
    _write(folder / POOLING / "config.json", told | chosen)
    _write(folder / LENGTH, {"max_seq_length": config.longest or config.context, "do_lower_case": False})


def _read_kinds(folder: Folder) -> list[str]:
    where = str(folder.path / MODULES)
    listed = parse_json(folder.read(MODULES), where)
    types = [each.get("type") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    kinds = [each.rsplit(".", 1)[-1] for each in types if isinstance(each, str)]
    if not kinds or len(kinds) != len(listed):
        raise InvalidInput(f"{where} should be a list of modules, each with its type.")
    return kinds


def _read_longest(folder: Folder, context: int | None) -> int | None:
    longest = folder.read_json(LENGTH).get("max_seq_length") if folder.has(LENGTH) else None
    if longest is not None and (type(longest) is not int or longest < 1):
        raise InvalidInput(f"{folder.path / LENGTH}: max_seq_length should be a whole number, not {short(longest)}.")
    return None if longest is None or (context is not None and longest >= context) else longest


def _read_mode(folder: Folder) -> Mode:
    if (folder.path / POOLING).is_symlink():
        raise InvalidInput(f"{folder.path / POOLING} is a link; only a real folder is followed.")
    inner = Folder(folder.path / POOLING)
    told = inner.read_json("config.json")
    modes = told.get("pooling_mode", [word for older, word in OLDER.items() if told.get(older) is True])
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in MODES:
        hint = f"Supported, one at a time: {', '.join(MODES)}."
        raise InvalidInput(f"{inner.path}: the pooling {short(modes)} is not supported.", hint=hint)
    return MODES[modes[0]]


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
