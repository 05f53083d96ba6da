"""`export`: write a model as a Hugging Face folder, GGUF or ONNX."""

from pathlib import Path
from typing import Literal

from peasy.atomic import refuse_existing
from peasy.checkpoint.hub import Confirm
from peasy.checkpoint.ram import format_bytes
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, Result
from peasy.errors import UsageError, did_you_mean
from peasy.views.document import Document, Paragraph, Table

_FORMATS = {
    "hf": "a Hugging Face folder, for transformers and compatible programs",
    "gguf": "one file for llama.cpp and programs built on it",
    "onnx": "a graph for ONNX runtimes, without KV cache",
}


class ExportResult(Result, repr=True):
    """Result of `export`: the files written to `folder`, with their sizes in bytes."""

    name: str
    format: str
    folder: Path
    files: tuple[tuple[str, int], ...]

    def document(self) -> Document:
        """The files with their sizes."""
        rows = tuple((name, format_bytes(size)) for name, size in self.files)
        description = Paragraph(f"{self.name} as {_FORMATS[self.format]}, in {self.folder}.")
        return Document(f"Exported {self.name}", (description, Table(("file", "size"), rows)))

    def data(self) -> JsonDict:
        """Name, format, folder and files as plain data."""
        return super().data() | {"files": [{"name": name, "bytes": size} for name, size in self.files]}


def export_model(
    model: str | Path | LoadedModel,
    folder: str | Path,
    *,
    format: Literal["hf", "gguf", "onnx"] = "hf",
    dtype: Literal["f32", "f16", "q8_0"] | None = None,
    offline: bool = False,
    confirm: Confirm | None = None,
) -> ExportResult:
    """Write a model into a new folder.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        folder: Output folder; must not exist.
        format: Format: hf for transformers, gguf for llama.cpp, onnx for ONNX Runtime.
        dtype: Number format of the weights in GGUF; default: f16.

    >>> export_model("my-model", "out", format="pickle")
    Traceback (most recent call last):
    peasy.errors.UsageError: There is no format "pickle".
    """
    if format not in _FORMATS:
        hint = did_you_mean(format, _FORMATS) or f"Use {', '.join(_FORMATS)}."
        raise UsageError(f'There is no format "{format}".', hint=hint)
    if dtype is not None and format != "gguf":
        raise UsageError(f"Only gguf stores weights as {dtype}.", hint="Add --format gguf.")
    folder = Path(folder)
    refuse_existing(folder)
    loaded = load(model, device="cpu", offline=offline, confirm=confirm)
    config, weights, tokenizer = loaded.model.config, loaded.model.state_dict(), loaded.tokenizer
    if format == "hf":
        from peasy.checkpoint.huggingface import write_folder

        write_folder(folder, config, weights, tokenizer, family=loaded.family)
    elif format == "onnx":
        from peasy.checkpoint.onnx import write_onnx

        write_onnx(folder, loaded.model, tokenizer)
    else:
        from peasy.checkpoint.gguf import write_gguf

        write_gguf(folder, config, weights, tokenizer, tensor_type=dtype or "f16", family=loaded.family)
    files = sorted((str(path.relative_to(folder)), path.stat().st_size) for path in folder.rglob("*") if path.is_file())
    return ExportResult(loaded.name, format, folder, tuple(files))
