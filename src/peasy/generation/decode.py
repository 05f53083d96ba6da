"""Decoding loop for a batch: prefill the prompts, then one token at a time from the KV cache."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from peasy.errors import InvalidInput, PeasyError
from peasy.generation.detokenizer import Detokenizer
from peasy.generation.prompt import (
    TokenIds,
    Truncation,
    check_ids,
    count_sequences,
    fit_to_context,
    new_token_limit,
    output_vocab_size,
    prepare_prompt,
)
from peasy.generation.request import Ended, FinishReason, Token
from peasy.generation.sampling import Sampler
from peasy.generation.sampling_params import SamplingParams
from peasy.models.protocol import Model
from peasy.tokenization import Tokenizer


@dataclass(frozen=True)
class Pass:
    """One forward pass. For each sequence in it: its index, tokens computed now, tokens already cached."""

    step: int
    sequences: tuple[tuple[int, int, int], ...]
    seconds: float


DecodeEvent = Pass | Token | Ended
"""Events of the decoding loop; `choice` is the index of the sequence."""


def generate(
    model: Model, prompts: TokenIds | None = None, sampling: SamplingParams | None = None, **options: Any
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
    prefill_chunk: int | None = None,
    truncation: Truncation = "error",
) -> Iterator[DecodeEvent]:
    """Continue all prompts in one batch, yielding events; closing the iterator stops the work.

    Each sequence has its own decode state and random generator: with one `sampling` for all, sequence i uses
    `seed` + i. It ends with an eos id (included), at a stop string, or at its token limit. A sequence that fails ends
    with an error, and the others continue. Encoder-decoder models need `source`. With a `tokenizer`, events carry
    text. Without `use_cache`, every step recomputes the whole sequence. `prefill_chunk`: prompt tokens per pass, so
    that short prompts generate while long ones are still prefilled. `truncation`: for prompts longer than the context.
    """
    sequences: list[DecodingSequence] = []
    for opened in open_sequences(
        model, prompts, sampling, source=source, tokenizer=tokenizer, use_cache=use_cache, truncation=truncation
    ):
        if isinstance(opened, Ended):
            yield opened
        else:
            sequences.append(opened)
    if use_cache:
        _share_prefill(sequences)
    step = 0
    while running := [sequence for sequence in sequences if not sequence.finished and sequence.leader is None]:
        done, ready = _forward_pass(model, step, running, prefill_chunk if use_cache else None)
        yield done
        for sequence, logits in ready:
            yield from sequence.sample_next(logits, model.config.special_tokens.eos)
        step += 1


@dataclass(eq=False)
class DecodingSequence:
    """Sequence during decoding: the first `num_computed` of its `ids` are in `state` (None = no cache).

    With a `leader` it waits until that sequence has prefilled the prompt that both share.
    """

    ids: list[int]
    state: Any
    source: Tensor | None
    sampler: Sampler
    detokenizer: Detokenizer
    max_new_tokens: int
    index: int = 0
    num_computed: int = 0
    num_generated: int = 0
    finished: bool = False
    leader: "DecodingSequence | None" = None
    followers: list["DecodingSequence"] = field(default_factory=list)

    def sample_next(self, logits: Tensor, eos: tuple[int, ...]) -> Iterator[Token | Ended]:
        """Sample the next token and yield its event, and the final event if it was the last."""
        try:
            chosen = self.sampler.sample(logits)
        except InvalidInput as error:
            yield self.finish("error", error)
            return
        self.ids.append(chosen.id)
        self.num_generated += 1
        text, stopped = self.detokenizer.push(chosen.id)
        reason: FinishReason | None = "eos" if chosen.id in eos else "stop" if stopped else None
        if reason is None and self.num_generated == self.max_new_tokens:
            reason = "length"
        self.finished = reason is not None
        yield Token(self.index, self.num_generated - 1, chosen, text)
        if reason is not None:
            yield self.finish(reason)

    def finish(self, reason: FinishReason, error: PeasyError | None = None) -> Ended:
        """Mark the sequence finished and return its final event."""
        self.finished = True
        rest = "" if reason == "stop" else self.detokenizer.finish()
        return Ended(self.index, reason, self.num_generated, rest, error)

    def fork_from(self, leader: "DecodingSequence") -> "DecodingSequence":
        """Continue from a fork of the leader's state; both have the same prompt."""
        self.leader, self.state, self.num_computed = None, leader.state.fork(), leader.num_computed
        return self


def _sampling_per_sequence(
    sampling: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    """Return sampling parameters for each sequence."""
    if sampling is None or isinstance(sampling, SamplingParams):
        shared = sampling or SamplingParams()
        return [replace(shared, seed=shared.seed + row) for row in range(count)]
    if len(sampling) != count:
        raise InvalidInput(
            f"There are {count} sequences but {len(sampling)} sampling parameters.", hint="Give one for each sequence."
        )
    return list(sampling)


def open_sequences(
    model: Model,
    prompts: TokenIds | None,
    sampling: SamplingParams | Sequence[SamplingParams] | None,
    *,
    source: TokenIds | None,
    **options: Any,
) -> Iterator[DecodingSequence | Ended]:
    """Yield each valid sequence, or the final event of an invalid one; `options` are those of `open_sequence`."""
    for row, params in enumerate(_sampling_per_sequence(sampling, count_sequences(prompts, source))):
        try:
            sequence = open_sequence(
                model, prompts[row] if prompts else None, source[row] if source else None, params, **options
            )
        except InvalidInput as error:
            yield Ended(row, "error", 0, "", error)
        else:
            sequence.index = row
            yield sequence


def open_sequence(
    model: Model,
    prompt: Sequence[int] | None,
    source: Sequence[int] | None,
    sampling: SamplingParams,
    tokenizer: Tokenizer | None = None,
    use_cache: bool = True,
    truncation: Truncation = "error",
) -> DecodingSequence:
    """Validate one prompt and create its sequence; a source is encoded here, once."""
    if sampling.stop and tokenizer is None:
        raise InvalidInput("Stop strings need a tokenizer.", hint="Give tokenizer=.")
    ids = fit_to_context(model, prepare_prompt(model, prompt or ()), sampling, truncation)
    check_ids(ids, output_vocab_size(model))
    source_ids = _source_tensor(model, source)
    max_new_tokens = new_token_limit(model, sampling, len(ids))
    with torch.inference_mode():
        state = model.new_state(capacity=len(ids) + max_new_tokens, source=source_ids) if use_cache else None
    return DecodingSequence(
        ids, state, source_ids, Sampler(sampling, ids), Detokenizer(tokenizer, sampling.stop), max_new_tokens
    )


def _source_tensor(model: Model, source: Sequence[int] | None) -> Tensor | None:
    if not model.is_encoder_decoder:
        return None
    if not source:
        hint = "Give source=ids, with at least one id for each sequence."
        raise InvalidInput("This encoder-decoder model needs a source.", hint=hint)
    check_ids(source, model.config.vocab_size)
    return torch.tensor([list(source)], device=model.device)


def _share_prefill(sequences: list[DecodingSequence]) -> None:
    """Prefill equal prompts once: the first sequence leads, the others will fork its state."""
    leaders: dict[Any, DecodingSequence] = {}
    for sequence in sequences:
        key = (tuple(sequence.ids), None if sequence.source is None else tuple(sequence.source[0].tolist()))
        if (leader := leaders.setdefault(key, sequence)) is not sequence:
            sequence.leader = leader
            leader.followers.append(sequence)


@torch.inference_mode()
def _forward_pass(
    model: Model, step: int, sequences: list[DecodingSequence], prefill_chunk: int | None
) -> tuple[Pass, list[tuple[DecodingSequence, Tensor]]]:
    """Run the new tokens of all sequences in one forward pass; return logits of those whose input is complete."""
    began = time.perf_counter()
    inputs = [
        seq.ids[seq.num_computed : None if prefill_chunk is None else seq.num_computed + prefill_chunk]
        for seq in sequences
    ]
    rows = tuple((seq.index, len(new), seq.num_computed) for seq, new in zip(sequences, inputs, strict=True))
    if sequences[0].state is None:
        logits = [_forward_uncached(model, seq) for seq in sequences]
        return Pass(step, rows, time.perf_counter() - began), list(zip(sequences, logits, strict=True))
    logits = model.forward_varlen(inputs, [seq.state for seq in sequences])
    ready = []
    for seq, new, next_logits in zip(sequences, inputs, logits, strict=True):
        seq.num_computed += len(new)
        if seq.num_computed == len(seq.ids):
            ready += [(seq, next_logits), *((follower.fork_from(seq), next_logits) for follower in seq.followers)]
            seq.followers = []
    return Pass(step, rows, time.perf_counter() - began), ready


def _forward_uncached(model: Model, sequence: DecodingSequence) -> Tensor:
    """Return the next-token logits by recomputing the whole sequence, without a cache."""
    source = {} if sequence.source is None else {"source": sequence.source}
    return model(torch.tensor([sequence.ids], device=model.device), last_only=True, **source)[0, -1]
