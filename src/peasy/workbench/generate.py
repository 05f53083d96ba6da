"""`generate`: continue one prompt or many, in batches, with streaming, log-probabilities and cache statistics."""

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
    from peasy.models.protocol import Model

ROWS = 32
"""Batch size; prompts of similar length are batched together."""

WEIGHTS = ("auto", "float32", "bfloat16", "int8")


@dataclass(frozen=True, repr=False)
class GenerateResult(Result):
    """Result of `generate`: `writings` in the order of the prompts, with the `n` samples of a prompt together."""

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
        """The generated texts."""
        return [writing.text for writing in self.writings]

    @property
    def tokens(self) -> int:
        """Total number of generated tokens."""
        return sum(len(writing.pieces) for writing in self.writings)

    @property
    def note(self) -> str:
        """One line with token count, speed, sampling, weights and finish reason."""
        facts = [f"{self.tokens:,} token{'s' * (self.tokens != 1)}"]
        facts += [f"{self.tokens / self.seconds:,.0f} tokens/s"] if self.seconds else []
        facts += [f"seed {self.sampling.seed}" if self.sampling.draws else "greedy decoding"]
        facts += [self.weights]
        if self.accepted is not None:
            facts.append(f"{self.accepted:.0%} of the draft tokens accepted")
        if len(self.writings) == 1:
            facts.append(REASONS.get(self.writings[0].reason, "interrupted"))
        return " · ".join(facts)

    def document(self) -> Document:
        """The texts, with probabilities and cache steps if requested."""
        page = writings_document(self.name, self.writings, self.note)
        return replace(page, parts=(*page.parts, *cache_parts(self.prompt, self.cache))) if self.cache else page

    def data(self) -> dict[str, Any]:
        """Texts with their tokens, sampling settings and timing as plain data."""
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
    """Generate `n` continuations of a prompt, or of each of many.

    `how` are the settings of `peasy.generation.Sampling` (max_tokens, temperature, top_k, top_p, min_p, seed, stop,
    logprobs, ...), `cached=False` to decode without a KV cache, `long="last"` to keep the end of a prompt that is too
    long, and `lookup=True` for speculative decoding with n-gram drafts from the prompt.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.model import save_model
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.text import train
    >>> tokenizer = train(["the cat sat on the mat"] * 9, "words")
    >>> model = build(preset("gpt-tiny", vocabulary=len(tokenizer)), seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     _ = save_model(f"{folder}/cats", model, tokenizer)
    ...     result = generate(f"{folder}/cats", "the cat", max_tokens=3)
    >>> result.writings[0].reason, len(result.writings[0].pieces)
    ('length', 3)
    """
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device, offline=offline, ask=ask)
    job = Writer(loaded, [text] if isinstance(text, str) else list(text), n=n, weights=weights, **how)
    for _ in job.events():
        pass
    return job.result(show_cache=show_cache)


class Writer:
    """Generation job for a list of prompts: iterate `events` to stream, then take the `result`."""

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
            raise InvalidInput(f"n is {n}.", hint="n must be 1 or more.")
        if not texts:
            raise InvalidInput("There is no text to continue.")
        self.loaded, self.texts, self.n, self.cached, self.long = loaded, texts, n, cached, long
        self.sampling = Sampling(**({"max_tokens": 64} | sampling))
        self.model, self.weights = pack_weights(loaded, weights)
        if lookup and not cached:
            raise InvalidInput("lookup needs the KV cache.", hint="Leave out lookup or cached=False (--no-cache).")
        self.lookup, self.guessed, self.right = lookup, 0, 0
        self.seconds = 0.0
        self.drafts = [_Draft(text, self.sampling.seed + choice) for text in texts for choice in range(n)]

    def events(self) -> "Iterator[Token | Ended | Pass]":
        """Yield token and end events; `choice` indexes the outputs as in the result. Closing it stops generation."""
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

        prompts: dict[int, list[int]] = {}
        for index, text in enumerate(self.texts):
            try:
                prompts[index] = self.loaded.prompt(text)
                self._note(index, prompts[index])
            except InvalidInput as error:
                yield from (Ended(self.n * index + choice, "error", 0, "", error) for choice in range(self.n))
        order = sorted(prompts, key=lambda index: len(prompts[index]))
        for rows in _batches([self.n * index + choice for index in order for choice in range(self.n)], ROWS):
            for event in self._decode(rows, [prompts[row // self.n] for row in rows]):
                if isinstance(event, Pass):
                    yield replace(event, rows=tuple((rows[row], new, kept) for row, new, kept in event.rows))
                else:
                    yield replace(event, choice=rows[event.choice])

    def _decode(self, rows: list[int], ids: list[list[int]]) -> "Iterator[Event]":
        from peasy.generation.decode import decode
        from peasy.generation.speculation import Guessed, decode_with_lookup

        arguments: dict[str, Any] = {"source": ids} if self.model.reads_source else {"prompts": ids}
        arguments["sampling"] = [replace(self.sampling, seed=self.sampling.seed + row % self.n) for row in rows]
        arguments |= {"tokenizer": self._answers, "long": self.long}
        if not self.lookup:
            yield from decode(self.model, cached=self.cached, **arguments)
            return
        for event in decode_with_lookup(self.model, **arguments):
            if isinstance(event, Guessed):
                self.guessed, self.right = self.guessed + event.guessed, self.right + event.right
            else:
                yield event

    def pieces(self) -> Iterator[str]:
        """Yield the text of a single output, as it becomes final."""
        for event in self.events():
            self.check()
            if text := getattr(event, "text", ""):
                yield text

    def check(self) -> None:
        """Raise the first error of any output."""
        for output in self.drafts:
            if output.error is not None:
                raise output.error

    @property
    def _answers(self) -> Tokenizer:
        return self.loaded.answers()

    def _note(self, index: int, ids: list[int]) -> None:
        unk = self.loaded.need_tokenizer().special.unk
        for choice in range(self.n):
            self.drafts[self.n * index + choice].unknown = 0 if unk is None else ids.count(unk)

    def result(self, show_cache: bool = False) -> GenerateResult:
        """Return the outputs so far, finished or not."""
        cache, prompt = self._cache() if show_cache else ((), ())
        writings = tuple(output.finish() for output in self.drafts)
        accepted = None if not self.lookup else self.right / self.guessed if self.guessed else 0.0
        return GenerateResult(
            self.loaded.name, writings, self.sampling, self.weights, self.seconds, cache, prompt, accepted
        )

    def _cache(self) -> tuple[tuple[CacheStep, ...], tuple[str, ...]]:
        from peasy.generation.prompt import begin_one, fit
        from peasy.generation.saving import compare

        output = self.drafts[0]
        if not output.pieces:
            return (), ()
        prompt = fit(self.model, begin_one(self.model, self.loaded.prompt(output.prompt)), self.sampling, self.long)
        steps = compare(self.model, prompt, [piece.id for piece in output.pieces], self.loaded.model)
        cache_steps = tuple(
            CacheStep(
                piece.piece, step.kept, step.new, step.work, step.work_without, 1e3 * step.seconds,
                1e3 * step.seconds_without, step.apart,
            )
            for piece, step in zip(output.pieces, steps, strict=True)
        )  # fmt: skip
        return cache_steps, tuple(self.loaded.need_tokenizer().piece(id) for id in prompt)


@dataclass(eq=False)
class _Draft:
    """One output while it is being generated."""

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
        probability = None if chosen.logprob is None else math.exp(chosen.logprob)
        self.pieces.append(Piece(chosen.id, tokenizer.piece(chosen.id), probability, candidates))

    def finish(self) -> Writing:
        message = None if self.error is None else self.error.message
        reason = self.reason or "interrupted"
        return Writing(self.prompt, self.text, reason, self.seed, tuple(self.pieces), self.unknown, message)


def pack_weights(loaded: LoadedModel, weights: str) -> tuple["Model", str]:
    """Return the model with weights packed for decoding (cached on `loaded`), and a label of the weight format.

    Only Transformers on CPU are packed; other models run unchanged.
    """
    if weights not in WEIGHTS:
        hint = did_you_mean(weights, WEIGHTS) or f"Choose {', '.join(WEIGHTS[:-1])} or {WEIGHTS[-1]}."
        raise InvalidInput(f'There is no weight format "{weights}".', hint=hint)
    if loaded.kind not in ("decoder", "encoder-decoder") or loaded.model.device.type != "cpu":
        if weights not in ("auto", "float32"):
            raise InvalidInput(
                f"{loaded.name} cannot use {weights} weights: only Transformers on CPU can be packed.",
                hint="Leave out weights (--weights).",
            )
        return loaded.model, "original weights"
    from peasy.generation.packed import pack, packing_of

    if weights not in loaded.packed:
        loaded.packed[weights] = pack(loaded.model, weights)  # type: ignore[arg-type]  # checked above
    packing = packing_of(loaded.packed[weights])
    assert packing is not None
    return loaded.packed[weights], f"{packing.kind} weights"


def _batches(rows: list[int], size: int) -> Iterator[list[int]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
