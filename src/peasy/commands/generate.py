"""`generate`: continue one prompt or many, with streaming, log-probabilities and cache statistics."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack, cast

from annotated_types import Ge

from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, Result
from peasy.errors import InvalidInput
from peasy.generation.sampling_params import LongPrompt, SamplingOptions, SamplingParams, WeightFormat
from peasy.parameters import Record
from peasy.views.document import CacheFigure, Cell, Document, DocumentPart, Heading, Paragraph, Table, short_title

if TYPE_CHECKING:
    from peasy.generation.request import Ended, Token
    from peasy.models.protocol import Model

BATCH_SIZE = 32
"""Most sequences decoded at the same time; the next prompt starts when one has ended."""


class GenerateSampling(SamplingParams):
    """Sampling parameters with the defaults of `generate`."""

    max_tokens: Annotated[int, Ge(1)] = 64


class GeneratedToken(Record):
    """Generated token: printable piece, probability, and the most likely candidates at its position."""

    id: int
    piece: str
    probability: float | None = None
    candidates: tuple[tuple[str, float], ...] = ()


class GeneratedText(Record):
    """Generated text of one prompt and its finish reason; `error` is set if generation failed.

    `note` says what was done if prompt and text are longer than the context.
    """

    prompt: str
    text: str
    finish_reason: str
    seed: int = 0
    tokens: tuple[GeneratedToken, ...] = ()
    num_unknown: int = 0
    error: str | None = None
    note: str = ""

    @property
    def prompt_notes(self) -> list[str]:
        """Notes on the prompt: unknown tokens, and what was done if it is long."""
        count = self.num_unknown
        unknown = f"{count:,} {'token is' if count == 1 else 'tokens are'} not in the model's vocabulary."
        return [note for note in (unknown if count else "", self.note) if note]


class CacheStep(Record):
    """One decoding step with and without a KV cache: cached and computed tokens, multiplications, milliseconds, and the
    largest difference between their logits."""

    token: str
    num_cached: int
    num_computed: int
    multiplications: int
    multiplications_uncached: int
    ms: float
    ms_uncached: float
    max_difference: float


_FINISH_REASONS = {
    "eos": "stopped at an end-of-sequence token",
    "stop": "stopped at a stop string",
    "length": "stopped at the maximum length",
    "error": "failed",
}


class GenerateResult(Result):
    """Result of `generate`: `completions` in the order of the prompts, with the `n` samples of a prompt together."""

    name: str
    completions: tuple[GeneratedText, ...]
    sampling: SamplingParams
    weights_label: str
    seconds: float
    cache_steps: tuple[CacheStep, ...] = ()
    prompt_pieces: tuple[str, ...] = ()
    acceptance_rate: float | None = None

    @property
    def texts(self) -> list[str]:
        """The generated texts."""
        return [completion.text for completion in self.completions]

    @property
    def num_tokens(self) -> int:
        """Total number of generated tokens."""
        return sum(len(completion.tokens) for completion in self.completions)

    @property
    def note(self) -> str:
        """One line with token count, speed, sampling, weights and finish reason."""
        facts = [f"{self.num_tokens:,} token{'s' * (self.num_tokens != 1)}"]
        facts += [f"{self.num_tokens / self.seconds:,.0f} tokens/s"] if self.seconds else []
        facts += [f"seed {self.sampling.seed}" if self.sampling.temperature else "greedy decoding"]
        facts += [self.weights_label]
        if self.acceptance_rate is not None:
            facts.append(f"{self.acceptance_rate:.0%} of the draft tokens accepted")
        if len(self.completions) == 1:
            facts.append(_FINISH_REASONS.get(self.completions[0].finish_reason, "interrupted"))
        return " · ".join(facts)

    def document(self) -> Document:
        """The texts, each under its prompt if there are several, with probabilities and cache steps if requested."""
        parts: list[DocumentPart] = []
        for index, one in enumerate(self.completions):
            if len(self.completions) > 1:
                parts.append(Heading(short_title(one.prompt) or "(empty prompt)", index + 1))
            parts += [Paragraph(one.error, "bad")] if one.error else [Paragraph(one.text)]
            parts += [Paragraph(note, "note") for note in one.prompt_notes]
            parts += [_probability_table(one)] if any(token.candidates for token in one.tokens) else []
        parts.append(Paragraph(self.note, "note"))
        parts += kv_cache_parts(self.prompt_pieces, self.cache_steps) if self.cache_steps else ()
        several = f"Texts generated by {self.name}"
        return Document(several if len(self.completions) > 1 else short_title(self.completions[0].prompt), tuple(parts))

    def data(self) -> JsonDict:
        """Texts with their tokens, sampling settings and timing as plain data."""
        return {
            "model": self.name,
            "texts": [_completion_data(completion) for completion in self.completions],
            "sampling": {key: value for key, value in vars(self.sampling).items() if value not in (None, (), {})},
            "weights": self.weights_label,
            "seconds": self.seconds,
            "tokens_per_second": self.num_tokens / self.seconds if self.seconds else None,
            "cache": [vars(step) for step in self.cache_steps],
        } | ({} if self.acceptance_rate is None else {"acceptance_rate": self.acceptance_rate})

    def __repr__(self) -> str:
        return f"GenerateResult({self.completions[0].text[:60]!r}, {self.note})"


def _completion_data(completion: GeneratedText) -> JsonDict:
    tokens: list[JsonDict] = [{"id": token.id, "piece": token.piece} for token in completion.tokens]
    for row, token in zip(tokens, completion.tokens, strict=True):
        if token.probability is not None:
            row |= {"probability": token.probability, "candidates": dict(token.candidates)}
    return vars(completion) | {"tokens": tokens}


def _probability_table(generated: GeneratedText) -> Table:
    """Table of each token with its probability and the most likely candidates at its position."""
    most = max((len(piece.candidates) for piece in generated.tokens), default=0)
    rows: list[tuple[Cell, ...]] = []
    for index, piece in enumerate(generated.tokens):
        candidates = [f"{name} {probability:.2f}" for name, probability in piece.candidates]
        probability = "" if piece.probability is None else f"{piece.probability:.4f}"
        rows.append((str(index + 1), piece.piece, probability, *candidates, *[""] * (most - len(candidates))))
    columns = ("", "token", "probability", *(["candidates", *[""] * (most - 1)] if most else []))
    return Table(columns, tuple(rows), "Token probabilities")


def kv_cache_parts(prompt: tuple[str, ...], steps: tuple[CacheStep, ...]) -> tuple[DocumentPart, ...]:
    """Figure and table of cached and computed tokens per step, and what the KV cache saved."""
    tokens = (*prompt, *(step.token for step in steps[:-1]))
    figure = CacheFigure("KV cache, step by step", tokens, tuple((s.num_cached, s.num_computed) for s in steps))
    rows = tuple(
        (str(index), step.token, str(step.num_computed), str(step.num_cached), f"{step.multiplications:,}",
         f"{step.multiplications_uncached:,}", f"{step.ms:.2f}", f"{step.ms_uncached:.2f}")
        for index, step in enumerate(steps, 1)
    )  # fmt: skip
    work, uncached = sum(step.multiplications for step in steps), sum(step.multiplications_uncached for step in steps)
    ms, ms_uncached = sum(step.ms for step in steps), sum(step.ms_uncached for step in steps)
    difference = max(step.max_difference for step in steps)
    cost = f"With the cache: {work:,} multiplications, {ms:,.1f} ms. Without: {uncached:,}, {ms_uncached:,.1f} ms"
    ratio = f" ({uncached / work:.1f} and {ms_uncached / ms:.1f} times as much)" if work and ms else ""
    columns = ("step", "token", "computed", "cached", "multiplications", "without cache", "ms", "without cache")
    summary = Paragraph(f"{cost}{ratio}. The logits differ by at most {difference:.1e}.")
    return Heading("KV cache"), figure, Table(columns, rows), summary


def generate(
    model: str | Path | LoadedModel,
    prompt: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
    *,
    n: Annotated[int, Ge(1)] = 1,
    long: LongPrompt = "refuse",
    weights: WeightFormat = "auto",
    speculative: bool = False,
    use_cache: bool = True,
    show_cache: bool = False,
    add_special_tokens: bool = True,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
    **sampling: Unpack[SamplingOptions],
) -> GenerateResult:
    """Generate `n` continuations of a prompt, or of each of many; `sampling` as in `SamplingParams`.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        prompt: Prompt as a text or as token ids, or a list of prompts.
        n: Number of texts per prompt, sampled with seed, seed + 1, ...
        long: A prompt longer than the context is refused, cut on the left, or extends the context.
        weights: Weight format for inference; float32 is exact, int8 is smaller and faster.
        speculative: Speculative decoding with n-grams of the text so far; the result is the same.
        use_cache: Decode with a KV cache; without one, every token recomputes the whole sequence.
        show_cache: Show cached and computed tokens of each step, with and without the KV cache.
        add_special_tokens: Add the special tokens that the model expects around a text, such as <bos>.

    >>> result = generate("stories", "The pizza", max_tokens=3)
    >>> result.completions[0].finish_reason, len(result.completions[0].tokens)
    ('length', 3)
    """
    is_one = isinstance(prompt, str) or (bool(prompt) and isinstance(prompt[0], int))
    prompts = cast(list[str | Sequence[int]], [prompt] if is_one else list(prompt))
    job = GenerationJob(
        model, prompts, n=n, weights=weights, use_cache=use_cache,
        long=long, speculative=speculative, add_special_tokens=add_special_tokens, device=device, offline=offline,
        confirm=confirm, **sampling,
    )  # fmt: skip
    for _ in job.events():
        pass
    result = job.result(show_cache=show_cache)
    if all(completion.error is not None for completion in result.completions):
        job.raise_first_error()
    return result


class GenerationJob:
    """Generation job for a list of prompts: iterate `events` to stream, then take the `result`."""

    def __init__(
        self,
        model: str | Path | LoadedModel,
        prompts: Sequence[str | Sequence[int]],
        *,
        n: int = 1,
        weights: str = "auto",
        use_cache: bool = True,
        long: LongPrompt = "refuse",
        speculative: bool = False,
        add_special_tokens: bool = True,
        device: str = "auto",
        offline: bool = False,
        confirm: Confirm | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> None:
        if n < 1:
            raise InvalidInput(f"n is {n}.", hint="n must be 1 or more.")
        if not prompts:
            raise InvalidInput("There is no text to continue.")
        self.prompts, self.n, self.use_cache, self.long = prompts, n, use_cache, long
        self.sampling: SamplingParams = GenerateSampling(**sampling)
        self.loaded = load(model, device=device, offline=offline, confirm=confirm)
        self.model, self.weights_label = pack_weights(self.loaded, weights)
        self.speculative, self.add_special_tokens, self.seconds = speculative, add_special_tokens, 0.0
        self.acceptance_rate: float | None = 0.0 if speculative else None
        self.num_outputs = n * len(prompts)
        self._events: list[list[Token | Ended]] = [[] for _ in range(self.num_outputs)]
        self._num_unknown, self._notes = [0] * len(prompts), [""] * len(prompts)

    def events(self) -> "Iterator[Token | Ended]":
        """Yield token and end events; `choice` indexes the outputs as in the result. Closing it stops generation."""
        from peasy.generation.admission import long_text_note
        from peasy.generation.decode import Pass, decode
        from peasy.generation.request import Ended
        from peasy.generation.speculative_decoding import SpeculationStats

        began, rows, ids = time.perf_counter(), list[int](), list[list[int]]()
        tokenizer, unk = self.loaded.output_tokenizer(), self.loaded.require_tokenizer().special_tokens.unk
        for index, text in enumerate(self.prompts):
            choices = range(self.n * index, self.n * (index + 1))
            try:
                encoded = self.loaded.encode_prompt(text, add_special_tokens=self.add_special_tokens)
            except InvalidInput as error:
                for row in choices:
                    self._events[row].append(Ended(row, "error", 0, "", error))
                    yield self._events[row][-1]
                continue
            self._num_unknown[index] = 0 if unk is None else encoded.count(unk)
            self._notes[index] = long_text_note(self.model, len(encoded), self.sampling.max_tokens, self.long) or ""
            rows += choices
            ids += [encoded] * self.n
        if not rows:
            return
        translates = self.model.is_encoder_decoder
        for event in decode(
            self.model, None if translates else ids, [self._sampling_of(row) for row in rows],
            source=ids if translates else None, tokenizer=tokenizer, use_cache=self.use_cache,
            speculative=self.speculative, long=self.long, max_num_seqs=BATCH_SIZE,
        ):  # fmt: skip
            self.seconds = time.perf_counter() - began
            if isinstance(event, SpeculationStats):
                self.acceptance_rate = event.acceptance_rate
            elif not isinstance(event, Pass):
                if event.choice != (row := rows[event.choice]):
                    event = replace(event, choice=row)
                self._events[row].append(event)
                yield event

    def _sampling_of(self, row: int) -> SamplingParams:
        return replace(self.sampling, seed=self.sampling.seed + row % self.n)

    def text_deltas(self) -> Iterator[str]:
        """Yield the text of a single output, as it becomes final."""
        for event in self.events():
            self.raise_first_error()
            if text := getattr(event, "text", ""):
                yield text

    def raise_first_error(self) -> None:
        """Raise the first error of any output."""
        from peasy.generation.request import Ended

        for events in self._events:
            if events and isinstance(last := events[-1], Ended) and last.error is not None:
                raise last.error

    def _output(self, row: int, events: "list[Token | Ended]") -> GeneratedText:
        from peasy.generation.request import Ended, Token

        piece, index, tokens = self.loaded.output_tokenizer().piece, row // self.n, []
        last = events[-1] if events and isinstance(events[-1], Ended) else None
        for sampled in (event.sampled for event in events if isinstance(event, Token)):
            candidates = tuple((piece(other.id), math.exp(other.logprob)) for other in sampled.top_logprobs)
            probability = None if sampled.logprob is None else math.exp(sampled.logprob)
            tokens.append(GeneratedToken(sampled.id, piece(sampled.id), probability, candidates))
        prompt = self.prompts[index]
        if not isinstance(prompt, str):
            known = () if last is not None and last.error is not None else prompt
            prompt = self.loaded.require_tokenizer().decode(known)
        return GeneratedText(
            prompt, "".join(event.text for event in events), "cancelled" if last is None else last.reason,
            self._sampling_of(row).seed, tuple(tokens), self._num_unknown[index],
            None if last is None or last.error is None else last.error.message, self._notes[index],
        )  # fmt: skip

    def result(self, show_cache: bool = False) -> GenerateResult:
        """Return the outputs so far, finished or not: all choices of the first prompt, then those of the next."""
        outputs = tuple(self._output(row, events) for row, events in enumerate(self._events))
        cache, pieces = tuple[CacheStep, ...](), tuple[str, ...]()
        if show_cache and outputs[0].tokens:
            from peasy.generation.admission import prepare_prompt

            ids = self.loaded.encode_prompt(self.prompts[0], add_special_tokens=self.add_special_tokens)
            prompt = prepare_prompt(self.model, ids, self.sampling.max_tokens, self.long)
            cache = cache_steps(self.loaded, self.model, prompt, [token.id for token in outputs[0].tokens])
            pieces = self.loaded.require_tokenizer().pieces(prompt)
        return GenerateResult(
            self.loaded.name, outputs, self.sampling, self.weights_label, self.seconds, cache, pieces,
            self.acceptance_rate,
        )  # fmt: skip


def cache_steps(
    loaded: LoadedModel, model: "Model", prompt: Sequence[int], generated: Sequence[int]
) -> tuple[CacheStep, ...]:
    """Run prompt and generated tokens again, each step once with and once without the KV cache."""
    from peasy.generation.cache_benchmark import benchmark_cache

    tokenizer, steps = loaded.output_tokenizer(), benchmark_cache(model, prompt, generated, loaded.model)
    return tuple(
        CacheStep(
            tokenizer.piece(id), step.num_cached, step.num_new, step.multiplications, step.multiplications_uncached,
            1e3 * step.seconds, 1e3 * step.seconds_uncached, step.max_difference,
        )
        for id, step in zip(generated, steps, strict=True)
    )  # fmt: skip


def pack_weights(loaded: LoadedModel, weights: str) -> tuple["Model", str]:
    """Return the model with weights packed for decoding (cached on `loaded`), and a label of the weight format.

    Only Transformers on CPU are packed; other models run unchanged.
    """
    if loaded.model.config.kind not in ("decoder", "encoder-decoder") or loaded.model.device.type != "cpu":
        if weights not in ("auto", "float32"):
            message = f"{loaded.name} cannot use {weights} weights: only Transformers on CPU can be packed."
            raise InvalidInput(message, hint="Leave out weights (--weights).")
        return loaded.model, "original weights"
    from peasy.generation.packed import pack, packing_of

    if weights not in loaded.packed_models:
        loaded.packed_models[weights] = pack(loaded.model, weights)  # type: ignore[arg-type]  # pack checks it
    packing = packing_of(loaded.packed_models[weights])
    assert packing is not None
    return loaded.packed_models[weights], f"{packing.kind} weights"
