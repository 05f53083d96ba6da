"""GGUF export of decoders for llama.cpp: weights as f32, f16 or q8_0, with the tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from peasy.checkpoint.gguf_words import write_words
from peasy.checkpoint.huggingface.registry import family_for
from peasy.checkpoint.huggingface.rule import Change, Rule, Split, Table, modules, pair, take_out
from peasy.checkpoint.store import TOKENIZER, write_tokenizer
from peasy.commit import committed
from peasy.errors import InvalidInput, MissingPart
from peasy.models.config import Config, DecoderConfig
from peasy.nn.part import Activation, BandScaling, LinearScaling, Rotary
from peasy.nn.position import scale_frequency

FILE = "model.gguf"
Numbers = Literal["f32", "f16", "q8_0"]
NUMBERS: tuple[Numbers, ...] = ("f32", "f16", "q8_0")
BLOCK = 32
"""Elements of a row that share one q8_0 scale."""

LENGTH = 4096
"""Context length written for a model without a limit."""


@dataclass(frozen=True)
class Architecture:
    """A model family in llama.cpp. `neighbours`: RoPE rotates adjacent pairs there, two halves of a head here."""

    name: str
    activation: Activation
    neighbours: bool = False
    biases: bool = True


ARCHITECTURES = {
    "gpt2": Architecture("gpt2", "gelu-tanh"),
    "llama": Architecture("llama", "silu", neighbours=True),
    "mistral": Architecture("llama", "silu", neighbours=True),
    "arcee": Architecture("arcee", "relu-squared", neighbours=True, biases=False),
    "qwen2": Architecture("qwen2", "silu"),
    "qwen3": Architecture("qwen3", "silu", biases=False),
}


@dataclass(frozen=True)
class Neighbours(Change):
    """Permute the rows of a query or key matrix from half-split to interleaved RoPE order, head by head."""

    heads: int

    def inward(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Interleaved to half-split order."""
        return [tensor.unflatten(0, (self.heads, -1, 2)).transpose(1, 2).flatten(0, 2) for tensor in theirs]

    def back(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Half-split to interleaved order."""
        return [tensor.unflatten(0, (self.heads, 2, -1)).transpose(1, 2).flatten(0, 2) for tensor in ours]


def write_gguf(
    folder: str | Path,
    config: Config,
    tensors: Mapping[str, Tensor],
    tokenizer: Any = None,
    *,
    numbers: Numbers = "f16",
) -> Path:
    """Write a new folder with `model.gguf` and the tokenizer, atomically.

    `tensors` have peasy's names. `numbers` is the type of the matrices; vectors stay in float32.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> config = preset("gpt-tiny")
    >>> with TemporaryDirectory() as home:
    ...     [file.name for file in write_gguf(f"{home}/out", config, build(config).state_dict()).iterdir()]
    ['model.gguf']
    """
    if find_spec("gguf") is None:
        raise MissingPart("GGUF export needs the package gguf.", hint="pip install 'peasy[export]'")
    if numbers not in NUMBERS:
        raise InvalidInput(f"Unknown GGUF type {numbers!r}.", hint=f"Supported: {', '.join(NUMBERS)}.")
    architecture, decoder_config = _architecture(config)
    gguf_tensors = take_out(pair(table(decoder_config, architecture), tensors), tensors)
    gguf_tensors |= _frequencies(decoder_config)
    with committed(folder) as temporary:
        write_tokenizer(temporary / TOKENIZER, tokenizer)
        _write(temporary, architecture, decoder_config, gguf_tensors, numbers)
    return Path(folder)


def table(config: DecoderConfig, architecture: Architecture) -> Table:
    """Return the two-way map between GGUF tensor names and peasy's."""
    theirs, ours = "blk.{layer}.", "decoder.blocks.{layer}."
    attention = config.stack.attention
    key_heads = attention.key_heads or attention.heads
    return Table(
        (
            Rule("token_embd.weight", "embedding.token.weight"),
            Rule("position_embd.weight", "embedding.position.weight"),
            *(_fused(theirs, ours, config.d_model) if architecture.name == "gpt2" else ()),
            *_turned(theirs, ours, "q", "query", Neighbours(attention.heads) if architecture.neighbours else Change()),
            *_turned(theirs, ours, "k", "key", Neighbours(key_heads) if architecture.neighbours else Change()),
            *modules(theirs, ours, {
                "attn_norm": "attention_norm", "attn_v": "attention.value", "attn_output": "attention.output",
                "attn_q_norm": "attention.query_norm", "attn_k_norm": "attention.key_norm",
                "ffn_norm": "feedforward_norm", "ffn_gate": "feedforward.gate", "ffn_up": "feedforward.up",
                "ffn_down": "feedforward.down",
            }),
            *modules("", "", {"output_norm": "decoder.norm", "output": "head"}),
        )
    )  # fmt: skip


def _fused(theirs: str, ours: str, d_model: int) -> list[Rule]:
    return [
        Rule(
            f"{theirs}attn_qkv.{kind}",
            tuple(f"{ours}attention.{part}.{kind}" for part in ("query", "key", "value")),
            Split((d_model,) * 3),
        )
        for kind in ("weight", "bias")
    ]


def _turned(theirs: str, ours: str, one: str, other: str, change: Change) -> list[Rule]:
    return [
        Rule(f"{theirs}attn_{one}.{kind}", f"{ours}attention.{other}.{kind}", change) for kind in ("weight", "bias")
    ]


def _architecture(config: Config) -> tuple[Architecture, DecoderConfig]:
    """Return llama.cpp's architecture for this model; refuse what llama.cpp would compute differently."""
    if not isinstance(config, DecoderConfig):
        raise InvalidInput(f"GGUF export does not support models of kind {config.kind}.", hint="Only decoders.")
    architecture = ARCHITECTURES[family_for(config).name]
    stack = config.stack
    if stack.feedforward.activation != architecture.activation:
        unsupported = f"{architecture.name} with the activation {stack.feedforward.activation}"
        raise InvalidInput(f"llama.cpp does not support {unsupported}.", hint=f"It uses {architecture.activation}.")
    if not architecture.biases and (stack.attention.bias or stack.attention.output_bias or stack.feedforward.bias):
        raise InvalidInput(f"llama.cpp does not support {architecture.name} with biases.")
    if stack.attention.scale is not None:
        raise InvalidInput(f"llama.cpp does not support {architecture.name} with a custom attention scale.")
    return architecture, config


def _frequencies(config: DecoderConfig) -> dict[str, Tensor]:
    """Return the RoPE frequency factors of Llama 3 scaling, which llama.cpp reads as a tensor."""
    position = config.position
    if not isinstance(position, Rotary) or not isinstance(position.scaling, BandScaling):
        return {}
    width = _d_head(config)
    frequency = 1.0 / position.base ** (torch.arange(0, width, 2).float() / width)
    return {"rope_freqs.weight": frequency / scale_frequency(frequency, position.scaling)}


def _write(
    folder: Path, architecture: Architecture, config: DecoderConfig, tensors: Mapping[str, Tensor], numbers: Numbers
) -> None:
    import gguf

    writer = gguf.GGUFWriter(folder / FILE, architecture.name)
    types = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16}
    writer.add_file_type(types.get(numbers, gguf.LlamaFileType.MOSTLY_Q8_0))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _write_settings(writer, config)
    write_words(writer, folder, config)
    kinds = {name: _kind(name, tensor, numbers) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        _announce(writer, name, tuple(tensor.shape), kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, tensor in tensors.items():  # one at a time, so that at most one converted copy is in memory
        writer.write_tensor_data(_converted(name, tensor, kinds[name]))
    writer.close()


def _write_settings(writer: Any, config: DecoderConfig) -> None:
    import gguf

    attention, width = config.stack.attention, _d_head(config)
    length = config.context or LENGTH
    windows = [window for layer in range(config.stack.layers) if (window := attention.window_of(layer))]
    # GGUF has no sliding window for these architectures; up to its length it has no effect.
    writer.add_context_length(min([length, *windows]))
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.stack.layers)
    writer.add_feed_forward_length(config.stack.feedforward.width)
    writer.add_head_count(attention.heads)
    writer.add_head_count_kv(attention.key_heads or attention.heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_vocab_size(config.vocabulary)
    if not isinstance(config.position, Rotary):
        writer.add_layer_norm_eps(config.stack.norm.epsilon)
        return
    writer.add_layer_norm_rms_eps(config.stack.norm.epsilon)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config.position.base)
    if isinstance(config.position.scaling, LinearScaling):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.position.scaling.factor)


def _kind(name: str, tensor: Tensor, numbers: Numbers) -> Numbers:
    """Choose the tensor type: vectors and positions stay f32; rows not divisible into q8_0 blocks become f16."""
    if tensor.ndim < 2 or name == "position_embd.weight":
        return "f32"
    return "f16" if numbers == "q8_0" and tensor.shape[-1] % BLOCK else numbers


def _announce(writer: Any, name: str, shape: tuple[int, ...], kind: Numbers) -> None:
    import gguf

    if kind != "q8_0":
        dtype = np.dtype(np.float32 if kind == "f32" else np.float16)
        writer.add_tensor_info(name, shape, dtype, int(np.prod(shape)) * dtype.itemsize)
        return
    quantised = gguf.GGMLQuantizationType.Q8_0
    byte_shape = gguf.quant_shape_to_byte_shape(shape, quantised)
    writer.add_tensor_info(name, byte_shape, np.dtype(np.uint8), int(np.prod(byte_shape)), raw_dtype=quantised)


def _converted(name: str, tensor: Tensor, kind: Numbers) -> np.ndarray:
    import gguf

    array = tensor.detach().to(device="cpu", dtype=torch.float32).contiguous().numpy()
    if kind == "f32":
        return array
    if kind == "q8_0":
        return gguf.quants.quantize(array, gguf.GGMLQuantizationType.Q8_0)
    if np.abs(array).max(initial=0) > np.finfo(np.float16).max:
        raise InvalidInput(f"{name} has values too large for f16.", hint="Use f32.")
    return array.astype(np.float16)


def _d_head(config: DecoderConfig) -> int:
    return config.stack.attention.d_head or config.d_model // config.stack.attention.heads
