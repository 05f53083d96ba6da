"""Tokens and words: labels tokens with their words, merges attention over sub-words, finds the largest weights."""

from collections.abc import Iterable, Sequence

import numpy as np

from peasy.errors import InvalidInput, NotFound
from peasy.inspection.results import Array, AttentionMeasure, AttentionRecord, HeadTopWords, Tokens
from peasy.tokenization import Encoding, Tokenizer
from peasy.tokenization.encoding import split_words


def label_tokens(
    encoding: Encoding, tokenizer: Tokenizer, prefix_ids: Iterable[int] = (), suffix_ids: Iterable[int] = ()
) -> Tokens:
    """Label the tokens of a text; special ids before and after it are separate words."""
    first, last = list(prefix_ids), list(suffix_ids)
    ids = (*first, *encoding.ids, *last)
    pieces = (*map(tokenizer.piece, first), *encoding.pieces, *map(tokenizer.piece, last))
    numbers = (*[None] * len(first), *encoding.word_ids, *[None] * len(last))
    spans = split_words(encoding.text)
    groups: list[list[int]] = []
    for position, number in enumerate(numbers):
        if number is None or position == 0 or numbers[position - 1] != number:
            groups.append([])
        groups[-1].append(position)
    word_numbers = [numbers[group[0]] for group in groups]
    named = zip(groups, word_numbers, strict=True)
    words = [pieces[g[0]] if number is None else encoding.text[slice(*spans[number])] for g, number in named]
    return Tokens(encoding.text, ids, pieces, tuple(words), tuple(map(tuple, groups)), tuple(word_numbers))


def token_piece(tokenizer: Tokenizer | None, id: int) -> str:
    """Return the printable piece of a token, or its number if there is no such token or no tokenizer."""
    return f"#{id}" if tokenizer is None or id >= len(tokenizer) else tokenizer.piece(id)


def label_ids(ids: Sequence[int], pieces: Sequence[str] | None = None, text: str = "") -> Tokens:
    """Label ids without a text: every token is a separate word."""
    labels = tuple(pieces) if pieces is not None else tuple(f"#{id}" for id in ids)
    positions = tuple((position,) for position in range(len(ids)))
    return Tokens(text, tuple(ids), labels, labels, positions, (None,) * len(ids))


def label_text(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> Tokens:
    """Label the tokens of a text; if these are not its ids (a truncated text, or only <bos>), by token alone."""
    for add_special_tokens in (True, False):
        encoding = tokenizer.encode(text, add_special_tokens=add_special_tokens)
        if list(encoding.ids) == list(ids):
            return label_tokens(encoding, tokenizer)
    return label_ids(ids, tokenizer.pieces(ids), text)


def merge_words(array: Array, queries: Tokens, keys: Tokens, rows: Sequence[int] | None = None) -> Array:
    """Merge weights `[..., row, key]` by words: sum over the tokens of a key, mean over those of a query.

    `rows`: positions of the given rows; words without any of them are left out. A masked weight (NaN) counts as 0; a
    cell of masked weights only is NaN.
    """
    row_of = {position: row for row, position in enumerate(range(len(queries)) if rows is None else rows)}
    word_rows = [[row_of[position] for position in group if position in row_of] for group in queries.word_positions]

    def merged(cells: Array) -> Array:
        summed = np.stack([cells[..., list(group)].sum(-1) for group in keys.word_positions], axis=-1)
        return np.stack([summed[..., indices, :].mean(-2) for indices in word_rows if indices], axis=-2)

    masked = np.isnan(array)
    weights = merged(np.where(masked, 0, array).astype(np.float32))
    return np.where(merged(~masked) > 0, weights, np.float32(np.nan)) if masked.any() else weights


def words_in_rows(queries: Tokens, rows: Sequence[int] | None = None) -> tuple[str, ...]:
    """Return the words with at least one token among the rows."""
    positions = set(range(len(queries)) if rows is None else rows)
    pairs = zip(queries.words, queries.word_positions, strict=True)
    return tuple(word for word, group in pairs if positions & set(group))


def top_words_of_query(
    record: AttentionRecord, query: str | int, top: int = 5, measure: AttentionMeasure = "weight"
) -> tuple[HeadTopWords, ...]:
    """Return the `top` words with the largest weights of a query word, in every captured head."""
    captures = record.by_path("weights")
    heads: list[HeadTopWords] = []
    for path, capture in captures.items():
        queries, keys = record.axes(path)
        try:
            positions = queries.find(query)
        except InvalidInput:
            if len({path.stack for path in captures}) > 1:
                continue  # the word is on the other side of the translation
            raise
        rows = [index for index, row in enumerate(capture.rows or ()) if row in positions]
        if not rows:
            continue
        weights = capture.measured(measure)[:, rows].astype(np.float32).mean(axis=1)
        by_word = np.stack([weights[:, list(group)].sum(-1) for group in keys.word_positions], axis=-1)
        for head, row in zip(capture.heads, by_word, strict=True):
            best = np.argsort(-row, kind="stable")[:top]
            heads.append(HeadTopWords(path, head, tuple((keys.words[i], float(row[i])) for i in best if row[i] > 0)))
    if not heads:
        raise NotFound(f'"{query}" is not among the captured queries.', hint="Call look without queries=.")
    return tuple(heads)


def strongest_links(
    record: AttentionRecord, top: int = 3, measure: AttentionMeasure = "weight"
) -> tuple[HeadTopWords, ...]:
    """Return the strongest links between words in every captured head.

    Links to the word itself or to the first word (attention sink) are returned only if there are no others.
    """
    heads = []
    for path, capture in record.by_path("weights").items():
        queries, keys = record.axes(path)
        names = words_in_rows(queries, capture.rows)
        merged = merge_words(capture.measured(measure), queries, keys, capture.rows)
        for head, array in zip(capture.heads, merged, strict=True):
            informative = array.copy()
            if path.part == "attention" and len(names) == len(keys.words):
                np.fill_diagonal(informative, 0)
                informative[:, 0] = 0
            best = np.argsort(-(informative if informative.any() else array), axis=None, kind="stable")[:top]
            pairs = [divmod(int(index), array.shape[1]) for index in best]
            links = tuple((f"{names[query]}→{keys.words[key]}", float(array[query, key])) for query, key in pairs)
            heads.append(HeadTopWords(path, head, links))
    return tuple(heads)
