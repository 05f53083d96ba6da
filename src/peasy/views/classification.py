"""Labels of texts and tokens as documents: probabilities of a text's labels, labelled tokens."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from peasy.views.document import Document, Heading, Table

_MAX_LABELS = 10
"""Labels shown for a single text."""


@dataclass(frozen=True)
class LabelScore:
    """A label and its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class TokenLabel:
    """Most probable label of a token at characters `start` to `end` of the text."""

    piece: str
    start: int
    end: int
    label: str
    probability: float


@dataclass(frozen=True)
class TextLabels:
    """Labels of one text: all `scores`, most probable first, or one label per token in `tokens`."""

    text: str
    scores: tuple[LabelScore, ...] = ()
    tokens: tuple[TokenLabel, ...] = ()

    @property
    def label(self) -> str:
        """The most probable label of the text; of tokens, those that occur, in their order."""
        return self.scores[0].label if self.scores else " ".join(one.label for one in self.tokens)

    def summary(self) -> str:
        """Return the label of a text in one line."""
        best = self.scores[0] if self.scores else None
        return f"{len(self.tokens)} tokens" if best is None else f"{best.label} {best.probability:.2f}"

    def data(self) -> dict[str, object]:
        """Return the labels as plain data."""
        many = {"scores": self.scores} if self.scores else {"tokens": self.tokens}
        rows: dict[str, object] = {name: [asdict(one) for one in values] for name, values in many.items()}
        return {"text": self.text, "label": self.label, **rows}


def labels_document(name: str, texts: Sequence[TextLabels]) -> Document:
    """Return the labels of a single text in full, the best label of several, or the labelled tokens of each."""
    if not texts[0].scores:
        if len(texts) == 1:
            return Document(name, (_tokens(texts[0]),))
        return Document(name, tuple(part for one in texts for part in (Heading(one.text), _tokens(one))))
    if len(texts) == 1:
        rows = tuple((one.label, f"{one.probability:.4f}") for one in texts[0].scores[:_MAX_LABELS])
        return Document(name, (Table(("label", "probability"), rows),))
    best = tuple((one.text, one.scores[0].label, f"{one.scores[0].probability:.4f}") for one in texts)
    return Document(name, (Table(("text", "label", "probability"), best),))


def _tokens(text: TextLabels) -> Table:
    rows = tuple((one.piece, one.label, f"{one.probability:.4f}") for one in text.tokens)
    return Table(("token", "label", "probability"), rows)
