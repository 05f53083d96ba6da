"""Attention over training: heat maps of one sentence at every checkpoint of a run."""

import numpy as np

from peasy.inspection.results import AttentionHistory
from peasy.nn.module_path import ModulePath
from peasy.views.attention import attention_name, short_title
from peasy.views.document import Document, DocumentPart, Maps, Paragraph


def attention_history_document(history: AttentionHistory, path: ModulePath | None = None) -> Document:
    """Document of heat maps, heads by checkpoints, for one attention layer or for all that were recorded."""
    paths = [path] if path is not None else list(history.checkpoints[0].weights)
    parts: list[DocumentPart] = [attention_history_maps(history, layer_path) for layer_path in paths]
    parts.append(Paragraph(history.caveat[:1].upper() + history.caveat[1:], "note"))
    return Document(f"Attention over training: {short_title(history.tokens.text, history.run)}", tuple(parts))


def attention_history_maps(history: AttentionHistory, path: ModulePath) -> Maps:
    """Heat maps of one attention layer: heads by checkpoints."""
    values = np.stack([np.asarray(frame.weights[path], dtype=np.float32) for frame in history.checkpoints], axis=1)
    queries = history.target if history.target is not None and path.stack == "decoder" else history.tokens
    keys = history.tokens if "cross" in path.part else queries
    heads, steps = tuple(map(str, range(len(values)))), tuple(f"{frame.step:,}" for frame in history.checkpoints)
    return Maps(
        f"{attention_name(path)}, layer {path.layer}", values, queries.pieces, keys.pieces, heads, steps,
        down_axis="head", across_axis="after step", selected=(0, len(steps) - 1),
    )  # fmt: skip
