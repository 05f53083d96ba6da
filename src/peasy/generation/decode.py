"""Decoding of a list of prompts: submits them to an engine and steps it until all have ended."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypedDict, Unpack

from peasy.errors import InvalidInput
from peasy.generation.admission import empty_prompt_error
from peasy.generation.engine import Engine
from peasy.generation.limits import UNLIMITED
from peasy.generation.request import Ended, Request, Token
from peasy.generation.request_queue import ResponseStream
from peasy.generation.sampling_params import BeamSearchParams, LongPrompt, SamplingParams
from peasy.generation.sequence import Row
from peasy.generation.speculative_decoding import MAX_DRAFT_TOKENS, SpeculationStats
from peasy.models.protocol import Model
from peasy.tokenization import Tokenizer

TokenIds = Sequence[Sequence[int]]


class Pass(NamedTuple):
    """One forward pass. For each row in it: index of its sequence, tokens computed now, tokens already cached."""

    step: int
    sequences: tuple[tuple[int, int, int], ...]
    seconds: float


DecodeEvent = Pass | Token | Ended | SpeculationStats
"""Events of `decode`; `choice` is the index of the sequence."""


class DecodeOptions(TypedDict, total=False):
    """Keyword arguments of `decode`."""

    source: TokenIds | None
    tokenizer: Tokenizer | None
    use_cache: bool
    speculative: bool
    prefill_chunk: int | None
    long: LongPrompt
    max_num_seqs: int | None


def generate(
    model: Model,
    prompts: TokenIds | None = None,
    sampling: SamplingParams | Sequence[SamplingParams] | None = None,
    **options: Unpack[DecodeOptions],
) -> list[list[int]]:
    """Return the generated ids of each prompt, without the prompt; `options` are those of `decode`.

    Raises the error of the first sequence that fails; `decode` reports it and continues with the others.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> len(generate(model, [[1, 2, 3]], SamplingParams(max_tokens=4))[0])
    4
    """
    generated: list[list[int]] = [[] for _ in (prompts or options.get("source") or [])]
    for event in decode(model, prompts, sampling, **options):
        if isinstance(event, Token):
            generated[event.choice].append(event.sampled.id)
        elif isinstance(event, Ended) and event.error is not None:
            raise event.error
    return generated


def decode(
    model: Model,
    prompts: TokenIds | None = None,
    sampling: SamplingParams | Sequence[SamplingParams] | None = None,
    *,
    source: TokenIds | None = None,
    tokenizer: Tokenizer | None = None,
    use_cache: bool = True,
    speculative: bool = False,
    prefill_chunk: int | None = None,
    long: LongPrompt = "refuse",
    max_num_seqs: int | None = None,
) -> Iterator[DecodeEvent]:
    """Continue all prompts in one batch, yielding events; closing the iterator stops the work.

    Each sequence has its own decode state and random generator: with one `sampling` for all, sequence i uses
    `seed` + i. It ends with an eos id (included), at a stop string, or at its token limit. A sequence that fails ends
    with an error, and the others continue. Encoder-decoder models need `source`. With a `tokenizer`, events carry
    text. Without `use_cache`, every step recomputes the whole sequence. With `speculative`, n-gram drafts save passes
    where the text repeats itself (Transformers only), and the last event has statistics. `prefill_chunk`: prompt
    tokens per pass, so that short prompts generate while long ones are still prefilled. `long`: for prompts
    longer than the context. `max_num_seqs`: batch size; the next prompt starts when a sequence has ended.
    """
    count = _count_sequences(prompts, source)
    if sampling is None or isinstance(sampling, SamplingParams):
        shared = sampling or SamplingParams()
        sampling = [replace(shared, seed=shared.seed + row) for row in range(count)]
    if len(sampling) != count:
        message = f"There are {count} sequences but {len(sampling)} sampling parameters."
        raise InvalidInput(message, hint="Give one for each sequence.")
    requests = (
        Request(
            tuple(prompts[row]) if prompts else (), own, tuple(source[row]) if source else None, long=long,
            use_cache=use_cache, max_draft_tokens=MAX_DRAFT_TOKENS if speculative else 0,
        )
        for row, own in enumerate(sampling)
    )  # fmt: skip
    # Prompts that start later than an equal one find it in the prefix cache; in one batch, equal prompts share anyway.
    waits = use_cache and max_num_seqs is not None and count > max_num_seqs
    limits = replace(
        UNLIMITED, max_num_seqs=max_num_seqs or UNLIMITED.max_num_seqs, prefix_cache_bytes=2**28 if waits else 0,
        prefill_chunk=prefill_chunk or UNLIMITED.prefill_chunk,
    )  # fmt: skip
    return run_requests(Engine(model, tokenizer, limits, isolate_errors=False), requests)


def beam_search(
    model: Model,
    prompts: TokenIds | None = None,
    params: BeamSearchParams | None = None,
    *,
    source: TokenIds | None = None,
) -> list[Ended]:
    """Return the final event of each prompt or source, with its most likely continuations, or with its error.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> params = BeamSearchParams(num_beams=3, max_tokens=4, n=2)
    >>> results = beam_search(build(preset("gpt-tiny"), seed=1), [[1, 2, 3]], params)
    >>> [len(hypothesis.ids) for hypothesis in results[0].hypotheses]
    [4, 4]
    """
    requests = [
        Request(
            tuple(prompts[row]) if prompts else (), source=tuple(source[row]) if source else None,
            beam_search=params or BeamSearchParams(),
        )
        for row in range(_count_sequences(prompts, source))
    ]  # fmt: skip
    events = run_requests(Engine(model, limits=UNLIMITED, isolate_errors=False), requests)
    return sorted((event for event in events if isinstance(event, Ended)), key=lambda ended: ended.choice)


def run_requests(engine: Engine, requests: Iterable[Request]) -> Iterator[DecodeEvent]:
    """Submit the requests (n = 1) to an engine and step it until all have ended, yielding events.

    `choice` of an event is the index of its request. Invalid requests end with an error.
    """
    pending, events = iter(enumerate(requests)), list[DecodeEvent]()
    indices: dict[ResponseStream, int] = {}
    is_speculative, num_passes = False, 0

    def _record_pass(rows: list[Row], seconds: float) -> None:
        nonlocal num_passes
        described = [(indices[row.sequence.response], len(row.ids), row.num_cached) for row in rows]
        events.append(Pass(num_passes, tuple(described), seconds))
        num_passes += 1

    engine.on_pass = _record_pass
    waits = True
    while True:
        while waits and len(engine.queue) < engine.limits.max_num_seqs:
            if (numbered := next(pending, None)) is None:
                waits = False
                break
            index, request = numbered
            try:
                response = engine.submit(request)
            except InvalidInput as error:
                yield Ended(index, "error", 0, "", error)
                continue
            indices[response], is_speculative = index, is_speculative or request.max_draft_tokens > 0
            response.sink = partial(_collect, events, index) if index else events.append
        has_run = engine.step()
        yield from events
        events.clear()
        if not (has_run or waits):
            break
    if is_speculative:
        drafted, accepted = (sum(getattr(r, name) for r in indices) for name in ("num_drafted", "num_accepted"))
        yield SpeculationStats(drafted, accepted, engine.stats.generated_tokens, num_passes)


def _collect(events: list[DecodeEvent], index: int, event: Token | Ended) -> None:
    events.append(replace(event, choice=index))


def _count_sequences(prompts: TokenIds | None, source: TokenIds | None) -> int:
    """Return the number of sequences; prompts and sources must agree."""
    if not (prompts or source) or (prompts is not None and not prompts):
        raise empty_prompt_error()
    if prompts is not None and source is not None and len(source) != len(prompts):
        message = f"There are {len(source)} sources and {len(prompts)} prompts."
        raise InvalidInput(message, hint="Give equally many of both.")
    return len(prompts or source or ())
