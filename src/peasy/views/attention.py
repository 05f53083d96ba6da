"""What heads looked at, as a document: every captured head of every layer, and one of them in words."""

from collections.abc import Iterator, Sequence
from shlex import quote

import numpy as np

from peasy.errors import NotFound
from peasy.looking.record import MERGED, Capture, LongLook, Look, Overview, Part, Tokens
from peasy.nn.place import Place
from peasy.views.document import Cell, Document, Heading, Links, Maps, Paragraph, Rows, Table, Vectors
from peasy.views.document import Part as Shown

MOST_LINKED = 64
"""Up to so many tokens the words are joined by lines too."""

OPENED = ("query", "key")
"""With these two a map carries what its weights came from."""

LONGEST = 120
"""A text longer than this is read from a file by the command that is told."""

STACKS = {"encoder": "Encoder", "decoder": "Decoder"}


def look_document(
    look: Look, layer: int | None = None, head: int | None = None, words: bool = False, scaled: bool = False
) -> Document:
    """All captured weights as maps, the asked head (or the sharpest) chosen, and its words joined by lines."""
    parts: list[Shown] = list(opening(look.edits, look.notes, look.storage))
    shown = attentions(look) if look.of("weights") else {}
    for name, captures in shown.items():
        maps = attention_maps(look, captures, layer, head, words, scaled)
        if len(shown) > 1:
            parts.append(Heading(name))
        parts += [maps, *_lines(maps)]
    if words and shown:
        parts.append(Paragraph(MERGED, "note"))
    if not shown or {capture.step for capture in look.captures} - {"weights", *OPENED}:
        parts.append(_kept(look))
    parts += candidates_parts(look)
    parts.append(Paragraph(_sentence(look.caveat), "note"))
    return Document(short_title(look.tokens.text, look.model), tuple(parts))


def attentions(look: Look) -> dict[str, list[Capture]]:
    """The captured weights by the kind of attention they are of: self, cross, of which stack."""
    found: dict[str, list[Capture]] = {}
    for place, capture in look.of("weights").items():
        found.setdefault(attention_name(place, look.part(place)), []).append(capture)
    if not found:
        raise NotFound("No weights were captured.", hint='Ask for them: steps=("weights",).')
    return found


def attention_name(place: Place, part: Part | None = None) -> str:
    """What an attention is called in words."""
    cross = part.cross if part is not None else "cross" in place.part
    stack = STACKS.get(place.stack, place.stack.capitalize())
    return f"{stack}: where the answer looks into the source" if cross else f"{stack}: self-attention"


def attention_maps(
    look: Look,
    captures: Sequence[Capture],
    layer: int | None = None,
    head: int | None = None,
    words: bool = False,
    scaled: bool = False,
) -> Maps:
    """Captures of one kind of attention as maps of layers by heads; what was not captured is left empty."""
    layers = sorted({capture.place.layer for capture in captures})
    heads = sorted({number for capture in captures for number in capture.heads})
    queries, keys = look.axes(captures[0].place)
    places = sorted({row for capture in captures for row in _rows(capture)})
    values = np.full((len(layers), len(heads), len(places), len(keys)), np.nan, dtype=np.float32)
    for capture in captures:
        shown = seen_weights(capture, look.part(capture.place), scaled)
        at = [places.index(row) for row in _rows(capture)]
        for place, number in enumerate(capture.heads):
            values[layers.index(capture.place.layer), heads.index(number), at] = shown[place]
    rows, columns = tuple(queries.pieces[row] for row in places), keys.pieces
    if words:
        values, rows = merge_words(values, queries, keys, places)
        columns = keys.words
    single = (len(rows), len(columns)) == (len(places), len(keys))  # no cell stands for several tokens
    return Maps(
        "Contributions: weight times the length of the value" if scaled else "Attention weights",
        values, rows, columns, tuple(map(str, layers)), tuple(map(str, heads)),
        says=_facts(look, captures), chosen=_chosen(values, layers, heads, layer, head),
        vectors=_vectors(look, captures, layers, heads, places) if single and not scaled else None,
        command="" if scaled else _command(look, captures[0].place),
    )  # fmt: skip


def _vectors(
    look: Look, captures: Sequence[Capture], layers: list[int], heads: list[int], places: list[int]
) -> Vectors | None:
    """The queries and keys of these maps, where they were captured and are what the scores were made of."""
    part, keys = look.part(captures[0].place), len(look.axes(captures[0].place)[1])
    asked, offered = ([c for each in captures if (c := look.of(step).get(each.place))] for step in OPENED)
    if part is None or part.scale is None or not len(asked) == len(offered) == len(captures):
        return None
    width = asked[0].array.shape[-1]
    query = np.full((len(layers), len(heads), len(places), width), np.nan, dtype=np.float32)
    key = np.full((len(layers), len(heads), keys, width), np.nan, dtype=np.float32)
    for mine, theirs in zip(asked, offered, strict=True):
        layer, rows = layers.index(mine.place.layer), [places.index(row) for row in _rows(mine)]
        for place, number in enumerate(mine.heads):
            query[layer, heads.index(number), rows] = mine.array[place]
            key[layer, heads.index(number)] = theirs.array[place]
    return Vectors(query, key, part.scale, part.softcap)


def _command(look: Look, place: Place) -> str:
    """The start of the line that works out one head of this attention; none where a person must ask in Python."""
    own = "encoder" if look.kind == "encoder" else "decoder"
    if place.part != "attention" or place.stack != own:
        return ""
    short = len(look.tokens.text) <= LONGEST and look.tokens.text.strip()
    return f"peasy look {quote(look.model)} {quote(look.tokens.text) if short else '- < text.txt'}"


def seen_weights(capture: Capture, part: Part | None, scaled: bool = False) -> np.ndarray:
    """The weights `[head, row, key]`; what a head may not look at is NaN: it is no small weight."""
    array = np.array(capture.scaled() if scaled else capture.array, dtype=np.float32)
    if part is None or part.cross:
        return array
    rows, keys = np.array(_rows(capture))[:, None], np.arange(array.shape[-1])[None, :]
    if part.causal:
        array[:, keys > rows] = np.nan
    if part.window is not None:  # sinks lie outside the window and are looked at all the same
        outside = np.broadcast_to(np.abs(rows - keys) > part.window, array.shape[1:])
        array[:, outside & ~(array > 0).any(axis=0)] = np.nan
    return array


def merge_words(
    values: np.ndarray, queries: Tokens, keys: Tokens, places: Sequence[int]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Maps by words: summed over the tokens of a key word, averaged over those of a query word (those captured)."""
    there = np.isfinite(values)
    filled = np.where(there, values, 0.0)
    by_key = np.stack([filled[..., list(group)].sum(-1) for group in keys.groups], axis=-1)
    seen = np.stack([there[..., list(group)].any(-1) for group in keys.groups], axis=-1)
    at = {place: number for number, place in enumerate(places)}
    kept = [
        (word, [at[place] for place in group if place in at])
        for word, group in zip(queries.words, queries.groups, strict=True)
    ]
    kept = [(word, group) for word, group in kept if group]
    merged = np.stack([by_key[..., group, :].mean(-2) for _, group in kept], axis=-2)
    visible = np.stack([seen[..., group, :].any(-2) for _, group in kept], axis=-2)
    return np.where(visible, merged, np.nan).astype(np.float32), tuple(word for word, _ in kept)


def query_document(look: Look, query: int, top: int = 5) -> Document:
    """What one token looked at: each captured head with its largest weights."""
    rows = []
    for captures in attentions(look).values():
        for capture in captures:
            if query in _rows(capture):
                rows += list(_looked(look, capture, query, top))
    queries, _ = look.axes(look.captures[0].place)
    if not rows:
        raise NotFound(f"Row {query} was not captured.", hint="Ask for it: rows=[...].")
    columns = ("stack", "layer", "head", *(f"{place + 1}." for place in range(top)))
    said = Paragraph(_sentence(look.caveat), "note")
    table = Table(columns, tuple(rows), f"What {queries.pieces[query]} looks at")
    return Document(short_title(look.tokens.text, look.model), (*opening(look.edits), table, said))


def long_document(look: LongLook) -> Document:
    """A long text: an overview in tiles for each asked attention, with the rows that were kept in full."""
    parts: list[Shown] = [Paragraph(f"{len(look.tokens):,} tokens."), *opening(look.edits, (), look.storage)]
    for overview in look.overviews:
        parts.append(tiled_maps(look, overview))
    parts.append(Paragraph(_sentence(look.caveat), "note"))
    return Document(short_title(look.tokens.text, look.model), tuple(parts))


def tiled_maps(look: LongLook, overview: Overview) -> Maps:
    """One attention of a long text, head by head."""
    kept = next((each for each in look.rows if each.place == overview.place and each.step == "weights"), None)
    part = next((each for each in look.parts if each.place == overview.place), None)
    exact, tiles = None, np.array(overview.tiles, dtype=np.float32)
    if part is not None and part.causal and not part.cross:
        tiles[:, np.triu(np.ones(tiles.shape[1:], dtype=bool), 1)] = np.nan
    if kept is not None and set(overview.heads) <= set(kept.heads):
        order = [kept.heads.index(head) for head in overview.heads]
        exact = Rows(_rows(kept), seen_weights(kept, part, overview.scaled)[None, order])
    return Maps(
        "Contributions" if overview.scaled else "Attention weights", tiles[None],
        look.tokens.pieces, look.tokens.pieces, (str(overview.place.layer),), tuple(map(str, overview.heads)),
        tile=overview.tile, reduced=overview.how, exact=exact, says=_part_facts([part] if part else []),
    )  # fmt: skip


def opening(edits: Sequence[str], notes: Sequence[str] = (), storage: str = "float32") -> Iterator[Paragraph]:
    """What must be known before the numbers are read: what was changed, what else is said, how they are kept."""
    for edit in edits:
        yield Paragraph(f"Changed before looking: {edit}", "bad")
    for note in notes:
        yield Paragraph(note, "note")
    if storage != "float32":
        yield Paragraph(f"Numbers are kept as {storage}.", "note")


def candidates_parts(look: Look) -> list[Shown]:
    """What the model would say next."""
    if not look.next:
        return []
    rows = tuple((candidate.piece, candidate.chance) for candidate in look.next)
    return [Table(("next", "probability"), rows, "What could come next")]


def short_title(text: str, model: str) -> str:
    """The text and the model it went through, on one line."""
    line = " ".join(text.split())
    return f"{line if len(line) <= 60 else line[:57] + '...'} ({model})"


def _kept(look: Look) -> Table:
    """What else was captured, array by array: what it is, how large, and between which numbers it lies."""
    rows = []
    for capture in look.captures:
        numbers = np.asarray(capture.array, dtype=np.float32)
        there = numbers[np.isfinite(numbers)]
        least, most = (float(there.min()), float(there.max())) if there.size else (None, None)
        place = capture.place
        where = (place.stack, str(place.layer), place.part.replace("_", "-"), capture.step)
        rows.append((*where, " x ".join(map(str, numbers.shape)), least, most))
    columns = ("stack", "layer", "part", "step", "size", "smallest", "largest")
    return Table(columns, tuple(rows), "What was captured")


def _lines(maps: Maps) -> Iterator[Links]:
    if max(len(maps.rows), len(maps.columns)) <= MOST_LINKED:
        yield Links(maps.name(*maps.chosen).capitalize(), maps.rows, maps.columns, maps.values[maps.chosen])


def _chosen(
    values: np.ndarray, layers: list[int], heads: list[int], layer: int | None, head: int | None
) -> tuple[int, int]:
    """The asked map; else the one whose rows have their largest weights elsewhere than on the first key."""
    for asked, there, what in ((layer, layers, "Layer"), (head, heads, "Head")):
        if asked is not None and asked not in there:
            raise NotFound(f"{what} {asked} was not captured.", hint=f"Captured: {', '.join(map(str, there))}.")
    rest = np.nan_to_num(values[..., 1:] if values.shape[-1] > 1 else values)
    sharp = rest.max(axis=-1).mean(axis=-1)
    if layer is not None:
        sharp[[place for place, each in enumerate(layers) if each != layer]] = -1
    if head is not None:
        sharp[:, [place for place, each in enumerate(heads) if each != head]] = -1
    down, across = np.unravel_index(int(sharp.argmax()), sharp.shape)
    return int(down), int(across)


def _rows(capture: Capture) -> tuple[int, ...]:
    return capture.rows if capture.rows is not None else tuple(range(capture.array.shape[-2]))


def _looked(look: Look, capture: Capture, query: int, top: int) -> Iterator[tuple[Cell, ...]]:
    _, keys = look.axes(capture.place)
    at = _rows(capture).index(query)
    for place, head in enumerate(capture.heads):
        weights = np.asarray(capture.array[place, at], dtype=float)
        best = np.argsort(-weights)[:top]
        said = [f"{keys.pieces[key]} {weights[key]:.2f}" for key in best if weights[key] > 0]
        yield (capture.place.stack, str(capture.place.layer), str(head), *said)


def _facts(look: Look, captures: Sequence[Capture]) -> str:
    return _part_facts([part for capture in captures if (part := look.part(capture.place)) is not None])


def _part_facts(parts: Sequence[Part]) -> str:
    """What a picture must not hide: shared keys, windows, who may look where."""
    said = []
    if any(part.causal and not part.cross for part in parts):
        said.append("A token sees itself and what stands before it; empty cells may not be looked at.")
    for window in sorted({part.window for part in parts if part.window is not None}):
        layers = ", ".join(str(part.place.layer) for part in parts if part.window == window)
        said.append(f"Layer {layers}: sees at most {window} places away; what it still sees further are sinks.")
    for part in parts[:1]:
        if part.grouped:
            said.append(f"Query heads share keys and values: {_shared(part)}.")
    return " ".join(said)


def _shared(part: Part) -> str:
    groups: dict[int, list[int]] = {}
    for head, key_head in enumerate(part.key_head):
        groups.setdefault(key_head, []).append(head)
    return "; ".join(f"{', '.join(map(str, heads))} use {key}" for key, heads in groups.items())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
