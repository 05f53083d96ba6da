"""`classify`: labels of texts, or of their tokens, by a model with a classification head."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from peasy.atomic import write_atomic
from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, Result
from peasy.errors import InvalidInput
from peasy.parameters import Record
from peasy.views.document import Document, Heading, Table

if TYPE_CHECKING:
    from torch import Tensor

    from peasy.nn.config import ClassifierConfig


_MAX_LABELS = 10
"""Labels shown for a single text."""


class LabelScore(Record):
    """A label and its probability."""

    label: str
    probability: float


class TokenLabel(Record):
    """Most probable label of a token at characters `start` to `end` of the text."""

    piece: str
    start: int
    end: int
    label: str
    probability: float


class TextLabels(Record):
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

    def token_table(self) -> Table:
        """Return the labelled tokens."""
        rows = tuple((one.piece, one.label, f"{one.probability:.4f}") for one in self.tokens)
        return Table(("token", "label", "probability"), rows)

    def data(self) -> JsonDict:
        """Return the labels as plain data."""
        many = {"scores": self.scores} if self.scores else {"tokens": self.tokens}
        return {"text": self.text, "label": self.label, **{n: [asdict(one) for one in v] for n, v in many.items()}}


class ClassifyResult(Result, eq=False):
    """Result of `classify`: `labels` has one entry per text, with its `scores` or its labelled `tokens`."""

    name: str
    labels: tuple[TextLabels, ...]
    level: str
    note: str | None = None

    def save(self, path: str | Path) -> Path:
        """Write a file: .jsonl holds one line per text; other formats as every result."""
        if Path(path).suffix.lower() != ".jsonl":
            return super().save(path)
        return write_atomic(path, "".join(json.dumps(one.data(), ensure_ascii=False) + "\n" for one in self.labels))

    def document(self) -> Document:
        """All labels of a single text, the best label of several, or the labelled tokens of each."""
        parts: tuple[Heading | Table, ...]
        if self.level == "token" and len(self.labels) == 1:
            parts = (self.labels[0].token_table(),)
        elif self.level == "token":
            parts = tuple(part for one in self.labels for part in (Heading(one.text), one.token_table()))
        elif len(self.labels) == 1:
            rows = tuple((one.label, f"{one.probability:.4f}") for one in self.labels[0].scores[:_MAX_LABELS])
            parts = (Table(("label", "probability"), rows),)
        else:
            best = tuple((one.text, one.label, f"{one.scores[0].probability:.4f}") for one in self.labels)
            parts = (Table(("text", "label", "probability"), best),)
        return Document(self.name, parts).with_note(self.note)

    def data(self) -> JsonDict:
        """Texts with their labels and probabilities as plain data."""
        results = [one.data() for one in self.labels]
        return {"model": self.name, "level": self.level, "results": results, "note": self.note}

    def __repr__(self) -> str:
        return f"ClassifyResult({', '.join(one.summary() for one in self.labels[:3])})"


def classify(
    model: str | Path | LoadedModel,
    texts: str | Sequence[str],
    *,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
) -> ClassifyResult:
    """Classify texts, or their tokens (named entities), with the labels that the model was trained on.

    Args:
        model: Run name, folder or Hugging Face hub id of a model with a classification head.
        texts: Texts to classify.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.tokenization import train_tokenizer
    >>> tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, "words")
    >>> head = {"labels": ["animal", "thing"]}
    >>> model = build(preset("encoder-tiny", vocab_size=len(tokenizer), classifier=head), seed=1)
    >>> sorted(one.label for one in classify(LoadedModel("cats", model, tokenizer), "the cat").labels[0].scores)
    ['animal', 'thing']
    """
    loaded = load(model, device=device, offline=offline, confirm=confirm)
    many = (texts,) if isinstance(texts, str) else tuple(texts)
    if not many or not all(text.strip() for text in many):
        raise InvalidInput("There is no text to classify.", hint="Give at least one word.")
    head = getattr(loaded.model.config, "classifier", None)
    if head is None:
        hint = "Give a model for sequence or token classification, such as one trained on sentiment."
        raise InvalidInput(f"{loaded.name} is a {loaded.kind} without a classification head.", hint=hint)
    label = _classify_tokens if head.level == "token" else _classify_text
    labels = tuple(label(loaded, text) for text in many)
    note = loaded.truncation_note(loaded.num_truncated(many), len(many))
    return ClassifyResult(loaded.name, labels, head.level, note)


def _classify_text(loaded: LoadedModel, text: str) -> TextLabels:
    """Return the labels of a text, most probable first."""
    head, logits = _run(loaded, loaded.truncate_ids(loaded.encode_prompt(text)))
    probabilities = logits.sigmoid() if head.multi_label or len(head.labels) == 1 else logits.softmax(-1)
    pairs = zip(head.labels, probabilities.tolist(), strict=True)
    ranked = sorted((LabelScore(label, probability) for label, probability in pairs), key=lambda one: -one.probability)
    return TextLabels(text, tuple(ranked))


def _classify_tokens(loaded: LoadedModel, text: str) -> TextLabels:
    """Return the label of each token, without the special tokens."""
    encoding = loaded.encode_text(text)
    ids = loaded.truncate_ids(list(encoding.ids))
    head, logits = _run(loaded, ids)
    best = logits.softmax(-1).max(-1)
    read = [own == id for own, id in zip(encoding.ids, ids, strict=False)]  # a truncated text ends with eos
    rows = zip(read, encoding.pieces, encoding.offsets, best.indices.tolist(), best.values.tolist(), strict=False)
    tokens = [
        TokenLabel(piece, start, end, head.labels[label], probability)
        for is_read, piece, (start, end), label, probability in rows
        if is_read and end > start
    ]
    return TextLabels(text, tokens=tuple(tokens))


def _run(loaded: LoadedModel, ids: list[int]) -> "tuple[ClassifierConfig, Tensor]":
    """Return the head and the logits of the text `[labels]`, or of its tokens `[time, labels]`."""
    import torch

    from peasy.models.encoder import Encoder
    from peasy.models.transformer import Decoder

    assert isinstance(loaded.model, Encoder | Decoder)
    assert loaded.model.config.classifier is not None
    with torch.inference_mode():
        logits = loaded.model.classify(torch.tensor([ids], device=loaded.model.device))[0].float()
    return loaded.model.config.classifier, logits
