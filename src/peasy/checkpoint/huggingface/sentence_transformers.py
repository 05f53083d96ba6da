"""sentence-transformers files: reads and writes pooling, normalisation and maximum length of an encoder."""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from torch import Tensor

from peasy.checkpoint.huggingface.config_fields import ConfigFields
from peasy.checkpoint.safe_folder import SafeFolder, short_repr, write_json
from peasy.checkpoint.tensors import TensorStore, open_tensors, write_tensors
from peasy.config import parse_json
from peasy.errors import InvalidInput
from peasy.models.config import EncoderConfig, ModelConfig
from peasy.nn.config import ActivationName, DenseConfig

_LOG = logging.getLogger(__name__)

_MODULES_FILE = "modules.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_MAX_LENGTH_FILE = "sentence_bert_config.json"
_POOLING_DIR, _DENSE_DIR = "1_Pooling", "2_Dense"
"""Fixed folder names; a path in modules.json is not followed."""
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
DENSE = "dense"
"""Our name of the layer after pooling; its weights are in a folder of its own."""
_ACTIVATIONS: dict[str, ActivationName | None] = {
    "Tanh": "tanh", "Identity": None, "ReLU": "relu", "GELU": "gelu", "SiLU": "silu",
}  # fmt: skip
_ACTIVATION_CLASSES = {None: "linear.Identity"} | {
    ours: f"activation.{name}" for name, ours in _ACTIVATIONS.items() if ours is not None
}

_PoolingMode = Literal["mean", "first", "max", "pooler"]
_POOLING_MODES: dict[str, _PoolingMode] = {"mean": "mean", "cls": "first", "max": "max"}
_LEGACY_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip


def read_pooling(folder: SafeFolder, config: ModelConfig) -> tuple[ModelConfig, TensorStore]:
    """Return the config with the folder's pooling settings, if it has any, and the weights of a layer after pooling."""
    if not isinstance(config, EncoderConfig) or not folder.has(_MODULES_FILE):
        return config, TensorStore({})
    kinds = _read_module_types(folder)
    unsupported = [kind for kind in kinds if kind not in _ORDER]
    if unsupported or kinds != [kind for kind in _ORDER if kind in kinds]:
        wrong = f"the module {short_repr(unsupported[0])}" if unsupported else f"the order {', '.join(kinds)}"
        hint = f"Supported, each at most once and in this order: {', '.join(_ORDER)}."
        raise InvalidInput(f"{folder.path / _MODULES_FILE}: {wrong} is not supported.", hint=hint)
    _warn_of_default_prompt(folder)
    mode = _read_pooling_mode(folder) if "Pooling" in kinds else config.pooling
    max_length = _read_max_length(folder, config.max_seq_len)
    dense, weights = _read_dense(folder, config.d_model) if "Dense" in kinds else (None, TensorStore({}))
    normalise = "Normalize" in kinds
    return dataclasses.replace(config, pooling=mode, normalise=normalise, max_length=max_length, dense=dense), weights


def _read_dense(folder: SafeFolder, d_model: int) -> tuple[DenseConfig, TensorStore]:
    inner = folder.subfolder(_DENSE_DIR)
    fields = ConfigFields(inner.read_json("config.json"), str(inner.path / "config.json"))
    fields.require_value("in_features", d_model, reason="It should be the width of the pooled vector.")
    for name in ("module_input_name", "module_output_name"):
        fields.require_value(name, "sentence_embedding", reason="Only a layer for the vectors of texts is supported.")
    activation = str(fields.data.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    if activation not in _ACTIVATIONS:
        raise fields.invalid("activation_function", f"one of {', '.join(_ACTIVATIONS)}")
    settings = DenseConfig(fields.integer("out_features"), _ACTIVATIONS[activation], fields.boolean("bias", True))
    weights = open_tensors(inner)
    return settings, weights.renamed({name.replace("linear", DENSE): name for name in weights})


def _warn_of_default_prompt(folder: SafeFolder) -> None:
    """Name the prompt that sentence-transformers puts before each text: vectors of bare texts differ from its own."""
    data = folder.read_json(_PROMPTS_FILE) if folder.has(_PROMPTS_FILE) else {}
    prompts = data.get("prompts")
    prompt = prompts.get(str(data.get("default_prompt_name"))) if isinstance(prompts, dict) else None
    if prompt:
        message = "%s: sentence-transformers puts %s before each text. peasy does not: write it before your texts."
        _LOG.warning(message, folder.path, short_repr(prompt))


def write_pooling(folder: Path, config: EncoderConfig, dense: Mapping[str, Tensor]) -> None:
    """Write the files with which sentence-transformers computes the same embeddings as our encoder."""
    activation = _ACTIVATION_CLASSES.get(config.dense.activation) if config.dense else None
    if config.dense and (activation is None or config.pooling == "pooler"):
        message = f"sentence-transformers has no {config.dense.activation} layer after {config.pooling} pooling."
        hint = f"It has {', '.join(_ACTIVATIONS)}, after {', '.join(_POOLING_MODES.values())} pooling."
        raise InvalidInput(message, hint=hint)
    if config.pooling == "pooler":
        return  # sentence-transformers has no such pooling; the folder is still a valid encoder
    steps = [("", "Transformer"), (_POOLING_DIR, "Pooling"), *([(_DENSE_DIR, "Dense")] if config.dense else [])]
    steps += [(f"{len(steps)}_Normalize", "Normalize")] if config.normalise else []
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(steps)
    ]
    hf_modes = {mode: hf_mode for hf_mode, mode in _POOLING_MODES.items()}
    dimension = {"word_embedding_dimension": config.d_model}
    flags = {flag: hf_mode == hf_modes[config.pooling] for flag, hf_mode in _LEGACY_POOLING_FLAGS.items()}
    (folder / _POOLING_DIR).mkdir()
    write_json(folder / _MODULES_FILE, modules)
    write_json(folder / _POOLING_DIR / "config.json", dimension | flags)
    if config.dense:
        (folder / _DENSE_DIR).mkdir()
        write_tensors(folder / _DENSE_DIR, {name.replace(DENSE, "linear"): tensor for name, tensor in dense.items()})
        sizes = {"in_features": config.d_model, "out_features": config.dense.width, "bias": config.dense.bias}
        function = {"activation_function": f"torch.nn.modules.{activation}"}
        write_json(folder / _DENSE_DIR / "config.json", sizes | function)
    write_json(
        folder / _MAX_LENGTH_FILE, {"max_seq_length": config.max_length or config.max_seq_len, "do_lower_case": False}
    )


def _read_module_types(folder: SafeFolder) -> list[str]:
    where = str(folder.path / _MODULES_FILE)
    modules = parse_json(folder.read(_MODULES_FILE), where)
    types = [module.get("type") for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    kinds = [name.rsplit(".", 1)[-1] for name in types if isinstance(name, str)]
    if not kinds or len(kinds) != len(modules):
        raise InvalidInput(f"{where} should be a list of modules, each with a type.")
    return kinds


def _read_max_length(folder: SafeFolder, max_seq_len: int | None) -> int | None:
    max_length = folder.read_json(_MAX_LENGTH_FILE).get("max_seq_length") if folder.has(_MAX_LENGTH_FILE) else None
    if max_length is not None and (type(max_length) is not int or max_length < 1):
        raise InvalidInput(
            f"{folder.path / _MAX_LENGTH_FILE}: max_seq_length should be an integer, not {short_repr(max_length)}."
        )
    return None if max_length is None or (max_seq_len is not None and max_length >= max_seq_len) else max_length


def _read_pooling_mode(folder: SafeFolder) -> _PoolingMode:
    inner = folder.subfolder(_POOLING_DIR)
    pooling = inner.read_json("config.json")
    modes = pooling.get(
        "pooling_mode", [mode for flag, mode in _LEGACY_POOLING_FLAGS.items() if pooling.get(flag) is True]
    )
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in _POOLING_MODES:
        hint = f"Supported, one at a time: {', '.join(_POOLING_MODES)}."
        raise InvalidInput(f"{inner.path}: the pooling {short_repr(modes)} is not supported.", hint=hint)
    return _POOLING_MODES[modes[0]]
