"""`peasy export`: writes a model in Hugging Face, GGUF or ONNX format."""

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.derive import Call, derive
from peasy.commands.exporting import ExportResult, export_model


@derive(export_model)
def export(call: Call[ExportResult], model: str, folder: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Export a model to a new folder in Hugging Face, GGUF or ONNX format.

    For example:

        peasy export my-model ./for-transformers
        peasy export my-model ./for-llama-cpp --format gguf --dtype q8_0
        peasy export my-model ./for-onnx --format onnx

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        folder: Output folder; must not exist.
    """
    result = call(model, folder)
    return CommandOutput(result, files=[result.folder / name for name, _ in result.files])
