"""`align`: word alignment of a translation from cross-attention, with word order and the head that aligns best."""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any
from unicodedata import category

from peasy.errors import InvalidInput
from peasy.looking.label import Tokens
from peasy.looking.record import Alignment, AlignmentScore
from peasy.views.alignment import alignment_document
from peasy.views.document import Document, Paragraph
from peasy.workbench.finding import plain
from peasy.workbench.load import LoadedModel
from peasy.workbench.result import Result


@dataclass(frozen=True)
class Order:
    """Alignment links and word order of a translation; words are indexed as displayed.

    `partners` are links (source word, target word): the source word with the largest weight for each target word.
    `crossings` are pairs of target words whose source words are in reverse order. `left` are source words without a
    link, `shared` those with several.
    """

    partners: tuple[tuple[int, int], ...]
    crossings: tuple[tuple[int, int], ...]
    left: tuple[int, ...]
    shared: tuple[int, ...]


@dataclass(frozen=True, repr=False, eq=False)
class Aligned(Result):
    """Result of `align`: the word alignment by one head; `alignment.scores` ranks all heads."""

    kind: str
    alignment: Alignment
    order: Order

    @property
    def says(self) -> tuple[str, str]:
        """Word count and word order, in two sentences."""
        source, target = self.alignment.source, self.alignment.target
        source_count, target_count = len(_real(source)), len(_real(target))
        words = f"{_count(source_count, 'word')} became {_count(target_count, 'word')}"
        size = f"{words}; {len(source)} tokens became {len(target)}."
        if not self.order.crossings:
            return size, "The word order is kept: no two words cross."
        first_crossing = " and ".join(f"“{target.words[index]}”" for index in self.order.crossings[0])
        pairs = _count(len(self.order.crossings), "pair")
        return size, f"The word order changes: {pairs} of words cross, first {first_crossing}."

    def document(self) -> Document:
        """Alignment links, word order, attention map, and heads ranked by how well they align."""
        page = alignment_document(self.alignment)
        first, *rest = page.parts
        return replace(page, parts=(first, *map(Paragraph, self.says), *rest))

    def data(self) -> dict[str, Any]:
        """Words, weights, heads and word order as plain data."""
        alignment = self.alignment
        heads = [{"layer": s.place.layer, "head": s.head} | _scores(s) for s in alignment.scores]
        return {
            "model": alignment.model,
            "kind": self.kind,
            "source": _side(alignment.source),
            "answer": _side(alignment.target),
            "layer": alignment.place.layer,
            "head": alignment.head,
            "best": {"layer": alignment.scores[0].place.layer, "head": alignment.scores[0].head},
            "heads": heads,
            "weights": plain(alignment.weights),
            "order": plain(self.order),
            "says": list(self.says),
            "caveat": alignment.caveat,
        }

    def __repr__(self) -> str:
        return f"Aligned({self.alignment.model}: {self.alignment.target.text!r})"


def align(
    loaded: LoadedModel, text: str, answer: str | None = None, *, layer: int | None = None, head: int | None = None
) -> Aligned:
    """Align the words of a translation with its source, by the best head or by the given layer and head.

    Without an `answer` the model translates `text` itself, greedily.
    """
    if not loaded.model.reads_source:
        raise InvalidInput(f"{loaded.name} is a {loaded.kind}: it does not translate.", hint="Choose a translator.")
    result = loaded.look(text, answer)
    written = result.passage.written or result.look.tokens
    alignment: Alignment = result.alignment((), layer, head, anchors=anchors(result.look.tokens, written)).record
    return Aligned(loaded.kind, alignment, order_of(alignment))


def anchors(source: Tokens, answer: Tokens) -> tuple[tuple[int, int], ...]:
    """Likely links (source word, target word): words that occur once on both sides, such as names and numbers."""
    source_words, target_words = (_once(tokens) for tokens in (source, answer))
    return tuple((number, target_words[word]) for word, number in source_words.items() if word in target_words)


def _once(tokens: Tokens) -> dict[str, int]:
    numbered = [(tokens.words[i].strip("·").casefold(), tokens.numbers[i]) for i in _real(tokens) if tokens.numbers]
    words = [word for word, _ in numbered]
    return {word: number for word, number in numbered if words.count(word) == 1 and number is not None}


def order_of(alignment: Alignment) -> Order:
    """Links by the largest weight, crossings, and unaligned or shared source words; special tokens are ignored."""
    positions = _real(alignment.source)
    links = [(max(positions, key=lambda at: alignment.weights[word, at]), word) for word in _real(alignment.target)]
    crossings = [(first[1], second[1]) for first, second in combinations(links, 2) if first[0] > second[0]]
    linked = [source for source, _ in links]
    unaligned = tuple(at for at in positions if at not in linked)
    return Order(tuple(links), tuple(crossings), unaligned, tuple(at for at in positions if linked.count(at) > 1))


def _real(tokens: Tokens) -> list[int]:
    """Positions of words, without special tokens, blanks and punctuation; all positions if there are no words."""
    positions = [at for at, number in enumerate(tokens.numbers) if number is not None and _says(tokens.words[at])]
    return positions or list(range(len(tokens.words)))


def _says(word: str) -> bool:
    return any(category(character)[0] not in "PZC" for character in word)


def _side(tokens: Tokens) -> dict[str, Any]:
    return {"text": tokens.text, "words": list(tokens.words), "real": _real(tokens), "tokens": len(tokens)}


def _scores(score: AlignmentScore) -> dict[str, float | None]:
    return {name: plain(getattr(score, name)) for name in ("right", "monotony", "sharpness")}


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
