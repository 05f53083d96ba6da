"""`translate`: a model answers a source with its translation, and shows which word came from which."""

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
"""So many sources are searched side by side, those of like length together."""


@dataclass(frozen=True, repr=False, eq=False)
class Translation(Displayed):
    """A translation: `text`, its `score`, and `others` that the search found, best first."""

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
        """Its score: the log-probability, by length where beams were compared."""
        return self.found[0].score

    @property
    def others(self) -> tuple[Translated, ...]:
        """What else was found, best first."""
        return self.found[1:]

    def alignment(
        self, known: "Known" = (), *, layer: int | None = None, head: int | None = None, nth: int = 0
    ) -> Finding:
        """Which source words the words of the `nth` translation were written from.

        By the head that aligns best (against the `known` pairs of words, where they are given), or by the one named.
        """
        from peasy.workbench.look import look_into_source

        if not self.found:
            raise self.error or InvalidInput("There is no translation to align.")
        return look_into_source(self.loaded, self.source, self.found[nth].ids).alignment(known, layer, head)

    def document(self) -> Document:
        """The translation, and what else was found."""
        return translations_document((self.row(),), self.loaded.name)

    def row(self) -> tuple[str, tuple[Translated, ...], str | None]:
        """Source, what was found, what went wrong."""
        return self.source, self.found, None if self.error is None else self.error.message

    def data(self) -> dict[str, Any]:
        """The source, the translations with their scores and tokens, or the error."""
        told = [{**vars(one), "pieces": list(one.pieces), "ids": list(one.ids)} for one in self.found]
        said = {} if self.error is None else {"error": self.error.message}
        return {"source": self.source, "text": self.text, "found": told} | said

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Translation({self.text!r})"


@dataclass(frozen=True, repr=False, eq=False)
class TranslateResult(Result):
    """The translations of all sources, in their order; `aligned` where that was asked for."""

    name: str
    translations: tuple[Translation, ...]
    seconds: float
    beams: "Beams"
    aligned: tuple[Finding, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The translations alone."""
        return [one.text for one in self.translations]

    def document(self) -> Document:
        """A single source in full, many as a table."""
        count = sum(len(one.found[0].ids) for one in self.translations if one.found)
        how = f"{self.beams.width} beams" if self.beams.width > 1 else "the best token each time"
        speed = f" · {count / self.seconds:,.0f} tokens/s" if self.seconds else ""
        page = translations_document(
            tuple(one.row() for one in self.translations), f"{self.name} · {how} · {count:,} tokens{speed}"
        )
        parts = [part for one in self.aligned for part in (Heading("Alignment"), *one.document().parts)]
        return replace(page, parts=(*page.parts, *parts))

    def data(self) -> dict[str, Any]:
        """All translations, and their alignments."""
        told = [one.data() for one in self.translations]
        found = [one for one, each in zip(told, self.translations, strict=True) if each.found]
        for one, aligned in zip(found, self.aligned, strict=False):
            one["alignment"] = aligned.data()
        return {"model": self.name, "translations": told, "seconds": self.seconds, "search": vars(self.beams)}


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
    """The translation of a text, or of each of many. `how`: beam, n, max_tokens, length_penalty, patience.

    With `align` each comes with where its words were written from; `known` are the pairs of words that belong together,
    for each text, by which the heads are then ranked.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.model import save_model
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.text import train
    >>> words = train(["the cat sat on the mat"] * 9, "words")
    >>> settings = preset("translator-tiny", vocabulary=len(words), special={"start": 1, "end": [2]})
    >>> with TemporaryDirectory() as place:
    ...     _ = save_model(f"{place}/cats", build(settings, seed=1), words)
    ...     found = translate(f"{place}/cats", "the cat", beam=2, max_tokens=4)
    >>> len(found.translations)
    1
    """
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device, offline=offline, ask=ask)
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InvalidInput("There is no text to translate.")
    if known and len(known) != len(texts):
        raise InvalidInput(
            f"There are {len(texts)} texts and {len(known)} known alignments.", hint="Give one for each."
        )
    began, found = time.perf_counter(), dict[int, Translation]()
    beams = make_beams(**how)
    for place, one in translating(loaded, texts, beams, "max_tokens" in how):
        found[place] = one
        if progress is not None:
            progress(len(found), len(texts))
    seconds = time.perf_counter() - began
    done = tuple(found[place] for place in range(len(texts)))
    pairs = zip(done, known or [()] * len(done), strict=True)
    aligned = tuple(one.alignment(each) for one, each in pairs if one.found) if align or known else ()
    return TranslateResult(loaded.name, done, seconds, beams, aligned)


def make_beams(beam: int = 1, n: int = 1, **how: Any) -> "Beams":
    """How to search; more texts than beams are not found."""
    from peasy.generation.beam import Beams

    return Beams(width=max(beam, n) if beam > 0 else beam, n=n, **how)


def translating(
    loaded: LoadedModel, texts: Sequence[str], beams: "Beams", fixed: bool
) -> Iterator[tuple[int, Translation]]:
    """Translations as they are found: those of like length together, each with the place of its source.

    Unless their number is `fixed`, as many tokens may be written as three times the source has, and a few.
    """
    if not loaded.model.reads_source:
        raise InvalidInput(f"{loaded.name} is a {loaded.kind}: it does not translate.", hint="peasy generate asks it.")
    sources: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        try:
            sources[place] = _source(loaded, text)
        except InvalidInput as error:
            yield place, Translation(text, (), loaded, error)
    order = sorted(sources, key=lambda place: len(sources[place]))
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        settings = beams if fixed else replace(beams, max_tokens=_most(loaded, len(sources[rows[-1]])))
        for place, found in zip(rows, _search(loaded, [sources[row] for row in rows], settings), strict=True):
            yield place, Translation(texts[place], _told(loaded, found), loaded, found.error)


def _source(loaded: LoadedModel, text: str) -> list[int]:
    if not text.strip():
        raise InvalidInput("There is nothing to translate.", hint="Give at least one word.")
    return loaded.prompt(text)


def _search(loaded: LoadedModel, sources: list[list[int]], beams: "Beams") -> "list[Found]":
    from peasy.generation.beam import search

    return search(loaded.model, beams=beams, source=sources)


def _most(loaded: LoadedModel, length: int) -> int:
    context = getattr(loaded.model.config, "context", None)
    most = 3 * length + 16
    return most if context is None else max(min(most, context - 1), 1)


def _told(loaded: LoadedModel, found: "Found") -> tuple[Translated, ...]:
    words = loaded.answers()
    return tuple(
        Translated(words.decode(one.ids), tuple(map(words.piece, one.ids)), one.ids, one.score, one.logprob)
        for one in found.best
    )
