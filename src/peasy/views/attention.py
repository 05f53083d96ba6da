"""Captured attention as a document: heat maps of every layer and head, links of the selected head."""

from collections.abc import Iterator, Sequence
from shlex import quote

import numpy as np

from peasy.errors import NotFound
from peasy.looking.record import MERGED, Capture, LongLook, Look, Overview, Part, Tokens
from peasy.nn.place import Place
from peasy.views.document import Cell, Document, Heading, Links, Maps, Paragraph, Rows, Table, Vectors
from peasy.views.document import Part as DocumentPart

MOST_LINKED = 64
"""Up to this many tokens, attention is also drawn as lines between words."""

OPENED = ("query", "key")
"""Steps that make it possible to expand a weight to its arithmetic."""

LONGEST = 120
"""A longer text is read from a file in the suggested command."""

STACKS = {"encoder": "Encoder", "decoder": "Decoder"}


def look_document(
    look: Look, layer: int | None = None, head: int | None = None, words: bool = False, scaled: bool = False
) -> Document:
    """Document of all captured weights as heat maps; the requested (or the sharpest) head is also drawn as links."""
    parts: list[DocumentPart] = list(opening(look.edits, look.notes, look.storage))
    by_kind = attentions(look) if look.of("weights") else {}
    for name, captures in by_kind.items():
        maps = attention_maps(look, captures, layer, head, words, scaled)
        if len(by_kind) > 1:
            parts.append(Heading(name))
        parts += [maps, *_lines(maps)]
    if words and by_kind:
        parts.append(Paragraph(MERGED, "note"))
    if not by_kind or {capture.step for capture in look.captures} - {"weights", *OPENED}:
        parts.append(_kept(look))
    parts += candidates_parts(look)
    parts.append(Paragraph(_sentence(look.caveat), "note"))
    return Document(short_title(look.tokens.text, look.model), tuple(parts))


def attentions(look: Look) -> dict[str, list[Capture]]:
    """Return the captured weights by kind of attention: self or cross, encoder or decoder."""
    by_kind: dict[str, list[Capture]] = {}
    for path, capture in look.of("weights").items():
        by_kind.setdefault(attention_name(path, look.part(path)), []).append(capture)
    if not by_kind:
        raise NotFound("No weights were captured.", hint='Capture them: steps=("weights",).')
    return by_kind


def attention_name(place: Place, part: Part | None = None) -> str:
    """Return the name of an attention: "Decoder: self-attention"."""
    cross = part.cross if part is not None else "cross" in place.part
    stack = STACKS.get(place.stack, place.stack.capitalize())
    return f"{stack}: {'cross' if cross else 'self'}-attention"


def attention_maps(
    look: Look,
    captures: Sequence[Capture],
    layer: int | None = None,
    head: int | None = None,
    words: bool = False,
    scaled: bool = False,
) -> Maps:
    """Return captures of one kind of attention as heat maps, layers by heads; what was not captured is left empty."""
    layers = sorted({capture.place.layer for capture in captures})
    heads = sorted({head_index for capture in captures for head_index in capture.heads})
    queries, keys = look.axes(captures[0].place)
    positions = sorted({row for capture in captures for row in _rows(capture)})
    values = np.full((len(layers), len(heads), len(positions), len(keys)), np.nan, dtype=np.float32)
    for capture in captures:
        weights = seen_weights(capture, look.part(capture.place), scaled)
        at = [positions.index(row) for row in _rows(capture)]
        for index, head_index in enumerate(capture.heads):
            values[layers.index(capture.place.layer), heads.index(head_index), at] = weights[index]
    rows, columns = tuple(queries.pieces[row] for row in positions), keys.pieces
    if words:
        values, rows = merge_words(values, queries, keys, positions)
        columns = keys.words
    single = (len(rows), len(columns)) == (len(positions), len(keys))  # one token per cell
    return Maps(
        "Attention weight times norm of the value" if scaled else "Attention weights",
        values, rows, columns, tuple(map(str, layers)), tuple(map(str, heads)),
        says=_facts(look, captures), chosen=_chosen(values, layers, heads, layer, head),
        vectors=_vectors(look, captures, layers, heads, positions) if single and not scaled else None,
        command="" if scaled else _command(look, captures[0].place),
    )  # fmt: skip


def _vectors(
    look: Look, captures: Sequence[Capture], layers: list[int], heads: list[int], places: list[int]
) -> Vectors | None:
    """Return the queries and keys of these maps, if they were captured and determine the scores."""
    info, keys = look.part(captures[0].place), len(look.axes(captures[0].place)[1])
    query_captures, key_captures = (
        [found for capture in captures if (found := look.of(step).get(capture.place))] for step in OPENED
    )
    if info is None or info.scale is None or not len(query_captures) == len(key_captures) == len(captures):
        return None
    width = query_captures[0].array.shape[-1]
    query = np.full((len(layers), len(heads), len(places), width), np.nan, dtype=np.float32)
    key = np.full((len(layers), len(heads), keys, width), np.nan, dtype=np.float32)
    for queried, keyed in zip(query_captures, key_captures, strict=True):
        layer, rows = layers.index(queried.place.layer), [places.index(row) for row in _rows(queried)]
        for index, head in enumerate(queried.heads):
            query[layer, heads.index(head), rows] = queried.array[index]
            key[layer, heads.index(head)] = keyed.array[index]
    return Vectors(query, key, info.scale, info.softcap)


def _command(look: Look, place: Place) -> str:
    """Return the start of the command that shows one head step by step; empty if only Python can show it."""
    stack = "encoder" if look.kind == "encoder" else "decoder"
    if place.part != "attention" or place.stack != stack:
        return ""
    short = len(look.tokens.text) <= LONGEST and look.tokens.text.strip()
    return f"peasy look {quote(look.model)} {quote(look.tokens.text) if short else '- < text.txt'}"


def seen_weights(capture: Capture, part: Part | None, scaled: bool = False) -> np.ndarray:
    """Return the weights `[head, row, key]`; masked keys are NaN, not 0."""
    array = np.array(capture.scaled() if scaled else capture.array, dtype=np.float32)
    if part is None or part.cross:
        return array
    rows, keys = np.array(_rows(capture))[:, None], np.arange(array.shape[-1])[None, :]
    if part.causal:
        array[:, keys > rows] = np.nan
    if part.window is not None:  # attention sinks are visible outside the window
        outside = np.broadcast_to(np.abs(rows - keys) > part.window, array.shape[1:])
        array[:, outside & ~(array > 0).any(axis=0)] = np.nan
    return array


def merge_words(
    values: np.ndarray, queries: Tokens, keys: Tokens, places: Sequence[int]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Merge sub-words into words: sum over the tokens of a key word, mean over the captured tokens of a query word."""
    finite = np.isfinite(values)
    filled = np.where(finite, values, 0.0)
    by_key = np.stack([filled[..., list(group)].sum(-1) for group in keys.groups], axis=-1)
    visible_keys = np.stack([finite[..., list(group)].any(-1) for group in keys.groups], axis=-1)
    row_of = {position: row for row, position in enumerate(places)}
    words = [
        (word, [row_of[position] for position in group if position in row_of])
        for word, group in zip(queries.words, queries.groups, strict=True)
    ]
    words = [(word, rows) for word, rows in words if rows]
    merged = np.stack([by_key[..., rows, :].mean(-2) for _, rows in words], axis=-2)
    visible = np.stack([visible_keys[..., rows, :].any(-2) for _, rows in words], axis=-2)
    return np.where(visible, merged, np.nan).astype(np.float32), tuple(word for word, _ in words)


def query_document(look: Look, query: int, top: int = 5) -> Document:
    """Document of one query token: each captured head with its largest weights."""
    rows = []
    for captures in attentions(look).values():
        for capture in captures:
            if query in _rows(capture):
                rows += list(_looked(look, capture, query, top))
    queries, _ = look.axes(look.captures[0].place)
    if not rows:
        raise NotFound(f"Row {query} was not captured.", hint="Capture it: rows=[...].")
    columns = ("stack", "layer", "head", *(f"{rank + 1}." for rank in range(top)))
    caveat = Paragraph(_sentence(look.caveat), "note")
    table = Table(columns, tuple(rows), f"Attention of {queries.pieces[query]}")
    return Document(short_title(look.tokens.text, look.model), (*opening(look.edits), table, caveat))


def long_document(look: LongLook) -> Document:
    """Document of a long text: tiled attention of each layer, with the rows captured at full resolution."""
    parts: list[DocumentPart] = [Paragraph(f"{len(look.tokens):,} tokens."), *opening(look.edits, (), look.storage)]
    for overview in look.overviews:
        parts.append(tiled_maps(look, overview))
    parts.append(Paragraph(_sentence(look.caveat), "note"))
    return Document(short_title(look.tokens.text, look.model), tuple(parts))


def tiled_maps(look: LongLook, overview: Overview) -> Maps:
    """Return tiled heat maps of one attention layer, one for each head."""
    captured = next((rows for rows in look.rows if rows.place == overview.place and rows.step == "weights"), None)
    info = next((part for part in look.parts if part.place == overview.place), None)
    exact, tiles = None, np.array(overview.tiles, dtype=np.float32)
    if info is not None and info.causal and not info.cross:
        tiles[:, np.triu(np.ones(tiles.shape[1:], dtype=bool), 1)] = np.nan
    if captured is not None and set(overview.heads) <= set(captured.heads):
        order = [captured.heads.index(head) for head in overview.heads]
        exact = Rows(_rows(captured), seen_weights(captured, info, overview.scaled)[None, order])
    return Maps(
        "Attention weight times norm of the value" if overview.scaled else "Attention weights", tiles[None],
        look.tokens.pieces, look.tokens.pieces, (str(overview.place.layer),), tuple(map(str, overview.heads)),
        tile=overview.tile, reduced=overview.how, exact=exact, says=_part_facts([info] if info else []),
    )  # fmt: skip


def opening(edits: Sequence[str], notes: Sequence[str] = (), storage: str = "float32") -> Iterator[Paragraph]:
    """Yield opening notes: interventions, notes of the record, storage dtype."""
    for intervention in edits:
        yield Paragraph(f"Intervention: {intervention}", "bad")
    for note in notes:
        yield Paragraph(note, "note")
    if storage != "float32":
        yield Paragraph(f"Values are stored as {storage}.", "note")


def candidates_parts(look: Look) -> list[DocumentPart]:
    """Return the table of next-token candidates."""
    if not look.next:
        return []
    rows = tuple((candidate.piece, candidate.chance) for candidate in look.next)
    return [Table(("token", "probability"), rows, "Next token")]


def short_title(text: str, model: str) -> str:
    """Return text and model name on one line."""
    line = " ".join(text.split())
    return f"{line if len(line) <= 60 else line[:57] + '...'} ({model})"


def _kept(look: Look) -> Table:
    """Return the table of captured arrays: path, shape, smallest and largest value."""
    rows = []
    for capture in look.captures:
        values = np.asarray(capture.array, dtype=np.float32)
        finite = values[np.isfinite(values)]
        lowest, highest = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
        path = capture.place
        names = (path.stack, str(path.layer), path.part.replace("_", "-"), capture.step)
        rows.append((*names, " x ".join(map(str, values.shape)), lowest, highest))
    columns = ("stack", "layer", "module", "step", "shape", "min", "max")
    return Table(columns, tuple(rows), "Captured arrays")


def _lines(maps: Maps) -> Iterator[Links]:
    if max(len(maps.rows), len(maps.columns)) <= MOST_LINKED:
        yield Links(maps.name(*maps.chosen).capitalize(), maps.rows, maps.columns, maps.values[maps.chosen])


def _chosen(
    values: np.ndarray, layers: list[int], heads: list[int], layer: int | None, head: int | None
) -> tuple[int, int]:
    """Return the requested map; by default the sharpest one, ignoring the first key (often an attention sink)."""
    for requested, captured, axis in ((layer, layers, "Layer"), (head, heads, "Head")):
        if requested is not None and requested not in captured:
            hint = f"Captured: {', '.join(map(str, captured))}."
            raise NotFound(f"{axis} {requested} was not captured.", hint=hint)
    rest = np.nan_to_num(values[..., 1:] if values.shape[-1] > 1 else values)
    sharpness = rest.max(axis=-1).mean(axis=-1)
    if layer is not None:
        sharpness[[index for index, number in enumerate(layers) if number != layer]] = -1
    if head is not None:
        sharpness[:, [index for index, number in enumerate(heads) if number != head]] = -1
    down, across = np.unravel_index(int(sharpness.argmax()), sharpness.shape)
    return int(down), int(across)


def _rows(capture: Capture) -> tuple[int, ...]:
    return capture.rows if capture.rows is not None else tuple(range(capture.array.shape[-2]))


def _looked(look: Look, capture: Capture, query: int, top: int) -> Iterator[tuple[Cell, ...]]:
    _, keys = look.axes(capture.place)
    row = _rows(capture).index(query)
    for index, head in enumerate(capture.heads):
        weights = np.asarray(capture.array[index, row], dtype=float)
        largest = np.argsort(-weights)[:top]
        cells = [f"{keys.pieces[key]} {weights[key]:.2f}" for key in largest if weights[key] > 0]
        yield (capture.place.stack, str(capture.place.layer), str(head), *cells)


def _facts(look: Look, captures: Sequence[Capture]) -> str:
    return _part_facts([info for capture in captures if (info := look.part(capture.place)) is not None])


def _part_facts(parts: Sequence[Part]) -> str:
    """Return notes about causal masks, sliding windows and grouped-query attention."""
    notes = []
    if any(info.causal and not info.cross for info in parts):
        notes.append("Causal: a token attends to itself and to earlier tokens; empty cells are masked.")
    for window in sorted({info.window for info in parts if info.window is not None}):
        layers = ", ".join(str(info.place.layer) for info in parts if info.window == window)
        notes.append(f"Layer {layers}: sliding window of {window} tokens; weights further away are attention sinks.")
    for info in parts[:1]:
        if info.grouped:
            notes.append(f"Grouped-query attention, query heads share KV heads: {_shared(info)}.")
    return " ".join(notes)


def _shared(part: Part) -> str:
    groups: dict[int, list[int]] = {}
    for head, key_head in enumerate(part.key_head):
        groups.setdefault(key_head, []).append(head)
    return "; ".join(f"{', '.join(map(str, heads))} use {key}" for key, heads in groups.items())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
