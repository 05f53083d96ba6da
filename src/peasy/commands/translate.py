"""`translate`: beam search or greedy translation, with word alignments from cross-attention."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.hub import Confirm
from peasy.commands.analysis_result import AnalysisResult
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import Result
from peasy.display import DisplayMixin
from peasy.errors import InvalidInput, PeasyError, check_keywords, parameter_names
from peasy.views.document import Document, Heading
from peasy.views.translation import TranslationHypothesis, translations_document

if TYPE_CHECKING:
    from peasy.generation.beam_search import BeamResult, BeamSearchParams
    from peasy.inspection.alignment import GoldPairs

BATCH_SIZE = 16
"""Batch size; sources of similar length are batched together."""


@dataclass(frozen=True, repr=False, eq=False)
class Translation(DisplayMixin):
    """One translation: `text`, its `score`, and the `others` of the beams, best first."""

    source: str
    hypotheses: tuple[TranslationHypothesis, ...]
    loaded: LoadedModel = field(repr=False)
    error: PeasyError | None = None

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text if self.hypotheses else ""

    @property
    def score(self) -> float:
        """Score of the best translation: log-probability, length-normalized for several beams."""
        return self.hypotheses[0].score

    @property
    def others(self) -> tuple[TranslationHypothesis, ...]:
        """The other hypotheses, best first."""
        return self.hypotheses[1:]

    def alignment(
        self, gold: "GoldPairs" = (), *, layer: int | None = None, head: int | None = None, nth: int = 0
    ) -> AnalysisResult:
        """Align the words of the `nth` translation with source words by cross-attention.

        Uses the head that aligns best (measured on `gold` word pairs, if given), or the given head.
        """
        from peasy.commands.look import look_cross_attention

        if not self.hypotheses:
            raise self.error or InvalidInput("There is no translation to align.")
        return look_cross_attention(self.loaded, self.source, self.hypotheses[nth].ids).alignment(gold, layer, head)

    def document(self) -> Document:
        """Return the translation and the other hypotheses."""
        return translations_document((self.table_row(),), self.loaded.name)

    def table_row(self) -> tuple[str, tuple[TranslationHypothesis, ...], str | None]:
        """Return source, hypotheses and error message."""
        return self.source, self.hypotheses, None if self.error is None else self.error.message

    def data(self) -> dict[str, Any]:
        """Return the source, the translations with scores and tokens, or the error."""
        hypotheses = [{**vars(one), "pieces": list(one.pieces), "ids": list(one.ids)} for one in self.hypotheses]
        error = {} if self.error is None else {"error": self.error.message}
        return {"source": self.source, "text": self.text, "hypotheses": hypotheses} | error

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Translation({self.text!r})"


@dataclass(frozen=True, repr=False, eq=False)
class TranslateResult(Result):
    """Translations of all sources, in their order; `alignments` are empty unless requested."""

    name: str
    translations: tuple[Translation, ...]
    seconds: float
    search: "BeamSearchParams"
    alignments: tuple[AnalysisResult, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The best translation of each source."""
        return [one.text for one in self.translations]

    def document(self) -> Document:
        """Return a single translation in full, several as a table."""
        count = sum(len(one.hypotheses[0].ids) for one in self.translations if one.hypotheses)
        method = f"{self.search.num_beams} beams" if self.search.num_beams > 1 else "greedy"
        speed = f" · {count / self.seconds:,.0f} tokens/s" if self.seconds else ""
        page = translations_document(
            tuple(one.table_row() for one in self.translations), f"{self.name} · {method} · {count:,} tokens{speed}"
        )
        parts = [part for one in self.alignments for part in (Heading("Alignment"), *one.document().parts)]
        return replace(page, parts=(*page.parts, *parts))

    def data(self) -> dict[str, Any]:
        """Return all translations and their alignments."""
        rows = [translation.data() for translation in self.translations]
        translated = [row for row, one in zip(rows, self.translations, strict=True) if one.hypotheses]
        for row, alignment in zip(translated, self.alignments, strict=False):
            row["alignment"] = alignment.data()
        return {"model": self.name, "translations": rows, "seconds": self.seconds, "search": vars(self.search)}


def translate(
    model: str | Path | LoadedModel,
    text: str | Sequence[str],
    *,
    align: bool = False,
    gold: "Sequence[GoldPairs]" = (),
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> TranslateResult:
    """Translate one text or several. `options`: num_beams, n, max_tokens, length_penalty, early_stopping.

    With `align`, each translation gets a word alignment; `gold` are reference alignments, one list of word pairs per
    text, by which the heads are then ranked.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.model import save_model
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.tokenization import train_tokenizer
    >>> words = train_tokenizer(["the cat sat on the mat"] * 9, "words")
    >>> settings = preset("translator-tiny", vocab_size=len(words), special_tokens={"decoder_start": 1, "eos": [2]})
    >>> with TemporaryDirectory() as folder:
    ...     _ = save_model(f"{folder}/cats", build(settings, seed=1), words)
    ...     result = translate(f"{folder}/cats", "the cat", num_beams=2, max_tokens=4)
    >>> len(result.translations)
    1
    """
    loaded = load(model, device=device, offline=offline, confirm=confirm)
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InvalidInput("There is no text to translate.")
    if gold and len(gold) != len(texts):
        raise InvalidInput(
            f"There are {len(texts)} texts and {len(gold)} gold alignments.", hint="Give one alignment per text."
        )
    start, by_index = time.perf_counter(), dict[int, Translation]()
    beams = make_beam_params(**options)
    for index, translation in translate_batches(loaded, texts, beams, "max_tokens" in options):
        by_index[index] = translation
        if progress is not None:
            progress(len(by_index), len(texts))
    seconds = time.perf_counter() - start
    translations = tuple(by_index[index] for index in range(len(texts)))
    pairs = zip(translations, gold or [()] * len(translations), strict=True)
    aligned = tuple(one.alignment(reference) for one, reference in pairs if one.hypotheses) if align or gold else ()
    return TranslateResult(loaded.name, translations, seconds, beams, aligned)


def make_beam_params(num_beams: int = 1, n: int = 1, **options: Any) -> "BeamSearchParams":
    """Build the beam search parameters; at least `n` beams are used."""
    from peasy.generation.beam_search import BeamSearchParams

    known = (*parameter_names(BeamSearchParams), "align", "gold", "device", "offline", "confirm")
    check_keywords("translate", options, known)
    return BeamSearchParams(num_beams=max(num_beams, n) if num_beams > 0 else num_beams, n=n, **options)


def translate_batches(
    loaded: LoadedModel, texts: Sequence[str], beams: "BeamSearchParams", fixed_length: bool
) -> Iterator[tuple[int, Translation]]:
    """Yield (source index, translation) as batches of sources of similar length are finished.

    Unless `fixed_length`, the limit is three times the source length plus 16 tokens.
    """
    if not loaded.model.is_encoder_decoder:
        raise InvalidInput(f"{loaded.name} is a {loaded.kind}: it does not translate.", hint="Use peasy generate.")
    sources: dict[int, list[int]] = {}
    for index, text in enumerate(texts):
        try:
            sources[index] = _encode_source(loaded, text)
        except InvalidInput as error:
            yield index, Translation(text, (), loaded, error)
    order = sorted(sources, key=lambda index: len(sources[index]))
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        settings = beams if fixed_length else replace(beams, max_tokens=_max_new_tokens(loaded, len(sources[rows[-1]])))
        for index, result in zip(rows, _beam_search(loaded, [sources[row] for row in rows], settings), strict=True):
            yield index, Translation(texts[index], _as_translated(loaded, result), loaded, result.error)


def _encode_source(loaded: LoadedModel, text: str) -> list[int]:
    if not text.strip():
        raise InvalidInput("There is nothing to translate: the text is empty.", hint="Give at least one word.")
    return loaded.encode_prompt(text)


def _beam_search(loaded: LoadedModel, sources: list[list[int]], beams: "BeamSearchParams") -> "list[BeamResult]":
    from peasy.generation.beam_search import beam_search

    return beam_search(loaded.model, params=beams, source=sources)


def _max_new_tokens(loaded: LoadedModel, length: int) -> int:
    context = getattr(loaded.model.config, "max_seq_len", None)
    max_tokens = 3 * length + 16
    return max_tokens if context is None else max(min(max_tokens, context - 1), 1)


def _as_translated(loaded: LoadedModel, result: "BeamResult") -> tuple[TranslationHypothesis, ...]:
    tokenizer = loaded.output_tokenizer()
    return tuple(
        TranslationHypothesis(
            tokenizer.decode(one.ids), tuple(map(tokenizer.piece, one.ids)), one.ids, one.score, one.logprob
        )
        for one in result.hypotheses
    )
