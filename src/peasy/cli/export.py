"""`peasy export`."""

from pathlib import Path
from typing import Literal

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags


def export(
    model: str,
    folder: Path,
    *,
    to: Literal["hf", "gguf", "onnx"] = "hf",
    numbers: Literal["f32", "f16", "q8_0"] | None = None,
    flags: Flags = Flags(),
) -> Answer:
    """Write a model into a new folder, in a standard format.

    For example:

        peasy export my-model ./for-transformers
        peasy export my-model ./for-llama-cpp --to gguf --numbers q8_0
        peasy export my-model ./for-onnx --to onnx

    Args:
        model: A folder, a run or a hub id.
        folder: The new folder; it must not exist yet.
        to: hf for transformers, gguf for llama.cpp, onnx for ONNX runtimes.
        numbers: How gguf stores the weights: f16 if nothing is said.
    """
    from peasy.workbench.exporting import export_model

    result = export_model(model, folder, to=to, numbers=numbers, offline=flags.offline, ask=asking(flags))
    return Answer(result, files=[result.folder / name for name, _ in result.files])
