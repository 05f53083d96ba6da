"""`align`: a translation word by word: which came from which, what changes in order and number, which head shows it."""

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
    """How the words of an answer stand to those of the source; words are counted as they are shown.

    `partners` are (source word, answer word): where each answer word looked most. `crossings` are two answer words
    whose partners stand the other way round. `left` are source words that are nobody's partner, `shared` those that
    several have.
    """

    partners: tuple[tuple[int, int], ...]
    crossings: tuple[tuple[int, int], ...]
    left: tuple[int, ...]
    shared: tuple[int, ...]


@dataclass(frozen=True, repr=False, eq=False)
class Aligned(Result):
    """A translation with where each of its words came from, by one head; `alignment.scores` rank all heads."""

    kind: str
    alignment: Alignment
    order: Order

    @property
    def says(self) -> tuple[str, str]:
        """Number and order of the words, in two sentences."""
        source, answer = self.alignment.source, self.alignment.target
        here, there = len(_real(source)), len(_real(answer))
        size = f"{_count(here, 'word')} became {_count(there, 'word')}; {len(source)} tokens became {len(answer)}."
        if not self.order.crossings:
            return size, "The order is kept: no two words change places."
        first = self.order.crossings[0]
        named = " and ".join(f"“{answer.words[at]}”" for at in first)
        counted = _count(len(self.order.crossings), "pair")
        return size, f"The order changes: {counted} of words cross, the first are {named}."

    def document(self) -> Document:
        """Ribbons, what changes, the map, and the heads by how well they align."""
        page = alignment_document(self.alignment)
        first, *rest = page.parts
        return replace(page, parts=(first, *map(Paragraph, self.says), *rest))

    def data(self) -> dict[str, Any]:
        """Words, weights, heads and order as plain data."""
        found = self.alignment
        heads = [{"layer": s.place.layer, "head": s.head} | _scores(s) for s in found.scores]
        return {
            "model": found.model,
            "kind": self.kind,
            "source": _side(found.source),
            "answer": _side(found.target),
            "layer": found.place.layer,
            "head": found.head,
            "best": {"layer": found.scores[0].place.layer, "head": found.scores[0].head},
            "heads": heads,
            "weights": plain(found.weights),
            "order": plain(self.order),
            "says": list(self.says),
            "caveat": found.caveat,
        }

    def __repr__(self) -> str:
        return f"Aligned({self.alignment.model}: {self.alignment.target.text!r})"


def align(
    loaded: LoadedModel, text: str, answer: str | None = None, *, layer: int | None = None, head: int | None = None
) -> Aligned:
    """Which source words the words of an answer came from, by the head that shows it best or by the one named.

    Without an `answer` the model writes its own, the best token each time.
    """
    from peasy.workbench.look import look

    if not loaded.model.reads_source:
        raise InvalidInput(f"{loaded.name} is a {loaded.kind}: it does not translate.", hint="Choose a translator.")
    looked = look(loaded, text, answer)
    written = looked.passage.written or looked.look.tokens
    found = looked.alignment((), layer, head, anchors=anchors(looked.look.tokens, written)).record
    return Aligned(loaded.kind, found, order_of(found))


def anchors(source: Tokens, answer: Tokens) -> tuple[tuple[int, int], ...]:
    """Words that stand once on both sides (names, numbers) belong together: (number in source, number in answer)."""
    ours, theirs = (_once(side) for side in (source, answer))
    return tuple((number, theirs[word]) for word, number in ours.items() if word in theirs)


def _once(tokens: Tokens) -> dict[str, int]:
    named = [(tokens.words[at].strip("·").casefold(), tokens.numbers[at]) for at in _real(tokens) if tokens.numbers]
    words = [word for word, _ in named]
    return {word: number for word, number in named if words.count(word) == 1 and number is not None}


def order_of(alignment: Alignment) -> Order:
    """Partners by the largest weight, and what follows from them; ends and blanks are no words."""
    real = _real(alignment.source)
    partners = [(max(real, key=lambda at: alignment.weights[word, at]), word) for word in _real(alignment.target)]
    crossings = [(one[1], two[1]) for one, two in combinations(partners, 2) if one[0] > two[0]]
    taken = [source for source, _ in partners]
    left = tuple(at for at in real if at not in taken)
    return Order(tuple(partners), tuple(crossings), left, tuple(at for at in real if taken.count(at) > 1))


def _real(tokens: Tokens) -> list[int]:
    """The places of real words: not of ends, blanks and commas; where none is one, all that is shown."""
    marked = [at for at, number in enumerate(tokens.numbers) if number is not None and _says(tokens.words[at])]
    return marked or list(range(len(tokens.words)))


def _says(word: str) -> bool:
    return any(category(sign)[0] not in "PZC" for sign in word)


def _side(tokens: Tokens) -> dict[str, Any]:
    return {"text": tokens.text, "words": list(tokens.words), "real": _real(tokens), "tokens": len(tokens)}


def _scores(score: AlignmentScore) -> dict[str, float | None]:
    return {name: plain(getattr(score, name)) for name in ("right", "monotony", "sharpness")}


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
