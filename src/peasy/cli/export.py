"""`peasy export`: writes a model in Hugging Face, GGUF or ONNX format."""

from pathlib import Path
from typing import Literal

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback


def export(
    model: str,
    folder: Path,
    *,
    to: Literal["hf", "gguf", "onnx"] = "hf",
    numbers: Literal["f32", "f16", "q8_0"] | None = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Export a model to a new folder in Hugging Face, GGUF or ONNX format.

    For example:

        peasy export my-model ./for-transformers
        peasy export my-model ./for-llama-cpp --to gguf --numbers q8_0
        peasy export my-model ./for-onnx --to onnx

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        folder: Output folder; must not exist.
        to: Format: hf for transformers, gguf for llama.cpp, onnx for ONNX Runtime.
        numbers: Weight format of GGUF; default: f16.
    """
    from peasy.commands.exporting import export_model

    result = export_model(model, folder, to=to, numbers=numbers, offline=flags.offline, ask=confirm_callback(flags))
    return CommandOutput(result, files=[result.folder / name for name, _ in result.files])
