"""Edits of a command: one, several or none; the texts and data sets they take activations from."""

from collections.abc import Sequence
from itertools import islice

from peasy.commands.load import LoadedModel
from peasy.commands.model_input import LabelledInput, make_input
from peasy.datasets import open_corpus
from peasy.inspection.apply_edits import EditContext
from peasy.inspection.edit import EditLike, Texts
from peasy.inspection.forward import ModelInput
from peasy.inspection.results import attention_axes

MAX_TEXTS = 256
"""Texts that are read of a data set; a list of texts is read completely."""


def as_edits(edit: EditLike | Sequence[EditLike] | None) -> tuple[EditLike, ...]:
    """Return the edits of an argument that may be one edit, several or None."""
    return () if edit is None else tuple(edit) if isinstance(edit, Sequence) else (edit,)


def edit_context(loaded: LoadedModel, inputs: LabelledInput | None = None) -> EditContext:
    """Return what edits are resolved with; words can be named only in the text of `inputs`."""

    def read_texts(data: Texts) -> list[ModelInput]:
        if not isinstance(data, str):
            return [make_input(loaded, text).model_input for text in data]
        texts = islice(open_corpus(data).texts("valid"), MAX_TEXTS)
        rows = (loaded.encode_prompt(text)[: loaded.max_seq_len] for text in texts)
        return [make_input(loaded, ids).model_input for ids in rows if ids]

    axes = None if inputs is None else lambda path: attention_axes(path, inputs.tokens, inputs.target)
    return EditContext(loaded.model, axes, lambda text: make_input(loaded, text).model_input, read_texts)
