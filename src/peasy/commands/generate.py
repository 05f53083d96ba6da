"""`generate`: continue one prompt or many, in batches, with streaming, log-probabilities and cache statistics."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import Result
from peasy.errors import InvalidInput, PeasyError, check_keywords, did_you_mean, parameter_names
from peasy.tokenization import Tokenizer
from peasy.views.document import Document
from peasy.views.generated_text import (
    FINISH_REASONS,
    CacheStep,
    GeneratedText,
    GeneratedToken,
    generation_document,
    kv_cache_parts,
)

if TYPE_CHECKING:
    from peasy.generation.decode import DecodeEvent, Pass
    from peasy.generation.prompt import Truncation
    from peasy.generation.request import Ended, Token
    from peasy.generation.sampling_params import SamplingParams
    from peasy.models.protocol import Model

BATCH_SIZE = 32
"""Batch size; prompts of similar length are batched together."""

WEIGHT_FORMATS = ("auto", "float32", "bfloat16", "int8")
_PARAMETERS = ("n", "weights", "use_cache", "truncate", "speculative", "show_cache", "device", "offline", "confirm")
"""Parameters of `generate` besides those of sampling."""


@dataclass(frozen=True, repr=False)
class GenerateResult(Result):
    """Result of `generate`: `completions` in the order of the prompts, with the `n` samples of a prompt together."""

    name: str
    completions: tuple[GeneratedText, ...]
    sampling: "SamplingParams"
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
        facts += [f"seed {self.sampling.seed}" if self.sampling.is_random else "greedy decoding"]
        facts += [self.weights_label]
        if self.acceptance_rate is not None:
            facts.append(f"{self.acceptance_rate:.0%} of the draft tokens accepted")
        if len(self.completions) == 1:
            facts.append(FINISH_REASONS.get(self.completions[0].finish_reason, "interrupted"))
        return " · ".join(facts)

    def document(self) -> Document:
        """The texts, with probabilities and cache steps if requested."""
        page = generation_document(self.name, self.completions, self.note)
        return (
            replace(page, parts=(*page.parts, *kv_cache_parts(self.prompt_pieces, self.cache_steps)))
            if self.cache_steps
            else page
        )

    def data(self) -> dict[str, Any]:
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


def _completion_data(completion: GeneratedText) -> dict[str, Any]:
    tokens = [
        {"id": token.id, "piece": token.piece}
        | (
            {}
            if token.probability is None
            else {"probability": token.probability, "candidates": dict(token.candidates)}
        )
        for token in completion.tokens
    ]
    return vars(completion) | {"tokens": tokens}


def generate(
    model: str | Path | LoadedModel,
    prompt: str | Sequence[str],
    *,
    n: int = 1,
    weights: str = "auto",
    show_cache: bool = False,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
    **options: Any,
) -> GenerateResult:
    """Generate `n` continuations of a prompt, or of each of many.

    `options` are the sampling parameters (max_tokens, temperature, top_k, top_p, min_p, seed, stop, logprobs, ...),
    `use_cache=False` to decode without a KV cache, `truncate="left"` to keep only the end of a prompt that is too long,
    and `speculative=True` for speculative decoding with n-gram drafts from the prompt.

    >>> from tempfile import TemporaryDirectory
    >>> from peasy.checkpoint.model import save_model
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> from peasy.tokenization import train_tokenizer
    >>> tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, "words")
    >>> model = build(preset("gpt-tiny", vocab_size=len(tokenizer)), seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     _ = save_model(f"{folder}/cats", model, tokenizer)
    ...     result = generate(f"{folder}/cats", "the cat", max_tokens=3)
    >>> result.completions[0].finish_reason, len(result.completions[0].tokens)
    ('length', 3)
    """
    loaded = load(model, device=device, offline=offline, confirm=confirm)
    job = GenerationJob(loaded, [prompt] if isinstance(prompt, str) else list(prompt), n=n, weights=weights, **options)
    for _ in job.events():
        pass
    return job.result(show_cache=show_cache)


class GenerationJob:
    """Generation job for a list of prompts: iterate `events` to stream, then take the `result`."""

    def __init__(
        self,
        loaded: LoadedModel,
        prompts: list[str],
        *,
        n: int = 1,
        weights: str = "auto",
        use_cache: bool = True,
        truncate: "Truncation" = "error",
        speculative: bool = False,
        **sampling: Any,
    ) -> None:
        from peasy.generation.sampling_params import SamplingParams

        check_keywords("generate", sampling, (*parameter_names(SamplingParams), *_PARAMETERS))
        if n < 1:
            raise InvalidInput(f"n is {n}.", hint="n must be 1 or more.")
        if not prompts:
            raise InvalidInput("There is no text to continue.")
        self.loaded, self.prompts, self.n, self.use_cache, self.truncate = loaded, prompts, n, use_cache, truncate
        self.sampling = SamplingParams(**({"max_tokens": 64} | sampling))
        self.model, self.weights_label = pack_weights(loaded, weights)
        if speculative and not use_cache:
            hint = "Leave out speculative or use_cache=False (--no-cache)."
            raise InvalidInput("speculative needs the KV cache.", hint=hint)
        self.speculative, self.num_draft_tokens, self.num_accepted_tokens = speculative, 0, 0
        self.seconds = 0.0
        self.outputs = [CompletionOutput(text, self.sampling.seed + choice) for text in prompts for choice in range(n)]

    def events(self) -> "Iterator[Token | Ended | Pass]":
        """Yield token and end events; `choice` indexes the outputs as in the result. Closing it stops generation."""
        from peasy.generation.decode import Pass

        began = time.perf_counter()
        for event in self._batched_events():
            if not isinstance(event, Pass):
                self.outputs[event.choice].append_event(event, self._output_tokenizer)
            self.seconds = time.perf_counter() - began
            yield event

    def _batched_events(self) -> "Iterator[DecodeEvent]":
        from peasy.generation.decode import Pass
        from peasy.generation.request import Ended

        prompts: dict[int, list[int]] = {}
        for index, text in enumerate(self.prompts):
            try:
                prompts[index] = self.loaded.encode_prompt(text)
                self._count_unknown(index, prompts[index])
            except InvalidInput as error:
                yield from (Ended(self.n * index + choice, "error", 0, "", error) for choice in range(self.n))
        order = sorted(prompts, key=lambda index: len(prompts[index]))
        for rows in _chunks([self.n * index + choice for index in order for choice in range(self.n)], BATCH_SIZE):
            for event in self._decode(rows, [prompts[row // self.n] for row in rows]):
                if isinstance(event, Pass):
                    yield replace(
                        event, sequences=tuple((rows[row], new, cached) for row, new, cached in event.sequences)
                    )
                else:
                    yield replace(event, choice=rows[event.choice])

    def _decode(self, rows: list[int], ids: list[list[int]]) -> "Iterator[DecodeEvent]":
        from peasy.generation.decode import decode
        from peasy.generation.speculative_decoding import SpeculationStats, speculative_decode

        arguments: dict[str, Any] = {"source": ids} if self.model.is_encoder_decoder else {"prompts": ids}
        arguments["sampling"] = [replace(self.sampling, seed=self.sampling.seed + row % self.n) for row in rows]
        arguments |= {"tokenizer": self._output_tokenizer, "truncation": self.truncate}
        if not self.speculative:
            yield from decode(self.model, use_cache=self.use_cache, **arguments)
            return
        for event in speculative_decode(self.model, **arguments):
            if isinstance(event, SpeculationStats):
                self.num_draft_tokens, self.num_accepted_tokens = (
                    self.num_draft_tokens + event.num_drafted,
                    self.num_accepted_tokens + event.num_accepted,
                )
            else:
                yield event

    def text_deltas(self) -> Iterator[str]:
        """Yield the text of a single output, as it becomes final."""
        for event in self.events():
            self.raise_first_error()
            if text := getattr(event, "text", ""):
                yield text

    def raise_first_error(self) -> None:
        """Raise the first error of any output."""
        for output in self.outputs:
            if output.error is not None:
                raise output.error

    @property
    def _output_tokenizer(self) -> Tokenizer:
        return self.loaded.output_tokenizer()

    def _count_unknown(self, index: int, ids: list[int]) -> None:
        unk = self.loaded.require_tokenizer().special_tokens.unk
        for choice in range(self.n):
            self.outputs[self.n * index + choice].num_unknown = 0 if unk is None else ids.count(unk)

    def result(self, show_cache: bool = False) -> GenerateResult:
        """Return the outputs so far, finished or not."""
        cache, prompt = self._cache_steps() if show_cache else ((), ())
        completions = tuple(output.to_completion() for output in self.outputs)
        accepted = (
            None
            if not self.speculative
            else self.num_accepted_tokens / self.num_draft_tokens
            if self.num_draft_tokens
            else 0.0
        )
        return GenerateResult(
            self.loaded.name, completions, self.sampling, self.weights_label, self.seconds, cache, prompt, accepted
        )

    def _cache_steps(self) -> tuple[tuple[CacheStep, ...], tuple[str, ...]]:
        from peasy.generation.cache_benchmark import benchmark_cache
        from peasy.generation.prompt import fit_to_context, prepare_prompt

        output = self.outputs[0]
        if not output.pieces:
            return (), ()
        prompt = fit_to_context(
            self.model,
            prepare_prompt(self.model, self.loaded.encode_prompt(output.prompt)),
            self.sampling,
            self.truncate,
        )
        steps = benchmark_cache(self.model, prompt, [piece.id for piece in output.pieces], self.loaded.model)
        cache_steps = tuple(
            CacheStep(
                piece.piece, step.num_cached, step.num_new, step.multiplications, step.multiplications_uncached,
                1e3 * step.seconds, 1e3 * step.seconds_uncached, step.max_difference,
            )
            for piece, step in zip(output.pieces, steps, strict=True)
        )  # fmt: skip
        return cache_steps, tuple(self.loaded.require_tokenizer().piece(id) for id in prompt)


@dataclass(eq=False)
class CompletionOutput:
    """One output while it is being generated."""

    prompt: str
    seed: int
    text: str = ""
    finish_reason: str = ""
    num_unknown: int = 0
    error: PeasyError | None = None

    def __post_init__(self) -> None:
        self.pieces: list[GeneratedToken] = []

    def append_event(self, event: "Token | Ended", tokenizer: Tokenizer) -> None:
        """Append the token and text of an event, or set the finish reason."""
        from peasy.generation.request import Token

        self.text += event.text
        if not isinstance(event, Token):
            self.finish_reason, self.error = event.reason, event.error
            return
        chosen = event.sampled
        candidates = tuple((tokenizer.piece(other.id), math.exp(other.logprob)) for other in chosen.top_logprobs)
        probability = None if chosen.logprob is None else math.exp(chosen.logprob)
        self.pieces.append(GeneratedToken(chosen.id, tokenizer.piece(chosen.id), probability, candidates))

    def to_completion(self) -> GeneratedText:
        """Return the text generated so far."""
        message = None if self.error is None else self.error.message
        reason = self.finish_reason or "cancelled"
        return GeneratedText(self.prompt, self.text, reason, self.seed, tuple(self.pieces), self.num_unknown, message)


def pack_weights(loaded: LoadedModel, weights: str) -> tuple["Model", str]:
    """Return the model with weights packed for decoding (cached on `loaded`), and a label of the weight format.

    Only Transformers on CPU are packed; other models run unchanged.
    """
    if weights not in WEIGHT_FORMATS:
        hint = (
            did_you_mean(weights, WEIGHT_FORMATS) or f"Choose {', '.join(WEIGHT_FORMATS[:-1])} or {WEIGHT_FORMATS[-1]}."
        )
        raise InvalidInput(f'There is no weight format "{weights}".', hint=hint)
    if loaded.kind not in ("decoder", "encoder-decoder") or loaded.model.device.type != "cpu":
        if weights not in ("auto", "float32"):
            raise InvalidInput(
                f"{loaded.name} cannot use {weights} weights: only Transformers on CPU can be packed.",
                hint="Leave out weights (--weights).",
            )
        return loaded.model, "original weights"
    from peasy.generation.packed import pack, packing_of

    if weights not in loaded.packed_models:
        loaded.packed_models[weights] = pack(loaded.model, weights)  # type: ignore[arg-type]  # checked above
    packing = packing_of(loaded.packed_models[weights])
    assert packing is not None
    return loaded.packed_models[weights], f"{packing.kind} weights"


def _chunks(rows: list[int], size: int) -> Iterator[list[int]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
