"""Hugging Face folder: reads and checks its config and weights under peasy's names; writes the same in reverse."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from pathlib import Path

import torch
from torch import Tensor

from peasy.atomic import atomic_dir
from peasy.checkpoint import ram
from peasy.checkpoint.huggingface import registry
from peasy.checkpoint.huggingface.config_fields import ConfigFields
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.sentence_transformers import DENSE, read_pooling, write_pooling
from peasy.checkpoint.huggingface.weight_map import TensorPair, export_weights, import_weights, match_pattern
from peasy.checkpoint.safe_folder import SafeFolder, join_names, write_json
from peasy.checkpoint.store import (
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    TokenizerSource,
    write_tokenizer,
)
from peasy.checkpoint.tensors import SHARD_BYTES, TensorStore, open_tensors, write_tensors
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.config import EncoderConfig, ModelConfig, SpecialTokensConfig
from peasy.models.protocol import Model
from peasy.parameters import Record

_GENERATION_IDS = ("eos_token_id", "decoder_start_token_id", "forced_bos_token_id")


class HFCheckpoint(Record, eq=False):
    """A Hugging Face checkpoint with checked names and shapes; weights are read only when `tensors` is accessed.

    `weights` have the names of the weight map; `unused` are stored weights that peasy has no use for,
    `unused_fields` fields of config.json that it does not know.
    """

    folder: SafeFolder
    family: str
    config: ModelConfig
    unused: tuple[str, ...]
    unused_fields: tuple[str, ...]
    pairs: Sequence[TensorPair]
    weights: TensorStore

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Weights by peasy's names, as views of the mapped file; NaN or infinity is an error."""
        return import_weights(self.pairs, self.weights)


def read_folder(
    folder: str | Path, *, tensors: TensorStore | None = None, family: str | None = None, ignore_extra: bool = False
) -> HFCheckpoint:
    """Read config.json and check the names and shapes of all weights against it.

    `tensors`: the weights, if the folder has only config.json. `family`: its family, if config.json has no model_type.
    `ignore_extra`: weights of parts that peasy does not know and fields of config.json that it does not know are not
    read, but listed in `unused` and `unused_fields`.
    """
    safe_folder = SafeFolder(folder)
    where = str(safe_folder.path / CONFIG_FILE)
    whole_config = safe_folder.read_json(CONFIG_FILE)
    data = registry.language_model_config(whole_config)
    ignore_weights = ignore_extra or data is not whole_config  # those of images
    data = {**data, **_generation_ids(safe_folder)}
    model_family = registry.detect_family(data, where, name=family, any_head=ignore_extra)
    tensors = open_tensors(safe_folder) if tensors is None else tensors
    ram.require_ram(tensors.nbytes, str(safe_folder.path))  # before any weight is read: tied copies are compared
    new_names = {name: _modern_name(name) for name in tensors}
    is_base_model = not any(name.startswith(model_family.prefix) for name in new_names.values())  # without the prefix
    prefix = model_family.prefix if is_base_model else ""
    names = {name: model_family.aliases.get(new, prefix + new) for name, new in new_names.items()}
    stored = tensors.renamed({new: name for name, new in names.items()})
    fields = ConfigFields(data, where)
    hf_config = registry.read_hf_config(model_family, fields, stored, ignore_extra=ignore_extra)
    config, dense = read_pooling(safe_folder, hf_config)
    stored = stored | dense
    pairs, expected = registry.match_weights(model_family, config, where)
    weights, unused = _select_weights(stored, model_family, config, expected, ignore_weights)
    return HFCheckpoint(safe_folder, model_family.name, config, unused, fields.unknown(), pairs, weights)


def _generation_ids(folder: SafeFolder) -> dict[str, object]:
    """Return the ids at which generation starts and ends in generation_config.json, which has them before config.json.

    Chat models often end a turn with an id that only this file names. Sampling settings are left to the caller.
    """
    data = folder.read_json(GENERATION_FILE) if folder.has(GENERATION_FILE) else {}
    return {name: data[name] for name in _GENERATION_IDS if data.get(name) is not None}


def load_model(checkpoint: HFCheckpoint) -> Model:
    """Return the model in eval mode over the mapped weights; nothing is copied.

    Exception: if a file mixes dtypes, all weights are converted to the widest.
    """
    model = build(checkpoint.config, seed=None)
    widest = reduce(torch.promote_types, {tensor.dtype for tensor in checkpoint.tensors.values()})
    weights = {name: tensor.to(widest) for name, tensor in checkpoint.tensors.items()}
    model.load_state_dict(weights, strict=True, assign=True)
    return model.eval()


def write_folder(
    folder: str | Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: TokenizerSource = None,
    *,
    family: str | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write a new folder that transformers (for encoders also sentence-transformers) can load, atomically.

    `tensors` have peasy's names. `tokenizer` is anything with `save(path)`, or the path of a tokenizer.json. `family`:
    the one to write, if several represent the model exactly.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> config = preset("gpt-tiny")
    >>> with TemporaryDirectory() as home:
    ...     checkpoint = read_folder(write_folder(f"{home}/out", config, build(config).state_dict()))
    >>> checkpoint.family, checkpoint.config.stack == config.stack
    ('arcee', True)
    """
    model_family = registry.family_for(config, family)
    pairs, _ = registry.match_weights(model_family, config)
    hf_tensors = export_weights(pairs, tensors)
    if getattr(config, "lm_head", None) is None and getattr(config, "classifier", None) is None:
        hf_tensors = {name.removeprefix(model_family.prefix): tensor for name, tensor in hf_tensors.items()}
    hf_config = registry.write_hf_config(model_family, config)
    dtype = str(next(iter(hf_tensors.values())).dtype).removeprefix("torch.")
    with atomic_dir(folder) as temporary:
        dense = {name: hf_tensors.pop(name) for name in list(hf_tensors) if name.startswith(f"{DENSE}.")}
        write_tensors(temporary, hf_tensors, shard_bytes=shard_bytes)
        write_json(temporary / CONFIG_FILE, hf_config | {"dtype": dtype})
        if tokenizer is not None:
            write_tokenizer(temporary / TOKENIZER_FILE, tokenizer)
            _write_tokenizer_config(temporary, config.special_tokens)
        if isinstance(config, EncoderConfig):
            write_pooling(temporary, config, dense)
    return Path(folder)


def _select_weights(
    stored: TensorStore, family: ModelFamily, config: ModelConfig, expected: Mapping[str, Tensor], ignore_extra: bool
) -> tuple[TensorStore, tuple[str, ...]]:
    """Return the stored weights under the expected names, and the names of unused ones; a mismatch is an error."""
    weight_map = family.weight_map(config)
    copies = {copy: original for copy, original in weight_map.tied_copies.items() if copy not in expected}
    copy_of = {original: copy for copy, original in reversed(copies.items()) if copy in stored}
    names = {name: name if name in stored else copy_of.get(name) for name in expected}
    stored_names = {name: stored_name for name, stored_name in names.items() if stored_name is not None}
    known = {*stored_names.values(), *copies}
    others = [name for name in stored if name not in known]
    unused = tuple(name for name in others if _matches_any(name, weight_map.unused))
    extra = [name for name in others if name not in unused and not _matches_any(name, weight_map.derived_buffers)]
    missing = [name for name in expected if name not in stored_names]
    if ignore_extra:
        unused, extra = (*unused, *extra), []
    for wrong, problem in ((missing, "is missing the weights"), (extra, "has unexpected weights")):
        if wrong:
            hint = "Its config.json and its weights do not match, or parts of the model are not supported."
            hint += " To load it without them: peasy import --ignore-extra." if wrong is extra else ""
            raise InvalidInput(f"This {family.name} checkpoint {problem} {join_names(wrong)}.", hint=hint)
    for name, stored_name in stored_names.items():
        info, shape = stored.info(stored_name), list(expected[name].shape)
        if list(info.shape) != shape:
            message = f"{stored_name} has shape {list(info.shape)}; config.json requires {shape}."
            raise InvalidInput(message, hint="Its config.json and its weights do not match.")
        if not info.dtype.startswith(("float", "bfloat")):
            raise InvalidInput(f"{stored_name} has dtype {info.dtype}; weights must be floating-point.")
    for copy, original in copies.items():
        if stored.differ(copy, original):
            raise InvalidInput(f"{copy} should equal {original}, but differs.")
    return stored.renamed(stored_names), unused


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(match_pattern(pattern, name) is not None for pattern in patterns)


def _modern_name(name: str) -> str:
    """Return the name of a weight; very old files call a norm's weight gamma and its bias beta.

    A language model with image parts is stored as `language_model` inside or around `model`.
    """
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name.removeprefix("language_model.").replace("model.language_model.", "model.", 1)


def _write_tokenizer_config(folder: Path, special: SpecialTokensConfig) -> None:
    """Write tokenizer_config.json with the class and special tokens that transformers needs."""
    safe_folder = SafeFolder(folder)
    added = safe_folder.read_json(TOKENIZER_FILE).get("added_tokens", [])
    contents = {entry["id"]: entry["content"] for entry in added}
    ids = {f"{role}_token": getattr(special, role) for role in ("pad", "bos", "mask", "unk")}
    ids["eos_token"] = special.eos[0] if special.eos else None
    special_tokens = {name: contents[id] for name, id in ids.items() if id in contents}
    existing = safe_folder.read_json(TOKENIZER_CONFIG_FILE) if safe_folder.has(TOKENIZER_CONFIG_FILE) else {}
    existing = {key: value for key, value in existing.items() if key not in ("auto_map", "peasy_vocab_size")}
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", **special_tokens, **existing}
    write_json(folder / TOKENIZER_CONFIG_FILE, tokenizer_config)
