"""`translate`: beam search or greedy translation, with word alignments from cross-attention."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Le

from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, OnProgress, Result
from peasy.display import DisplayMixin
from peasy.errors import InvalidInput, PeasyError
from peasy.generation.limits import UNLIMITED
from peasy.generation.sampling_params import BeamSearchParams
from peasy.metrics.scores import AlignmentErrors
from peasy.parameters import Record
from peasy.views.document import Document, DocumentPart, Heading, Paragraph, Table, short_title

if TYPE_CHECKING:
    from peasy.commands.look_result import AlignmentResult

BATCH_SIZE = 16
"""Most sources translated at the same time; the next starts when one is finished."""


class TranslationHypothesis(Record):
    """Translation hypothesis: `score` is its log-probability, length-normalised in beam search."""

    text: str
    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    score: float
    logprob: float


class Translation(DisplayMixin, Record, repr=False, eq=False):
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
        self, gold: Sequence[tuple[int, int]] = (), *, layer: int | None = None, head: int | None = None, nth: int = 0
    ) -> "AlignmentResult":
        """Align the words of the `nth` translation with source words by cross-attention.

        Uses the head that aligns best (measured on `gold` word pairs, if given), or the given head.
        """
        from peasy.commands.look import look

        if not self.hypotheses:
            raise self.error or InvalidInput("There is no translation to align.")
        if not 0 <= nth < len(self.hypotheses):
            raise InvalidInput(f"There is no translation {nth}.", hint=f"Choose from 0 to {len(self.hypotheses) - 1}.")
        captured = look(self.loaded, self.source, self.hypotheses[nth].ids, parts=("cross_attention",))
        return captured.alignment(gold, layer, head)

    def document(self) -> Document:
        """Return the translation and the other hypotheses."""
        return self.noted_document(self.loaded.name)

    def noted_document(self, note: str) -> Document:
        """Return the translation and the other hypotheses, or the error, with a note below."""
        parts: list[DocumentPart] = []
        if self.error is None and self.others:
            ranked = ((str(i), h.text, f"{h.score:.4f}", f"{h.logprob:.4f}") for i, h in enumerate(self.hypotheses, 1))
            parts = [Table(("", "translation", "score", "log-probability"), tuple(ranked), "Hypotheses")]
        text = Paragraph(self.text) if self.error is None else Paragraph(self.error.message, "bad")
        return Document(short_title(self.source), (text, *parts, Paragraph(note, "note")))

    def data(self) -> JsonDict:
        """Return the source, the translations with scores and tokens, or the error."""
        hypotheses = [{**vars(one), "pieces": list(one.pieces), "ids": list(one.ids)} for one in self.hypotheses]
        error = {} if self.error is None else {"error": self.error.message}
        return {"source": self.source, "text": self.text, "hypotheses": hypotheses} | error

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Translation({self.text!r})"


class TranslateResult(Result, eq=False):
    """Translations of all sources, in their order; `alignments` are empty unless requested."""

    name: str
    translations: tuple[Translation, ...]
    seconds: float
    search: BeamSearchParams
    alignments: "tuple[AlignmentResult, ...]" = ()

    @property
    def texts(self) -> list[str]:
        """The best translation of each source."""
        return [one.text for one in self.translations]

    def document(self) -> Document:
        """Return a single translation in full, several as a table."""
        count = sum(len(one.hypotheses[0].ids) for one in self.translations if one.hypotheses)
        method = f"{self.search.num_beams} beams" if self.search.num_beams > 1 else "greedy"
        speed = f" · {count / self.seconds:,.0f} tokens/s" if self.seconds else ""
        note = f"{self.name} · {method} · {count:,} tokens{speed}"
        if len(self.translations) == 1:
            page = self.translations[0].noted_document(note)
        else:
            rows = tuple((one.source, one.error.message if one.error else one.text) for one in self.translations)
            page = Document("Translations", (Table(("source", "translation"), rows), Paragraph(note, "note")))
        parts = list(page.parts)
        for one in self.alignments:
            parts += [Heading("Alignment"), *one.document().parts]
        total = self.alignment_errors
        if total is not None and len(self.alignments) > 1:
            heads = {(one.layer, one.head) for one in self.alignments}
            chosen = "" if len(heads) == 1 else " Each text has its own best head, so these rates are optimistic."
            parts += [Heading("All alignments"), Paragraph(total.summary() + chosen)]
        return replace(page, parts=tuple(parts))

    @property
    def alignment_errors(self) -> AlignmentErrors | None:
        """Precision, recall and AER over all texts: their links are added up. None without gold alignments."""
        errors = [one.errors() for one in self.alignments if one.gold]
        return sum(errors[1:], errors[0]) if errors else None

    def data(self) -> JsonDict:
        """Return all translations and their alignments."""
        rows = [translation.data() for translation in self.translations]
        translated = [row for row, one in zip(rows, self.translations, strict=True) if one.hypotheses]
        for row, alignment in zip(translated, self.alignments, strict=False):
            row["alignment"] = alignment.data()
        data = {"model": self.name, "translations": rows, "seconds": self.seconds, "search": vars(self.search)}
        if (total := self.alignment_errors) is not None:
            data["alignment_errors"] = {"precision": total.precision, "recall": total.recall, "aer": total.aer}
        return data


def translate(
    model: str | Path | LoadedModel,
    text: str | Sequence[str],
    *,
    source_language: str | None = None,
    target_language: str | None = None,
    num_beams: Annotated[int, Ge(1)] = 1,
    n: Annotated[int, Ge(1)] = 1,
    align: bool = False,
    gold: Sequence[Sequence[tuple[int, int]]] = (),
    max_tokens: Annotated[int, Ge(1)] | None = None,
    length_penalty: Annotated[float, Ge(-10), Le(10)] = 1.0,
    early_stopping: Literal["always", "heuristic", "never"] = "heuristic",
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
    on_progress: OnProgress | None = None,
) -> TranslateResult:
    """Translate with an encoder-decoder model, with word alignment if `align`.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        text: Text to translate, or a list of texts.
        source_language: Language of the text, for a multilingual model with language tokens: eng_Latn, en, en_XX.
        target_language: Language to translate into, likewise.
        num_beams: Number of beams; 1 is greedy decoding.
        n: Number of translations to show, with their scores; at least `n` beams are used.
        align: Show the word alignment, from cross-attention.
        gold: Reference alignments, one list of word pairs per text; heads are ranked by their agreement with it.
        max_tokens: Maximum number of tokens; default: about three times the length of the source.
        length_penalty: Length penalty of beam search; above 0 favours longer translations.
        early_stopping: Stop at the first finished hypotheses, by a heuristic, or only when no better one is possible.

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
        message = f"There are {len(texts)} texts and {len(gold)} gold alignments."
        raise InvalidInput(message, hint="Give one alignment per text.")
    start, by_index = time.perf_counter(), dict[int, Translation]()
    num_beams = max(num_beams, n) if num_beams > 0 else num_beams
    search = BeamSearchParams(num_beams, max_tokens or 64, length_penalty, n, early_stopping)
    languages = source_language, target_language
    for index, translation in _translate_each(loaded, texts, search, max_tokens is not None, languages):
        by_index[index] = translation
        if on_progress is not None:
            on_progress(len(by_index), len(texts))
    seconds = time.perf_counter() - start
    translations = tuple(by_index[index] for index in range(len(texts)))
    pairs = zip(translations, gold or [()] * len(translations), strict=True)
    aligned = tuple(one.alignment(reference) for one, reference in pairs if one.hypotheses) if align or gold else ()
    return TranslateResult(loaded.name, translations, seconds, search, aligned)


def _translate_each(
    loaded: LoadedModel, texts: Sequence[str], search: BeamSearchParams, fixed_length: bool,
    languages: tuple[str | None, str | None],
) -> Iterator[tuple[int, Translation]]:  # fmt: skip
    """Yield (source index, translation) as translations are finished.

    Unless `fixed_length`, the limit is three times the source length plus 16 tokens.
    """
    from peasy.generation.decode import run_requests
    from peasy.generation.engine import Engine
    from peasy.generation.request import Ended, Request

    if not loaded.model.is_encoder_decoder:
        message = f"{loaded.name} is a {loaded.kind}: it does not translate."
        raise InvalidInput(message, hint="Choose a translator. See all: peasy models")
    tokenizer, rows, requests = loaded.output_tokenizer(), list[int](), list[Request]()
    source_id, target_id = (None if name is None else _language_id(loaded, name) for name in languages)
    start = loaded.model.config.special_tokens.decoder_start
    prompt = () if target_id is None or start is None else (start, target_id)
    for index, text in enumerate(texts):
        try:
            if not text.strip():
                raise InvalidInput("There is nothing to translate: the text is empty.", hint="Give at least one word.")
            source = tuple(loaded.encode_prompt(text))
            if source_id is not None:  # instead, this language token before the text, and eos after it
                ids = loaded.encode_text(text, add_special_tokens=False).ids
                source = (source_id, *ids, *loaded.model.config.special_tokens.eos[:1])
        except InvalidInput as error:
            yield index, Translation(text, (), loaded, error)
            continue
        limit = search.max_tokens if fixed_length else loaded.max_translation_tokens(len(source))
        rows.append(index)
        requests.append(Request(prompt, source=source, beam_search=replace(search, max_tokens=limit)))
    limits = replace(UNLIMITED, max_num_seqs=BATCH_SIZE * search.num_beams)
    for event in run_requests(Engine(loaded.model, limits=limits, isolate_errors=False), requests):
        if isinstance(event, Ended):
            hypotheses = tuple(
                TranslationHypothesis(tokenizer.decode(h.ids), tokenizer.pieces(h.ids), h.ids, h.score, h.logprob)
                for h in event.hypotheses
            )
            yield rows[event.choice], Translation(texts[rows[event.choice]], hypotheses, loaded, event.error)


def _language_id(loaded: LoadedModel, language: str) -> int:
    """Return the id of a language token: the name itself (eng_Latn), or between underscores (__en__)."""
    tokenizer = loaded.require_tokenizer()
    for name in (language, f"__{language}__"):
        if (id := tokenizer.id(name)) is not None:
            return id
    hint = "Multilingual models have them: eng_Latn in NLLB, en in M2M100, en_XX in mBART."
    raise InvalidInput(f'{loaded.name} has no token for the language "{language}".', hint=hint)
