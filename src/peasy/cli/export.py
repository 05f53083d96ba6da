"""`peasy export`: writes a model in Hugging Face, GGUF or ONNX format."""

from pathlib import Path
from typing import Literal

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback


def export(
    model: str,
    folder: Path,
    *,
    format: Literal["hf", "gguf", "onnx"] = "hf",
    dtype: Literal["f32", "f16", "q8_0"] | None = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Export a model to a new folder in Hugging Face, GGUF or ONNX format.

    For example:

        peasy export my-model ./for-transformers
        peasy export my-model ./for-llama-cpp --format gguf --dtype q8_0
        peasy export my-model ./for-onnx --format onnx

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        folder: Output folder; must not exist.
        format: Format: hf for transformers, gguf for llama.cpp, onnx for ONNX Runtime.
        dtype: Number format of the weights in GGUF; default: f16.
    """
    from peasy.commands.exporting import export_model

    result = export_model(
        model, folder, format=format, dtype=dtype, offline=flags.offline, confirm=confirm_callback(flags)
    )
    return CommandOutput(result, files=[result.folder / name for name, _ in result.files])
