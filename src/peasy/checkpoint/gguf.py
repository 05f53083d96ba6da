"""GGUF export of decoders for llama.cpp: weights as f32, f16 or q8_0, with the tokenizer."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from peasy.atomic import atomic_dir
from peasy.checkpoint.gguf_architecture import find_architecture, rope_factors, weight_map, write_metadata
from peasy.checkpoint.gguf_tokenizer import write_tokenizer_section
from peasy.checkpoint.huggingface.weight_map import export_weights, pair_weights
from peasy.checkpoint.store import TOKENIZER_FILE, TokenizerSource, write_tokenizer
from peasy.errors import InvalidInput, MissingExtra
from peasy.extras import install_line
from peasy.models.config import ModelConfig

if TYPE_CHECKING:
    from gguf import GGUFWriter

_GGUF_FILE = "model.gguf"
GGUFType = Literal["f32", "f16", "q8_0"]
_Q8_BLOCK_SIZE = 32
"""Elements of a row that share one q8_0 scale."""


def write_gguf(
    folder: str | Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: TokenizerSource = None,
    *,
    tensor_type: GGUFType = "f16",
    family: str | None = None,
) -> Path:
    """Write a new folder with `model.gguf` and the tokenizer, atomically.

    `tensors` have peasy's names. `tensor_type` is the type of the matrices; vectors stay in float32. `family`: the
    Hugging Face family to write, if several represent the model exactly.
    """
    if find_spec("gguf") is None:
        raise MissingExtra("GGUF export needs the package gguf.", hint=install_line("export"))
    if tensor_type not in get_args(GGUFType):
        raise InvalidInput(f"Unknown GGUF type {tensor_type!r}.", hint=f"Supported: {', '.join(get_args(GGUFType))}.")
    architecture, decoder_config = find_architecture(config, family)
    pairs = pair_weights(weight_map(decoder_config, architecture), tensors)
    gguf_tensors = export_weights(pairs, tensors) | rope_factors(decoder_config)
    if architecture.needs_head and decoder_config.lm_head.tied:
        gguf_tensors["output.weight"] = gguf_tensors["token_embd.weight"]
    kinds = {name: _tensor_type(name, tensor, tensor_type) for name, tensor in gguf_tensors.items()}
    import gguf

    types = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16}
    with atomic_dir(folder) as temporary:
        write_tokenizer(temporary / TOKENIZER_FILE, tokenizer)
        writer = gguf.GGUFWriter(temporary / _GGUF_FILE, architecture.name)
        writer.add_file_type(types.get(tensor_type, gguf.LlamaFileType.MOSTLY_Q8_0))
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        write_metadata(writer, architecture, decoder_config)
        write_tokenizer_section(writer, temporary, decoder_config)
        for name, tensor in gguf_tensors.items():
            _add_tensor_info(writer, name, tuple(tensor.shape), kinds[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, tensor in gguf_tensors.items():  # one at a time: at most one converted copy is in memory
            writer.write_tensor_data(_convert(name, tensor, kinds[name]))
        writer.close()
    return Path(folder)


def _tensor_type(name: str, tensor: Tensor, requested: GGUFType) -> GGUFType:
    """Choose the tensor type: vectors and positions stay f32; rows not divisible into q8_0 blocks become f16."""
    if tensor.ndim < 2 or name == "position_embd.weight":
        return "f32"
    return "f16" if requested == "q8_0" and tensor.shape[-1] % _Q8_BLOCK_SIZE else requested


def _add_tensor_info(writer: "GGUFWriter", name: str, shape: tuple[int, ...], tensor_type: GGUFType) -> None:
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
