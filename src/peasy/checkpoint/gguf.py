"""GGUF export of decoders for llama.cpp: weights as f32, f16 or q8_0, with the tokenizer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from peasy.atomic import atomic_dir
from peasy.checkpoint.huggingface import weight_map as weight_maps
from peasy.checkpoint.huggingface.registry import family_for
from peasy.checkpoint.huggingface.weight_map import SplitFused, WeightMap, WeightRule, WeightTransform, module_rules
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TokenizerSource, write_tokenizer
from peasy.errors import InvalidInput, MissingExtra
from peasy.extras import install_line
from peasy.models.config import DecoderConfig, ModelConfig, SpecialTokensConfig
from peasy.nn.config import ActivationName, LinearRopeScaling, Llama3RopeScaling, RotaryConfig
from peasy.nn.position import scale_rope_frequency

_GGUF_FILE = "model.gguf"
GGUFType = Literal["f32", "f16", "q8_0"]
_Q8_BLOCK_SIZE = 32
"""Elements of a row that share one q8_0 scale."""

_DEFAULT_CONTEXT_LENGTH = 4096
"""Context length written for a model without a limit."""

_WHITESPACE_REGEX = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*" + _WHITESPACE_REGEX
_PRE_TOKENIZERS = {_WORD_REGEX % r"\p{N}{1,3}": "llama-bpe", _WORD_REGEX % r"\p{N}": "qwen2"}
"""Pre-tokenizer regex: llama.cpp's name for it."""

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class GGUFArchitecture:
    """A model family in llama.cpp. `interleaved_rope`: RoPE rotates adjacent pairs there, two halves of a head here."""

    name: str
    activation: ActivationName
    interleaved_rope: bool = False
    has_biases: bool = True


ARCHITECTURES = {
    "gpt2": GGUFArchitecture("gpt2", "gelu-tanh"),
    "llama": GGUFArchitecture("llama", "silu", interleaved_rope=True),
    "mistral": GGUFArchitecture("llama", "silu", interleaved_rope=True),
    "arcee": GGUFArchitecture("arcee", "relu-squared", interleaved_rope=True, has_biases=False),
    "qwen2": GGUFArchitecture("qwen2", "silu"),
    "qwen3": GGUFArchitecture("qwen3", "silu", has_biases=False),
}


@dataclass(frozen=True)
class InterleaveRope(WeightTransform):
    """Permute the rows of a query or key matrix from half-split to interleaved RoPE order, head by head."""

    num_heads: int

    def forward(self, external: Sequence[Tensor]) -> list[Tensor]:
        """Interleaved to half-split order."""
        return [tensor.unflatten(0, (self.num_heads, -1, 2)).transpose(1, 2).flatten(0, 2) for tensor in external]

    def inverse(self, internal: Sequence[Tensor]) -> list[Tensor]:
        """Half-split to interleaved order."""
        return [tensor.unflatten(0, (self.num_heads, 2, -1)).transpose(1, 2).flatten(0, 2) for tensor in internal]


def write_gguf(
    folder: str | Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: TokenizerSource = None,
    *,
    tensor_type: GGUFType = "f16",
) -> Path:
    """Write a new folder with `model.gguf` and the tokenizer, atomically.

    `tensors` have peasy's names. `tensor_type` is the type of the matrices; vectors stay in float32.
    """
    if find_spec("gguf") is None:
        raise MissingExtra("GGUF export needs the package gguf.", hint=install_line("export"))
    if tensor_type not in get_args(GGUFType):
        raise InvalidInput(f"Unknown GGUF type {tensor_type!r}.", hint=f"Supported: {', '.join(get_args(GGUFType))}.")
    architecture, decoder_config = _find_architecture(config)
    pairs = weight_maps.pair_weights(weight_map(decoder_config, architecture), tensors)
    gguf_tensors = weight_maps.export_weights(pairs, tensors)
    gguf_tensors |= _rope_factors(decoder_config)
    with atomic_dir(folder) as temporary:
        write_tokenizer(temporary / TOKENIZER_FILE, tokenizer)
        _write(temporary, architecture, decoder_config, gguf_tensors, tensor_type)
    return Path(folder)


def weight_map(config: DecoderConfig, architecture: GGUFArchitecture) -> WeightMap:
    """Return the two-way map between GGUF tensor names and peasy's."""
    external, internal = "blk.{layer}.", "decoder.blocks.{layer}."
    attention = config.stack.attention
    query_transform = key_transform = WeightTransform()
    if architecture.interleaved_rope:
        query_transform = InterleaveRope(attention.num_heads)
        key_transform = InterleaveRope(attention.num_kv_heads or attention.num_heads)
    fused_rules = [
        WeightRule(
            f"{external}attn_qkv.{kind}",
            tuple(f"{internal}attention.{part}.{kind}" for part in ("query", "key", "value")),
            SplitFused((config.d_model,) * 3),
        )
        for kind in ("weight", "bias")
    ]
    return WeightMap(
        (
            WeightRule("token_embd.weight", "embedding.token.weight"),
            WeightRule("position_embd.weight", "embedding.position.weight"),
            *(fused_rules if architecture.name == "gpt2" else []),
            *(
                WeightRule(f"{external}attn_{part[0]}.{kind}", f"{internal}attention.{part}.{kind}", transform)
                for part, transform in (("query", query_transform), ("key", key_transform))
                for kind in ("weight", "bias")
            ),
            *module_rules(external, internal, {
                "attn_norm": "attention_norm", "attn_v": "attention.value", "attn_output": "attention.output",
                "attn_q_norm": "attention.query_norm", "attn_k_norm": "attention.key_norm",
                "ffn_norm": "feedforward_norm", "ffn_gate": "feedforward.gate", "ffn_up": "feedforward.up",
                "ffn_down": "feedforward.down",
            }),
            *module_rules("", "", {"output_norm": "decoder.norm", "output": "lm_head"}),
        )
    )  # fmt: skip


def _find_architecture(config: ModelConfig) -> tuple[GGUFArchitecture, DecoderConfig]:
    """Return llama.cpp's architecture for this model; refuse what llama.cpp would compute differently."""
    if not isinstance(config, DecoderConfig):
        raise InvalidInput(f"GGUF export does not support models of kind {config.kind}.", hint="Only decoders.")
    architecture = ARCHITECTURES[family_for(config).name]
    stack = config.stack
    if stack.feedforward.activation != architecture.activation:
        unsupported = f"{architecture.name} with the activation {stack.feedforward.activation}"
        raise InvalidInput(f"llama.cpp does not support {unsupported}.", hint=f"It uses {architecture.activation}.")
    if not architecture.has_biases and (stack.attention.bias or stack.attention.output_bias or stack.feedforward.bias):
        raise InvalidInput(f"llama.cpp does not support {architecture.name} with biases.")
    if stack.attention.scale is not None:
        raise InvalidInput(f"llama.cpp does not support {architecture.name} with a custom attention scale.")
    return architecture, config


def _rope_factors(config: DecoderConfig) -> dict[str, Tensor]:
    """Return the RoPE frequency factors of Llama 3 scaling, which llama.cpp reads as a tensor."""
    position = config.position
    if not isinstance(position, RotaryConfig) or not isinstance(position.scaling, Llama3RopeScaling):
        return {}
    width = _d_head(config)
    frequency = 1.0 / position.base ** (torch.arange(0, width, 2).float() / width)
    return {"rope_freqs.weight": frequency / scale_rope_frequency(frequency, position.scaling)}


def _write(
    folder: Path,
    architecture: GGUFArchitecture,
    config: DecoderConfig,
    tensors: Mapping[str, Tensor],
    tensor_type: GGUFType,
) -> None:
    import gguf

    writer = gguf.GGUFWriter(folder / _GGUF_FILE, architecture.name)
    types = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16}
    writer.add_file_type(types.get(tensor_type, gguf.LlamaFileType.MOSTLY_Q8_0))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _write_metadata(writer, config)
    _write_tokenizer(writer, folder, config)
    kinds = {name: _tensor_type(name, tensor, tensor_type) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        _add_tensor_info(writer, name, tuple(tensor.shape), kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, tensor in tensors.items():  # one at a time, so that at most one converted copy is in memory
        writer.write_tensor_data(_convert(name, tensor, kinds[name]))
    writer.close()


def _write_metadata(writer: Any, config: DecoderConfig) -> None:
    import gguf

    attention, width = config.stack.attention, _d_head(config)
    length = config.max_seq_len or _DEFAULT_CONTEXT_LENGTH
    windows = [window for layer in range(config.stack.num_layers) if (window := attention.window_for_layer(layer))]
    # GGUF has no sliding window for these architectures; up to its length it has no effect.
    writer.add_context_length(min([length, *windows]))
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.stack.num_layers)
    writer.add_feed_forward_length(config.stack.feedforward.d_ff)
    writer.add_head_count(attention.num_heads)
    writer.add_head_count_kv(attention.num_kv_heads or attention.num_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_vocab_size(config.vocab_size)
    if not isinstance(config.position, RotaryConfig):
        writer.add_layer_norm_eps(config.stack.norm.eps)
        return
    writer.add_layer_norm_rms_eps(config.stack.norm.eps)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config.position.base)
    if isinstance(config.position.scaling, LinearRopeScaling):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.position.scaling.factor)


def _tensor_type(name: str, tensor: Tensor, requested: GGUFType) -> GGUFType:
    """Choose the tensor type: vectors and positions stay f32; rows not divisible into q8_0 blocks become f16."""
    if tensor.ndim < 2 or name == "position_embd.weight":
        return "f32"
    return "f16" if requested == "q8_0" and tensor.shape[-1] % _Q8_BLOCK_SIZE else requested


def _add_tensor_info(writer: Any, name: str, shape: tuple[int, ...], tensor_type: GGUFType) -> None:
    import gguf

    if tensor_type != "q8_0":
        dtype = np.dtype(np.float32 if tensor_type == "f32" else np.float16)
        writer.add_tensor_info(name, shape, dtype, int(np.prod(shape)) * dtype.itemsize)
        return
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    byte_shape = gguf.quant_shape_to_byte_shape(shape, q8_0)
    writer.add_tensor_info(name, byte_shape, np.dtype(np.uint8), int(np.prod(byte_shape)), raw_dtype=q8_0)


def _convert(name: str, tensor: Tensor, tensor_type: GGUFType) -> np.ndarray:
    import gguf

    array = tensor.detach().to(device="cpu", dtype=torch.float32).contiguous().numpy()
    if tensor_type == "f32":
        return array
    if tensor_type == "q8_0":
        return gguf.quants.quantize(array, gguf.GGMLQuantizationType.Q8_0)
    if np.abs(array).max(initial=0) > np.finfo(np.float16).max:
        raise InvalidInput(f"{name} has values too large for f16.", hint="Use f32.")
    return array.astype(np.float16)


def _d_head(config: DecoderConfig) -> int:
    return config.stack.attention.d_head or config.d_model // config.stack.attention.num_heads


# Tokenizer section.


def _write_tokenizer(writer: Any, folder: Path, config: DecoderConfig) -> None:
    """Write the tokenizer in `folder` into the GGUF file; without one, write the model type "no_vocab"."""
    if not (folder / TOKENIZER_FILE).exists():
        writer.add_tokenizer_model("no_vocab")
        return
    safe_folder = SafeFolder(folder)
    settings = safe_folder.read_json(TOKENIZER_CONFIG_FILE) if safe_folder.has(TOKENIZER_CONFIG_FILE) else {}
    try:
        _write_tokenizer_metadata(writer, safe_folder.read_json(TOKENIZER_FILE), settings, config)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{TOKENIZER_FILE} is not a valid tokenizer file: {error!r}.") from None


def _write_tokenizer_metadata(
    writer: Any, data: dict[str, Any], tokenizer_config: dict[str, Any], config: DecoderConfig
) -> None:
    kind = _tokenizer_model(data)
    tokens, types = _tokens_and_types(data, config.vocab_size)
    writer.add_tokenizer_model(kind)
    if kind == "gpt2":
        writer.add_tokenizer_pre(_pre_tokenizer_name(data))
    writer.add_token_list(tokens)
    if kind == "llama":
        writer.add_token_scores(_scores(data, tokens))
        writer.add_add_space_prefix(_adds_space_prefix(data))
    writer.add_token_types(types)
    if kind == "gpt2":
        merges = data["model"]["merges"]
        writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    _write_special_tokens(writer, data, tokenizer_config, config.special_tokens)
    template = tokenizer_config.get("chat_template")
    if isinstance(template, str):
        writer.add_chat_template(template)


def _tokenizer_model(data: dict[str, Any]) -> str:
    """Return llama.cpp's name for the tokenizer model; refuse one that it would read differently."""
    model = data["model"]
    if model.get("type") == "BPE" and model.get("byte_fallback"):
        return "llama"
    if model.get("type") == "BPE" and _components(data, "pre_tokenizer", "ByteLevel"):
        return "gpt2"
    raise InvalidInput(
        f"GGUF does not support a {model.get('type')} tokenizer without a byte fallback.",
        hint="Train a tokenizer of kind bpe, or export without the tokenizer.",
    )


def _pre_tokenizer_name(data: dict[str, Any]) -> str:
    """Return llama.cpp's name for the pre-tokenizer."""
    unsupported = [step["type"] for step in _components(data, "normalizer") if step["type"] != "NFC"]
    adds_space = any(step.get("add_prefix_space") for step in _components(data, "pre_tokenizer", "ByteLevel"))
    if unsupported or adds_space:
        raise _unsupported_error(f"with {'the normalizer ' + unsupported[0] if unsupported else 'a prefix space'}")
    steps = _components(data, "pre_tokenizer")
    splits = [step["pattern"].get("Regex") for step in steps if step["type"] == "Split"]
    by_bytes = any(step.get("use_regex", True) for step in steps if step["type"] == "ByteLevel")
    digits = any(step["type"] == "Digits" and step.get("individual_digits") for step in steps)
    if len(steps) == 1 and by_bytes:
        return "gpt-2"
    if len(steps) == 2 and by_bytes and digits:
        return "smollm"
    if len(steps) == 2 and not by_bytes and len(splits) == 1 and splits[0] in _PRE_TOKENIZERS:
        return _PRE_TOKENIZERS[splits[0]]
    raise _unsupported_error("with an unknown pre-tokenizer")


def _unsupported_error(reason: str) -> InvalidInput:
    return InvalidInput(f"GGUF does not support a tokenizer {reason}.", hint="Export without the tokenizer.")


def _components(data: dict[str, Any], part: str, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the components of one part of the tokenizer, a single one or a Sequence."""
    step = data.get(part)
    if step is None:
        return []
    key = {"pre_tokenizer": "pretokenizers", "normalizer": "normalizers", "post_processor": "processors"}[part]
    components = step[key] if step["type"] == "Sequence" else [step]
    return [component for component in components if kind is None or component["type"] == kind]


def _tokens_and_types(data: dict[str, Any], vocab_size: int) -> tuple[list[str], list[int]]:
    """Return token and token type of each id; embedding rows without a token become [PADn]."""
    names = {id: token for token, id in data["model"]["vocab"].items()}
    added = {token["id"]: token for token in data.get("added_tokens", [])}
    names |= {id: token["content"] for id, token in added.items()}
    if max(names) >= vocab_size:
        raise InvalidInput(
            f"The tokenizer has ids up to {max(names)}, but the model's vocabulary size is {vocab_size}."
        )
    unknown = data["model"].get("unk_token")

    def token_type(id: int) -> int:
        if id not in names:
            return _UNUSED
        if id in added:
            return _UNKNOWN if names[id] == unknown else _CONTROL if added[id]["special"] else _USER_DEFINED
        return _BYTE if data["model"].get("byte_fallback") and _BYTE_TOKEN.fullmatch(names[id]) else _NORMAL

    return [names.get(id, f"[PAD{id}]") for id in range(vocab_size)], [token_type(id) for id in range(vocab_size)]


def _scores(data: dict[str, Any], tokens: list[str]) -> list[float]:
    """Return a score per token: earlier merges score higher; tokens that no merge produces score 0."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(data["model"]["merges"]):
        ranks.setdefault("".join(merge.split(" ", 1) if isinstance(merge, str) else merge), rank)
    return [-float(ranks.get(token, 0)) for token in tokens]


def _adds_space_prefix(data: dict[str, Any]) -> bool:
    """Return whether a space is added before the first word."""
    schemes = [step.get("prepend_scheme", "always") for step in _components(data, "pre_tokenizer", "Metaspace")]
    return bool(_components(data, "normalizer", "Prepend")) or any(scheme != "never" for scheme in schemes)


def _write_special_tokens(
    writer: Any, data: dict[str, Any], tokenizer_config: dict[str, Any], special: SpecialTokensConfig
) -> None:
    """Write the special token ids, from the model config or else the tokenizer, and whether bos and eos are added."""
    ids = {token["content"]: token["id"] for token in data.get("added_tokens", [])}
    special_ids = {"bos": special.bos, "eos": special.eos[0] if special.eos else None}
    for role, id in {**special_ids, "pad": special.pad, "unk": special.unk}.items():
        token = tokenizer_config.get(f"{role}_token")
        name = token.get("content") if isinstance(token, dict) else token
        special_ids[role] = ids.get(name) if id is None else id
        if special_ids[role] is not None:
            getattr(writer, f"add_{role}_token_id")(special_ids[role])
    steps = _components(data, "post_processor", "TemplateProcessing")
    template = steps[0]["single"] if steps else []
    template_ids = [ids.get(next(iter(item.values()))["id"]) for item in template] or [None]
    writer.add_add_bos_token(template_ids[0] is not None and template_ids[0] == special_ids["bos"])
    writer.add_add_eos_token(template_ids[-1] is not None and template_ids[-1] == special_ids["eos"])
