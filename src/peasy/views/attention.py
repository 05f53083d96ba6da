"""Captured attention as a document: heat maps of every layer and head, links of one, largest weights of each."""

from collections.abc import Iterator, Sequence
from shlex import quote

import numpy as np

from peasy.inspection import results
from peasy.inspection.results import WORD_MERGE_NOTE, AttentionInfo, AttentionMeasure, AttentionRecord, Capture
from peasy.inspection.words import merge_words, words_in_rows
from peasy.nn.module_path import ModulePath
from peasy.views import document as doc

_MAX_LINKED_TOKENS = 64
"""Up to this many tokens, attention is also drawn as lines between words."""

_ARITHMETIC_STEPS = ("query", "key")
"""Steps that make it possible to expand a weight to its arithmetic."""

_MEASURES: dict[AttentionMeasure, str] = {
    "weight": "Attention weights",
    "value": "Attention weight times norm of the value",
    "norm": "Norm-based attention",
}
_SHORT_MEASURES: dict[AttentionMeasure, str] = {
    "weight": "weight", "value": "weight x norm of the value", "norm": "norm of weight x value x W_O",
}  # fmt: skip

_MAX_COMMAND_TEXT = 120
"""A longer text is read from a file in the suggested command."""


def attention_document(
    record: AttentionRecord, merge_subwords: bool = False, measure: AttentionMeasure = "weight"
) -> doc.Document:
    """Document of all captured weights as heat maps; the sharpest head is also drawn as links."""
    parts: list[doc.DocumentPart] = list(opening_notes(record.interventions, record.notes, record.storage))
    by_kind: dict[str, list[Capture]] = {}
    for path, capture in record.by_path("weights").items():
        by_kind.setdefault(attention_name(path, record.attention_info(path)), []).append(capture)
    for name, captures in by_kind.items():
        maps = attention_maps(record, captures, merge_subwords, measure)
        if len(by_kind) > 1:
            parts.append(doc.Heading(name))
        parts.append(maps)
        if max(len(maps.rows), len(maps.columns)) <= _MAX_LINKED_TOKENS:
            title = maps.name(*maps.selected).capitalize()
            parts.append(doc.Links(title, maps.rows, maps.columns, maps.values[maps.selected]))
    if merge_subwords and by_kind:
        parts.append(doc.Paragraph(WORD_MERGE_NOTE, "note"))
    if not by_kind or {capture.step for capture in record.captures} - {"weights", *_ARITHMETIC_STEPS}:
        rows = []
        for capture in record.captures:
            values = np.asarray(capture.array, dtype=np.float32)
            finite = values[np.isfinite(values)]
            lowest, highest = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
            path = capture.path
            names = (path.stack, str(path.layer), path.part.replace("_", "-"), capture.step)
            rows.append((*names, " x ".join(map(str, values.shape)), lowest, highest))
        columns = ("stack", "layer", "module", "step", "shape", "min", "max")
        parts.append(doc.Table(columns, tuple(rows), "Captured arrays"))
    parts += _next_token_parts(record)
    parts.append(doc.capitalized_note(record.caveat))
    return doc.Document(doc.short_title(record.tokens.text, record.model), tuple(parts))


def attention_name(path: ModulePath, info: AttentionInfo | None = None) -> str:
    """Return the name of an attention: "Decoder: self-attention"."""
    cross = info.cross if info is not None else "cross" in path.part
    return f"{path.stack.capitalize()}: {'cross' if cross else 'self'}-attention"


def attention_maps(
    record: AttentionRecord, captures: Sequence[Capture], merge_subwords: bool, measure: AttentionMeasure
) -> doc.Maps:
    """Return captures of one kind of attention as heat maps, layers by heads; what was not captured is left empty."""
    layers = sorted({capture.path.layer for capture in captures})
    heads = sorted({head_index for capture in captures for head_index in capture.heads})
    queries, keys = record.axes(captures[0].path)
    positions = sorted({row for capture in captures for row in _captured_rows(capture)})
    weights = [_masked_weights(capture, record.attention_info(capture.path), measure) for capture in captures]
    values = _by_layer_and_head(captures, weights, layers, heads, positions)
    rows, columns = tuple(queries.pieces[row] for row in positions), keys.pieces
    if merge_subwords:
        values, rows = merge_words(values, queries, keys, positions), words_in_rows(queries, positions)
        columns = keys.words
    single = (len(rows), len(columns)) == (len(positions), len(keys))  # one token per cell
    explainable = single and measure == "weight"
    # The sharpest map is selected; the first key, often an attention sink, does not count.
    rest = np.nan_to_num(values[..., 1:] if values.shape[-1] > 1 else values)
    sharpness = rest.max(axis=-1).mean(axis=-1)
    down, across = np.unravel_index(int(sharpness.argmax()), sharpness.shape)
    return doc.Maps(
        _MEASURES[measure],
        values, rows, columns, tuple(map(str, layers)), tuple(map(str, heads)),
        description=_attention_notes([info for capture in captures if (info := record.attention_info(capture.path))]),
        selected=(int(down), int(across)),
        vectors=_query_key_vectors(record, captures, layers, heads, positions) if explainable else None,
        command="" if measure != "weight" else _head_command(record, captures[0].path),
    )  # fmt: skip


def _query_key_vectors(
    record: AttentionRecord, captures: Sequence[Capture], layers: list[int], heads: list[int], positions: list[int]
) -> doc.Vectors | None:
    """Return the queries and keys of these maps, if they were captured and determine the scores."""
    info = record.attention_info(captures[0].path)
    query_captures, key_captures = (
        [found for capture in captures if (found := record.by_path(step).get(capture.path))]
        for step in _ARITHMETIC_STEPS
    )
    if info is None or info.scale is None or not len(query_captures) == len(key_captures) == len(captures):
        return None
    query = _by_layer_and_head(query_captures, [one.array for one in query_captures], layers, heads, positions)
    key = _by_layer_and_head(query_captures, [one.array for one in key_captures], layers, heads)
    return doc.Vectors(query, key, info.scale, info.softcap)


def _by_layer_and_head(
    captures: Sequence[Capture], arrays: Sequence[np.ndarray], layers: list[int], heads: list[int],
    positions: list[int] | None = None,
) -> np.ndarray:  # fmt: skip
    """Return arrays `[head, row, column]` as one `[layer, head, row, column]`; what was not captured is NaN."""
    height, width = arrays[0].shape[-2:]
    values = np.full((len(layers), len(heads), len(positions or range(height)), width), np.nan, dtype=np.float32)
    for capture, array in zip(captures, arrays, strict=True):
        rows = slice(None) if positions is None else [positions.index(row) for row in _captured_rows(capture)]
        for index, head in enumerate(capture.heads):
            values[layers.index(capture.path.layer), heads.index(head), rows] = array[index]
    return values


def _head_command(record: AttentionRecord, path: ModulePath) -> str:
    """Return the start of the command that shows one head step by step; empty if only Python can show it."""
    stack = "encoder" if record.kind == "encoder" else "decoder"
    if path.part != "attention" or path.stack != stack:
        return ""
    short = len(record.tokens.text) <= _MAX_COMMAND_TEXT and record.tokens.text.strip()
    return f"peasy look {quote(record.model)} {quote(record.tokens.text) if short else '- < text.txt'}"


def _masked_weights(capture: Capture, info: AttentionInfo | None, measure: AttentionMeasure = "weight") -> np.ndarray:
    """Return the weights `[head, row, key]`; masked keys are NaN, not 0."""
    array = np.array(capture.measured(measure), dtype=np.float32)
    if info is None or info.cross:
        return array
    rows, keys = np.array(_captured_rows(capture))[:, None], np.arange(array.shape[-1])[None, :]
    if info.causal:
        array[:, keys > rows] = np.nan
    if info.window is not None:  # attention sinks are visible outside the window
        outside = np.broadcast_to(np.abs(rows - keys) > info.window, array.shape[1:])
        array[:, outside & ~(array > 0).any(axis=0)] = np.nan
    return array


def tiled_document(record: AttentionRecord) -> doc.Document:
    """Document of a long text: tiled attention of each layer, with the rows captured at full resolution."""
    tokens = record.target or record.tokens
    opening = doc.Paragraph(f"{len(tokens):,} tokens."), *opening_notes(record.interventions, (), record.storage)
    maps = (_tiled_maps(record, overview) for overview in record.overviews)
    parts: tuple[doc.DocumentPart, ...] = (*opening, *maps, doc.capitalized_note(record.caveat))
    return doc.Document(doc.short_title(tokens.text, record.model), parts)


def _tiled_maps(record: AttentionRecord, overview: results.AttentionOverview) -> doc.Maps:
    """Return tiled heat maps of one attention layer, one for each head."""
    captured, info = record.by_path("weights").get(overview.path), record.attention_info(overview.path)
    tokens = record.target or record.tokens
    exact, tiles = None, np.array(overview.tiles, dtype=np.float32)
    if info is not None and info.causal and not info.cross:
        tiles[:, np.triu(np.ones(tiles.shape[1:], dtype=bool), 1)] = np.nan
    if captured is not None and set(overview.heads) <= set(captured.heads):
        order = [captured.heads.index(head) for head in overview.heads]
        weights = _masked_weights(captured, info, overview.measure)[None, order]
        exact = doc.Rows(_captured_rows(captured), weights)
    return doc.Maps(
        _MEASURES[overview.measure], tiles[None],
        tokens.pieces, tokens.pieces, (str(overview.path.layer),), tuple(map(str, overview.heads)),
        tile_size=overview.tile, reduction=overview.reduction, exact_rows=exact,
        description=_attention_notes([info] if info else []),
    )  # fmt: skip


def opening_notes(
    interventions: Sequence[str], notes: Sequence[str] = (), storage: str = "float32"
) -> Iterator[doc.Paragraph]:
    """Yield opening notes: interventions, notes of the record, storage dtype."""
    for intervention in interventions:
        yield doc.Paragraph(f"Intervention: {intervention}", "note")
    for note in notes:
        yield doc.Paragraph(note, "note")
    if storage != "float32":
        yield doc.Paragraph(f"Values are stored as {storage}.", "note")


def _next_token_parts(record: AttentionRecord) -> list[doc.DocumentPart]:
    rows = tuple((candidate.piece, candidate.probability) for candidate in record.next_tokens)
    return [doc.Table(("token", "probability"), rows, "Next token")] if rows else []


def _captured_rows(capture: Capture) -> tuple[int, ...]:
    return capture.rows if capture.rows is not None else tuple(range(capture.array.shape[-2]))


def _attention_notes(attentions: Sequence[AttentionInfo]) -> str:
    """Return notes about causal masks, sliding windows and grouped-query attention."""
    notes = []
    if any(info.causal and not info.cross for info in attentions):
        notes.append("Causal: a token attends to itself and to earlier tokens; empty cells are masked.")
    for window in sorted({info.window for info in attentions if info.window is not None}):
        layers = ", ".join(str(info.path.layer) for info in attentions if info.window == window)
        notes.append(f"Layer {layers}: sliding window of {window} tokens; weights further away are attention sinks.")
    for info in attentions[:1]:
        if info.is_grouped:
            groups: dict[int, list[str]] = {}
            for head, key_head in enumerate(info.kv_head):
                groups.setdefault(key_head, []).append(str(head))
            shared = "; ".join(f"{', '.join(heads)} use {key}" for key, heads in groups.items())
            notes.append(f"Grouped-query attention, query heads share KV heads: {shared}.")
    return " ".join(notes)


def word_attention_document(
    record: AttentionRecord, query: str, heads: Sequence[results.HeadTopWords], measure: AttentionMeasure = "weight"
) -> doc.Document:
    """Document with one line for each head, weights without the leading zero."""
    table = doc.Table(("head", f'"{query}" attends to ({_SHORT_MEASURES[measure]})'), _top_word_rows(heads, " "))
    notes = doc.Paragraph(WORD_MERGE_NOTE, "note"), doc.capitalized_note(record.caveat)
    parts: tuple[doc.DocumentPart, ...] = (*opening_notes(record.interventions), table, *notes)
    return doc.Document(doc.short_title(record.tokens.text, record.model), parts)


def strongest_links_document(record: AttentionRecord, heads: Sequence[results.HeadTopWords]) -> doc.Document:
    """Document with one line for each head, and the next-token candidates."""
    table = doc.Table(("head", "strongest links, query→key"), _top_word_rows(heads, "  "))
    omitted = f"Attention of a word to itself and to the first word is not listed. {WORD_MERGE_NOTE}"
    notes = doc.Paragraph(omitted, "note"), doc.capitalized_note(record.caveat)
    opening = opening_notes(record.interventions, record.notes, record.storage)
    parts = (*opening, table, *_next_token_parts(record), *notes)
    return doc.Document(doc.short_title(record.tokens.text, record.model), parts)


def _top_word_rows(heads: Sequence[results.HeadTopWords], gap: str) -> tuple[tuple[str, str], ...]:
    """Return a row for each head: its name, with the module if there are several, and its words with their weights."""
    several = len({(line.path.stack, line.path.part) for line in heads}) > 1
    rows = []
    for line in heads:
        where = f"{line.path.stack} {line.path.part} ".replace("_", "-") if several else ""
        words = (f"{word} {weight:.2f}".replace(" 0.", " .") for word, weight in line.top_words)
        rows.append((f"{where}{line.path.layer}.{line.head}", gap.join(words)))
    return tuple(rows)
