"""Activations of a data set, captured text by text and written to shards within a memory budget."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from peasy.checkpoint.ram import format_bytes
from peasy.commands.analysis_result import AnalysisResult
from peasy.commands.load import LoadedModel
from peasy.inspection.budget import parse_bytes
from peasy.views.document import Document, Paragraph

if TYPE_CHECKING:
    from peasy.inspection.activation_store import ActivationStore


def save_activations(
    loaded: LoadedModel,
    texts: Iterable[str],
    folder: str | Path,
    *,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    steps: Iterable[str] = ("weights",),
    max_memory: str | int = "512MB",
    storage: str = "float16",
) -> AnalysisResult:
    """Capture every text and write the activations to `folder`; `activation_store.read_activations` reads them."""
    from peasy.commands.model_input import make_input
    from peasy.inspection.activation_store import write_activations
    from peasy.inspection.capture_spec import CaptureSpec

    def as_tuple(indices: Iterable[int] | None) -> tuple[int, ...] | None:
        return None if indices is None else tuple(indices)

    spec = CaptureSpec(tuple(steps), as_tuple(layers), as_tuple(heads))
    inputs = (make_input(loaded, text).model_input for text in texts)
    store = write_activations(loaded.model, inputs, spec, folder, budget=parse_bytes(max_memory), storage=storage)
    return AnalysisResult(store, lambda: saved_document(store, spec.steps, storage))


def saved_document(store: "ActivationStore", steps: tuple[str, ...], storage: str) -> Document:
    """Document with the size of the saved activations and the code to read them."""
    size = f"{', '.join(steps)} of {store.num_sequences:,} texts: {format_bytes(store.nbytes)} as {storage}"
    code = f'from peasy.inspection.activation_store import read_activations; next(read_activations("{store.folder}"))'
    text = f"{size}, in {store.num_files:,} files in {store.folder}."
    return Document("Saved activations", (Paragraph(text), Paragraph(code, "note")))
