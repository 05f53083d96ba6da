"""`align`: word alignment of a translation from cross-attention, with word order and the head that aligns best."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from unicodedata import category

import numpy as np

from peasy.commands.load import LoadedModel
from peasy.commands.models import read_card
from peasy.commands.result import JsonDict, Result, plain_data
from peasy.datasets import Corpus, TextPair
from peasy.errors import InvalidInput
from peasy.inspection.results import Alignment, Tokens
from peasy.parameters import Record
from peasy.views.document import Document, Paragraph, pluralize
from peasy.views.inspection import alignment_document

CARD_KEY = "alignment_head"
"""Key of [layer, head] in a model card."""

_MAX_PAIRS = 48

LayerHead = tuple[int, int]
"""(layer, head)."""


class WordOrder(Record):
    """Alignment links and word order of a translation; words are indexed as displayed.

    `links` are (source word, target word): the source word with the largest weight for each target word. `crossings`
    are pairs of target words whose source words are in reverse order. `unaligned` are source words without a link,
    `multiply_aligned` those with several.
    """

    links: tuple[tuple[int, int], ...]
    crossings: tuple[tuple[int, int], ...]
    unaligned: tuple[int, ...]
    multiply_aligned: tuple[int, ...]


class AlignResult(Result, eq=False):
    """Result of `align`: the word alignment by one head; `alignment.scores` ranks all heads."""

    kind: str
    alignment: Alignment
    word_order: WordOrder

    @property
    def summary(self) -> tuple[str, str]:
        """Word count and word order, in two sentences."""
        source, target = self.alignment.source, self.alignment.target
        source_count, target_count = len(_word_positions(source)), len(_word_positions(target))
        words = f"{pluralize(source_count, 'word')} became {pluralize(target_count, 'word')}"
        size = f"{words}; {len(source)} tokens became {len(target)}."
        if not self.word_order.crossings:
            return size, "The word order is kept: no two words cross."
        first_crossing = " and ".join(f"“{target.words[index]}”" for index in self.word_order.crossings[0])
        pairs = pluralize(len(self.word_order.crossings), "pair")
        return size, f"The word order changes: {pairs} of words cross, first {first_crossing}."

    def document(self) -> Document:
        """Alignment links, word order, attention map, and heads ranked by how well they align."""
        page = alignment_document(self.alignment)
        first, *rest = page.parts
        return replace(page, parts=(first, *map(Paragraph, self.summary), *rest))

    def data(self) -> JsonDict:
        """Words, weights, heads and word order as plain data."""
        alignment, names = self.alignment, ("head", "accuracy", "monotonicity", "sharpness")
        heads = [{"layer": s.path.layer} | {name: getattr(s, name) for name in names} for s in alignment.scores]
        data: JsonDict = {
            "model": alignment.model,
            "kind": self.kind,
            "source": _tokens_data(alignment.source),
            "target": _tokens_data(alignment.target),
            "layer": alignment.layer,
            "head": alignment.head,
            "best_head": {name: heads[0][name] for name in ("layer", "head")},
            "heads": heads,
            "weights": alignment.weights,
            "order": self.word_order,
            "description": self.summary,
            "caveat": alignment.caveat,
        }
        return {name: plain_data(value, 6) for name, value in data.items()}

    def __repr__(self) -> str:
        return f"AlignResult({self.alignment.model}: {self.alignment.target.text!r})"


def align(
    model: LoadedModel, text: str, target: str | None = None, *, layer: int | None = None, head: int | None = None
) -> AlignResult:
    """Align the words of a translation with its source, by the best head or by the given layer and head.

    Without a `target` the model translates `text` itself, greedily.
    """
    if not model.model.is_encoder_decoder:
        raise InvalidInput(f"{model.name} is a {model.kind}: it does not translate.", hint="Choose a translator.")
    result = model.look(text, target)
    outputs = result.labelled_input.outputs or result.tokens
    alignment = result.alignment((), layer, head, anchors=find_anchors(result.tokens, outputs))
    return AlignResult(model.kind, alignment, word_order(alignment))


def find_anchors(source: Tokens, target: Tokens) -> tuple[tuple[int, int], ...]:
    """Likely links (source word, target word): words that occur once on both sides, such as names and numbers."""
    source_words, target_words = (_unique_words(tokens) for tokens in (source, target))
    return tuple((number, target_words[word]) for word, number in source_words.items() if word in target_words)


def _unique_words(tokens: Tokens) -> dict[str, int]:
    positions = _word_positions(tokens) if tokens.word_numbers else []
    words = [tokens.words[at].strip("·").casefold() for at in positions]
    numbers = (tokens.word_numbers[at] for at in positions)
    return {w: n for w, n in zip(words, numbers, strict=True) if words.count(w) == 1 and n is not None}


def word_order(alignment: Alignment) -> WordOrder:
    """Links by the largest weight, crossings, and unaligned or shared source words; special tokens are ignored."""
    positions = _word_positions(alignment.source)
    words = _word_positions(alignment.target)
    links = [(max(positions, key=lambda at: alignment.weights[word, at]), word) for word in words]
    crossings = [(first[1], second[1]) for first, second in combinations(links, 2) if first[0] > second[0]]
    linked = [source for source, _ in links]
    unaligned = tuple(at for at in positions if at not in linked)
    return WordOrder(tuple(links), tuple(crossings), unaligned, tuple(at for at in positions if linked.count(at) > 1))


def _word_positions(tokens: Tokens) -> list[int]:
    """Positions of words, without special tokens, blanks and punctuation; all positions if there are no words."""
    numbered = zip(tokens.words, tokens.word_numbers, strict=False)
    positions = [
        at
        for at, (word, number) in enumerate(numbered)
        if number is not None and any(category(character)[0] not in "PZC" for character in word)
    ]
    return positions or list(range(len(tokens.words)))


def _tokens_data(tokens: Tokens) -> JsonDict:
    positions = _word_positions(tokens)
    return {"text": tokens.text, "words": tokens.words, "word_positions": positions, "tokens": len(tokens)}


def read_alignment_head(loaded: LoadedModel) -> LayerHead | None:
    """Return the (layer, head) named in the model card, or None."""
    head = (read_card(loaded.folder) or {}).get(CARD_KEY)
    return None if head is None else (int(head[0]), int(head[1]))


def find_alignment_head(loaded: LoadedModel, corpus: Corpus, max_pairs: int = _MAX_PAIRS) -> LayerHead | None:
    """Return the best head on validation pairs, or None if the corpus has no word alignments."""
    if not loaded.model.is_encoder_decoder:
        return None
    pairs = [pair for pair in corpus.documents("valid") if isinstance(pair, TextPair) and pair.alignment]
    return best_alignment_head(loaded, pairs[:: max(1, len(pairs) // max_pairs)][:max_pairs]) if pairs else None


def best_alignment_head(loaded: LoadedModel, pairs: Sequence[TextPair]) -> LayerHead:
    """Return the head with the highest mean link accuracy over all pairs."""
    pair_scores = [link_accuracies(loaded, pair) for pair in pairs]
    means = {head: float(np.mean([scores[head] for scores in pair_scores])) for head in pair_scores[0]}
    return max(means, key=lambda head: means[head])


def link_accuracies(loaded: LoadedModel, pair: TextPair) -> dict[LayerHead, float]:
    """Link accuracy of each head: the share of target words whose largest weight is on an aligned source word."""
    alignment = loaded.look(pair.source, pair.target).alignment(pair.alignment)
    return {(score.path.layer, score.head): float(score.accuracy or 0.0) for score in alignment.scores}
