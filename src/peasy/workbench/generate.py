"""`generate`: a model writes on from a text, or from many."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.hub import Ask
from peasy.errors import InvalidInput, PeasyError, did_you_mean
from peasy.text import Tokenizer
from peasy.views.document import Document
from peasy.views.writing import REASONS, CacheStep, Piece, Writing, cache_parts, writings_document
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.result import Result

if TYPE_CHECKING:
    from peasy.generation.decode import Event, Pass
    from peasy.generation.prompt import Long
    from peasy.generation.request import Ended, Token
    from peasy.generation.sampling import Sampling

ROWS = 32
"""So many texts are written side by side, those of like length together."""

WEIGHTS = ("auto", "float32", "bfloat16", "int8")


@dataclass(frozen=True, repr=False)
class GenerateResult(Result):
    """What was written: `writings`, in the order of the prompts, each prompt's `n` together."""

    name: str
    writings: tuple[Writing, ...]
    sampling: "Sampling"
    weights: str
    seconds: float
    cache: tuple[CacheStep, ...] = ()
    prompt: tuple[str, ...] = ()
    accepted: float | None = None

    @property
    def texts(self) -> list[str]:
        """The texts alone."""
        return [writing.text for writing in self.writings]

    @property
    def tokens(self) -> int:
        """How many tokens were written, all together."""
        return sum(len(writing.pieces) for writing in self.writings)

    @property
    def note(self) -> str:
        """One line on how it went."""
        said = [f"{self.tokens:,} token{'s' * (self.tokens != 1)}"]
        said += [f"{self.tokens / self.seconds:,.0f} tokens/s"] if self.seconds else []
        said += [f"seed {self.sampling.seed}" if self.sampling.draws else "the best token each time"]
        said += [self.weights]
        if self.accepted is not None:
            said.append(f"{self.accepted:.0%} of the guesses were right")
        if len(self.writings) == 1:
            said.append(REASONS.get(self.writings[0].reason, "interrupted"))
        return " · ".join(said)

    def document(self) -> Document:
        """The texts, with chances and cache where they were asked for."""
        page = writings_document(self.name, self.writings, self.note)
        return replace(page, parts=(*page.parts, *cache_parts(self.prompt, self.cache))) if self.cache else page

    def data(self) -> dict[str, Any]:
        """Every text with its tokens, and how they were chosen."""
        return {
            "model": self.name,
            "texts": [_plain(writing) for writing in self.writings],
            "sampling": {key: value for key, value in vars(self.sampling).items() if value not in (None, (), {})},
            "weights": self.weights,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else None,
            "cache": [vars(step) for step in self.cache],
        } | ({} if self.accepted is None else {"accepted": self.accepted})

    def __repr__(self) -> str:
        return f"GenerateResult({self.writings[0].text[:60]!r}, {self.note})"


def _plain(writing: Writing) -> dict[str, Any]:
    tokens = [
        {"id": piece.id, "piece": piece.piece}
        | ({} if piece.chance is None else {"chance": piece.chance, "candidates": dict(piece.candidates)})
        for piece in writing.pieces
    ]
    return {key: value for key, value in vars(writing).items() if key != "pieces"} | {"tokens": tokens}


def generate(
    model: str | Path | LoadedModel,
    text: str | Sequence[str],
    *,
    n: int = 1,
    weights: str = "auto",
    show_cache: bool = False,
    device: str = "auto",
    offline: bool = False,
    ask: Ask | None = None,
    **how: Any,
) -> GenerateResult:
    """What a model writes after a text, or after each of many, `n` times each.

    `how` are the settings of `peasy.generation.Sampling` (max_tokens, temperature, top_k, top_p, min_p, seed, stop,
    logprobs, ...), `cached=False` to read everything again for every token, `long="last"` to keep the end of a prompt
    that is too long, and `lookup=True` to guess what comes next from the prompt and check several guesses at once.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.model import save_model
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.text import train
    >>> words = train(["the cat sat on the mat"] * 9, "words")
    >>> with TemporaryDirectory() as place:
    ...     _ = save_model(f"{place}/cats", build(preset("gpt-tiny", vocabulary=len(words)), seed=1), words)
    ...     found = generate(f"{place}/cats", "the cat", max_tokens=3)
    >>> found.writings[0].reason, len(found.writings[0].pieces)
    ('length', 3)
    """
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device, offline=offline, ask=ask)
    writer = Writer(loaded, [text] if isinstance(text, str) else list(text), n=n, weights=weights, **how)
    for _ in writer.events():
        pass
    return writer.result(show_cache=show_cache)


class Writer:
    """A model that writes on from texts: run through `events` to stream them, then ask for the `result`."""

    def __init__(
        self,
        loaded: LoadedModel,
        texts: list[str],
        *,
        n: int = 1,
        weights: str = "auto",
        cached: bool = True,
        long: "Long" = "refuse",
        lookup: bool = False,
        **sampling: Any,
    ) -> None:
        from peasy.generation.sampling import Sampling

        if n < 1:
            raise InvalidInput(f"n is {n}.", hint="Ask for at least one text.")
        if not texts:
            raise InvalidInput("There is no text to write on from.")
        self.loaded, self.texts, self.n, self.cached, self.long = loaded, texts, n, cached, long
        self.sampling = Sampling(**({"max_tokens": 64} | sampling))
        self.model, self.weights = pack_weights(loaded, weights)
        if lookup and not cached:
            raise InvalidInput("Guesses are checked with the cache.", hint="Leave out one of lookup and no cache.")
        self.lookup, self.guessed, self.right = lookup, 0, 0
        self.seconds = 0.0
        self.drafts = [_Draft(text, self.sampling.seed + choice) for text in texts for choice in range(n)]

    def events(self) -> "Iterator[Token | Ended | Pass]":
        """What happens, as it happens; `choice` counts the texts as the result does. Closing it stops the work."""
        from peasy.generation.decode import Pass

        began = time.perf_counter()
        for event in self._events():
            if not isinstance(event, Pass):
                self.drafts[event.choice].add(event, self._answers)
            self.seconds = time.perf_counter() - began
            yield event

    def _events(self) -> "Iterator[Event]":
        from peasy.generation.decode import Pass
        from peasy.generation.request import Ended

        ids: dict[int, list[int]] = {}
        for place, text in enumerate(self.texts):
            try:
                ids[place] = self.loaded.prompt(text)
                self._note(place, ids[place])
            except InvalidInput as error:
                yield from (Ended(self.n * place + choice, "error", 0, "", error) for choice in range(self.n))
        order = sorted(ids, key=lambda place: len(ids[place]))
        for rows in _batches([self.n * place + choice for place in order for choice in range(self.n)], ROWS):
            for event in self._decode(rows, [ids[row // self.n] for row in rows]):
                if isinstance(event, Pass):
                    yield replace(event, rows=tuple((rows[row], new, kept) for row, new, kept in event.rows))
                else:
                    yield replace(event, choice=rows[event.choice])

    def _decode(self, rows: list[int], ids: list[list[int]]) -> "Iterator[Event]":
        from peasy.generation.decode import decode
        from peasy.generation.speculation import Guessed, decode_with_lookup

        given: dict[str, Any] = {"source": ids} if self.model.reads_source else {"prompts": ids}
        given["sampling"] = [replace(self.sampling, seed=self.sampling.seed + row % self.n) for row in rows]
        given |= {"tokenizer": self._answers, "long": self.long}
        if not self.lookup:
            yield from decode(self.model, cached=self.cached, **given)
            return
        for event in decode_with_lookup(self.model, **given):
            if isinstance(event, Guessed):
                self.guessed, self.right = self.guessed + event.guessed, self.right + event.right
            else:
                yield event

    def pieces(self) -> Iterator[str]:
        """Only the text of a single writing, as it becomes certain."""
        for event in self.events():
            self.check()
            if text := getattr(event, "text", ""):
                yield text

    def check(self) -> None:
        """Raise what was wrong with the first text that could not be written."""
        for draft in self.drafts:
            if draft.error is not None:
                raise draft.error

    @property
    def _answers(self) -> Tokenizer:
        return self.loaded.answers()

    def _note(self, place: int, ids: list[int]) -> None:
        unknown = self.loaded.need_tokenizer().special.unk
        for choice in range(self.n):
            self.drafts[self.n * place + choice].unknown = 0 if unknown is None else ids.count(unknown)

    def result(self, show_cache: bool = False) -> GenerateResult:
        """What has been written so far, or in the end."""
        cache, prompt = self._cache() if show_cache else ((), ())
        writings = tuple(draft.finish() for draft in self.drafts)
        accepted = None if not self.lookup else self.right / self.guessed if self.guessed else 0.0
        return GenerateResult(
            self.loaded.name, writings, self.sampling, self.weights, self.seconds, cache, prompt, accepted
        )

    def _cache(self) -> tuple[tuple[CacheStep, ...], tuple[str, ...]]:
        from peasy.generation.prompt import begin_one, fit
        from peasy.generation.saving import compare

        draft = self.drafts[0]
        if not draft.pieces:
            return (), ()
        prompt = fit(self.model, begin_one(self.model, self.loaded.prompt(draft.prompt)), self.sampling, self.long)
        steps = compare(self.model, prompt, [piece.id for piece in draft.pieces], self.loaded.model)
        told = tuple(
            CacheStep(
                piece.piece, step.kept, step.new, step.work, step.work_without, 1e3 * step.seconds,
                1e3 * step.seconds_without, step.apart,
            )
            for piece, step in zip(draft.pieces, steps, strict=True)
        )  # fmt: skip
        return told, tuple(self.loaded.need_tokenizer().piece(id) for id in prompt)


@dataclass(eq=False)
class _Draft:
    """One text while it is written."""

    prompt: str
    seed: int
    text: str = ""
    reason: str = ""
    unknown: int = 0
    error: PeasyError | None = None

    def __post_init__(self) -> None:
        self.pieces: list[Piece] = []

    def add(self, event: "Token | Ended", tokenizer: Tokenizer) -> None:
        from peasy.generation.request import Token

        self.text += event.text
        if not isinstance(event, Token):
            self.reason, self.error = event.reason, event.error
            return
        chosen = event.chosen
        candidates = tuple((tokenizer.piece(other.id), math.exp(other.logprob)) for other in chosen.candidates)
        chance = None if chosen.logprob is None else math.exp(chosen.logprob)
        self.pieces.append(Piece(chosen.id, tokenizer.piece(chosen.id), chance, candidates))

    def finish(self) -> Writing:
        said = None if self.error is None else self.error.message
        reason = self.reason or "interrupted"
        return Writing(self.prompt, self.text, reason, self.seed, tuple(self.pieces), self.unknown, said)


def pack_weights(loaded: LoadedModel, weights: str) -> tuple[Any, str]:
    """The model with its weights laid out for decoding, made once, and one line that says how.

    Only the products of Transformers on a processor are packed; other models run as they are.
    """
    if weights not in WEIGHTS:
        hint = did_you_mean(weights, WEIGHTS) or f"Choose {', '.join(WEIGHTS[:-1])} or {WEIGHTS[-1]}."
        raise InvalidInput(f'There are no weights "{weights}".', hint=hint)
    if loaded.kind not in ("decoder", "encoder-decoder") or loaded.model.device.type != "cpu":
        if weights not in ("auto", "float32"):
            raise InvalidInput(f"{loaded.name} is a {loaded.kind}: its weights are not packed.", hint="Leave it out.")
        return loaded.model, "weights as they are"
    from peasy.generation.packed import pack, packing_of

    if weights not in loaded.packed:
        loaded.packed[weights] = pack(loaded.model, weights)  # type: ignore[arg-type]  # checked above
    packing = packing_of(loaded.packed[weights])
    assert packing is not None
    return loaded.packed[weights], f"{packing.kind} weights"


def _batches(rows: list[int], size: int) -> Iterator[list[int]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
