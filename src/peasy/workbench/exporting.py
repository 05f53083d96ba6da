"""`export`: write a model as a Hugging Face folder, GGUF or ONNX."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from peasy.checkpoint.hub import Ask
from peasy.checkpoint.memory import show_bytes
from peasy.checkpoint.resolve import resolve
from peasy.commit import refuse_existing
from peasy.errors import UsageError, did_you_mean
from peasy.parts import need
from peasy.views.document import Document, Paragraph, Table
from peasy.workbench.load import LoadedModel, open_found
from peasy.workbench.result import Result

FORMATS = {
    "hf": "a Hugging Face folder, for transformers and compatible programs",
    "gguf": "one file for llama.cpp and programs built on it",
    "onnx": "a graph for ONNX runtimes, without KV cache",
}


@dataclass(frozen=True, repr=False)
class ExportResult(Result):
    """Result of `export`: the files written to `folder`."""

    name: str
    to: str
    folder: Path
    files: tuple[tuple[str, int], ...]

    def document(self) -> Document:
        """The files with their sizes."""
        rows = tuple((name, show_bytes(size)) for name, size in self.files)
        description = Paragraph(f"{self.name} as {FORMATS[self.to]}, in {self.folder}.")
        return Document(f"Exported {self.name}", (description, Table(("file", "size"), rows)))

    def data(self) -> dict[str, Any]:
        """Name, format, folder and files as plain data."""
        files = [{"name": name, "bytes": size} for name, size in self.files]
        return {"name": self.name, "to": self.to, "folder": str(self.folder), "files": files}

    def __repr__(self) -> str:
        return f"ExportResult({self.name} to {self.folder} as {self.to})"


def export_model(
    model: str | Path | LoadedModel,
    folder: str | Path,
    *,
    to: str = "hf",
    numbers: Literal["f32", "f16", "q8_0"] | None = None,
    offline: bool = False,
    ask: Ask | None = None,
) -> ExportResult:
    """Write a model into a new folder. `numbers` is the weight format of gguf (default f16).

    >>> export_model("my-model", "out", to="pickle")
    Traceback (most recent call last):
    peasy.errors.UsageError: There is no format "pickle".
    """
    if to not in FORMATS:
        raise UsageError(f'There is no format "{to}".', hint=did_you_mean(to, FORMATS) or f"Use {', '.join(FORMATS)}.")
    if numbers is not None and to != "gguf":
        raise UsageError(f"Only gguf stores weights as {numbers}.", hint="Add --to gguf.")
    need("torch")
    folder = Path(folder)
    refuse_existing(folder)
    loaded = model if isinstance(model, LoadedModel) else open_found(resolve(model, offline=offline, ask=ask))
    _write(loaded, folder, to, numbers or "f16")
    files = sorted((str(path.relative_to(folder)), path.stat().st_size) for path in folder.rglob("*") if path.is_file())
    return ExportResult(loaded.name, to, folder, tuple(files))


def _write(loaded: LoadedModel, folder: Path, to: str, numbers: Literal["f32", "f16", "q8_0"]) -> None:
    if to == "hf":
        from peasy.checkpoint.huggingface import write_folder

        write_folder(folder, loaded.model.config, loaded.model.state_dict(), loaded.tokenizer)
    elif to == "onnx":
        from peasy.checkpoint.onnx import write_onnx

        write_onnx(folder, loaded.model, loaded.tokenizer)
    else:
        from peasy.checkpoint.gguf import write_gguf

        write_gguf(folder, loaded.model.config, loaded.model.state_dict(), loaded.tokenizer, numbers=numbers)
