"""`translate`: beam search or greedy translation, with word alignments from cross-attention."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.hub import Ask
from peasy.display import Displayed
from peasy.errors import InvalidInput, PeasyError
from peasy.views.document import Document, Heading
from peasy.views.translation import Translated, translations_document
from peasy.workbench.finding import Finding
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.result import Result

if TYPE_CHECKING:
    from peasy.generation.beam import Beams, Found
    from peasy.looking.alignment import Known

ROWS = 16
"""Batch size; sources of similar length are batched together."""


@dataclass(frozen=True, repr=False, eq=False)
class Translation(Displayed):
    """One translation: `text`, its `score`, and the `others` of the beam, best first."""

    source: str
    found: tuple[Translated, ...]
    loaded: LoadedModel = field(repr=False)
    error: PeasyError | None = None

    @property
    def text(self) -> str:
        """The best translation."""
        return self.found[0].text if self.found else ""

    @property
    def score(self) -> float:
        """Score of the best translation: log-probability, length-normalized for several beams."""
        return self.found[0].score

    @property
    def others(self) -> tuple[Translated, ...]:
        """The other hypotheses, best first."""
        return self.found[1:]

    def alignment(
        self, known: "Known" = (), *, layer: int | None = None, head: int | None = None, nth: int = 0
    ) -> Finding:
        """Align the words of the `nth` translation with source words by cross-attention.

        Uses the head that aligns best (measured on `known` word pairs, if given), or the given head.
        """
        from peasy.workbench.look import look_into_source

        if not self.found:
            raise self.error or InvalidInput("There is no translation to align.")
        return look_into_source(self.loaded, self.source, self.found[nth].ids).alignment(known, layer, head)

    def document(self) -> Document:
        """Return the translation and the other hypotheses."""
        return translations_document((self.row(),), self.loaded.name)

    def row(self) -> tuple[str, tuple[Translated, ...], str | None]:
        """Return source, hypotheses and error message."""
        return self.source, self.found, None if self.error is None else self.error.message

    def data(self) -> dict[str, Any]:
        """Return the source, the translations with scores and tokens, or the error."""
        hypotheses = [{**vars(one), "pieces": list(one.pieces), "ids": list(one.ids)} for one in self.found]
        error = {} if self.error is None else {"error": self.error.message}
        return {"source": self.source, "text": self.text, "found": hypotheses} | error

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Translation({self.text!r})"


@dataclass(frozen=True, repr=False, eq=False)
class TranslateResult(Result):
    """Translations of all sources, in their order; `aligned` if alignments were requested."""

    name: str
    translations: tuple[Translation, ...]
    seconds: float
    beams: "Beams"
    aligned: tuple[Finding, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The best translation of each source."""
        return [one.text for one in self.translations]

    def document(self) -> Document:
        """Return a single translation in full, several as a table."""
        count = sum(len(one.found[0].ids) for one in self.translations if one.found)
        method = f"{self.beams.width} beams" if self.beams.width > 1 else "greedy"
        speed = f" · {count / self.seconds:,.0f} tokens/s" if self.seconds else ""
        page = translations_document(
            tuple(one.row() for one in self.translations), f"{self.name} · {method} · {count:,} tokens{speed}"
        )
        parts = [part for one in self.aligned for part in (Heading("Alignment"), *one.document().parts)]
        return replace(page, parts=(*page.parts, *parts))

    def data(self) -> dict[str, Any]:
        """Return all translations and their alignments."""
        rows = [translation.data() for translation in self.translations]
        translated = [row for row, one in zip(rows, self.translations, strict=True) if one.found]
        for row, alignment in zip(translated, self.aligned, strict=False):
            row["alignment"] = alignment.data()
        return {"model": self.name, "translations": rows, "seconds": self.seconds, "search": vars(self.beams)}


def translate(
    model: str | Path | LoadedModel,
    text: str | Sequence[str],
    *,
    align: bool = False,
    known: "Sequence[Known]" = (),
    device: str = "auto",
    offline: bool = False,
    ask: Ask | None = None,
    progress: Callable[[int, int], None] | None = None,
    **how: Any,
) -> TranslateResult:
    """Translate one text or several. `how`: beam, n, max_tokens, length_penalty, patience.

    With `align`, each translation gets a word alignment; `known` are reference alignments, one list of word pairs per
    text, by which the heads are then ranked.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.model import save_model
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.text import train
    >>> words = train(["the cat sat on the mat"] * 9, "words")
    >>> settings = preset("translator-tiny", vocabulary=len(words), special={"start": 1, "end": [2]})
    >>> with TemporaryDirectory() as folder:
    ...     _ = save_model(f"{folder}/cats", build(settings, seed=1), words)
    ...     result = translate(f"{folder}/cats", "the cat", beam=2, max_tokens=4)
    >>> len(result.translations)
    1
    """
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device, offline=offline, ask=ask)
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InvalidInput("There is no text to translate.")
    if known and len(known) != len(texts):
        raise InvalidInput(
            f"There are {len(texts)} texts and {len(known)} known alignments.", hint="Give one alignment per text."
        )
    start, by_index = time.perf_counter(), dict[int, Translation]()
    beams = make_beams(**how)
    for index, translation in translating(loaded, texts, beams, "max_tokens" in how):
        by_index[index] = translation
        if progress is not None:
            progress(len(by_index), len(texts))
    seconds = time.perf_counter() - start
    translations = tuple(by_index[index] for index in range(len(texts)))
    pairs = zip(translations, known or [()] * len(translations), strict=True)
    aligned = tuple(one.alignment(reference) for one, reference in pairs if one.found) if align or known else ()
    return TranslateResult(loaded.name, translations, seconds, beams, aligned)


def make_beams(beam: int = 1, n: int = 1, **how: Any) -> "Beams":
    """Build the beam search parameters; at least `n` beams are used."""
    from peasy.generation.beam import Beams

    return Beams(width=max(beam, n) if beam > 0 else beam, n=n, **how)


def translating(
    loaded: LoadedModel, texts: Sequence[str], beams: "Beams", fixed: bool
) -> Iterator[tuple[int, Translation]]:
    """Yield (source index, translation) as batches of sources of similar length are finished.

    Unless max_tokens is `fixed`, the limit is three times the source length plus 16 tokens.
    """
    if not loaded.model.reads_source:
        raise InvalidInput(f"{loaded.name} is a {loaded.kind}: it does not translate.", hint="Use peasy generate.")
    sources: dict[int, list[int]] = {}
    for index, text in enumerate(texts):
        try:
            sources[index] = _source(loaded, text)
        except InvalidInput as error:
            yield index, Translation(text, (), loaded, error)
    order = sorted(sources, key=lambda index: len(sources[index]))
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        settings = beams if fixed else replace(beams, max_tokens=_most(loaded, len(sources[rows[-1]])))
        for index, result in zip(rows, _search(loaded, [sources[row] for row in rows], settings), strict=True):
            yield index, Translation(texts[index], _told(loaded, result), loaded, result.error)


def _source(loaded: LoadedModel, text: str) -> list[int]:
    if not text.strip():
        raise InvalidInput("There is nothing to translate: the text is empty.", hint="Give at least one word.")
    return loaded.prompt(text)


def _search(loaded: LoadedModel, sources: list[list[int]], beams: "Beams") -> "list[Found]":
    from peasy.generation.beam import search

    return search(loaded.model, beams=beams, source=sources)


def _most(loaded: LoadedModel, length: int) -> int:
    context = getattr(loaded.model.config, "context", None)
    max_tokens = 3 * length + 16
    return max_tokens if context is None else max(min(max_tokens, context - 1), 1)


def _told(loaded: LoadedModel, found: "Found") -> tuple[Translated, ...]:
    tokenizer = loaded.answers()
    return tuple(
        Translated(tokenizer.decode(one.ids), tuple(map(tokenizer.piece, one.ids)), one.ids, one.score, one.logprob)
        for one in found.best
    )
