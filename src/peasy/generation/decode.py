"""Decoding loop for a batch: prefill the prompts, then one token at a time from the KV cache."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from peasy.errors import InvalidInput, PeasyError
from peasy.generation.prompt import (
    Ids,
    Long,
    begin_one,
    check_ids,
    count_texts,
    fit,
    most_tokens,
    writing_vocabulary,
)
from peasy.generation.request import Ended, Reason, Token
from peasy.generation.sampling import Chooser, Sampling
from peasy.generation.teller import Teller
from peasy.models.protocol import Model
from peasy.text import Tokenizer


@dataclass(frozen=True)
class Pass:
    """One forward pass. For each sequence in it: its index, tokens computed now, tokens already cached."""

    step: int
    rows: tuple[tuple[int, int, int], ...]
    seconds: float


Event = Pass | Token | Ended
"""Events of the decoding loop; `choice` is the index of the sequence."""


def generate(model: Model, prompts: Ids | None = None, sampling: Sampling | None = None, **how: Any) -> list[list[int]]:
    """Return the generated ids of each prompt, without the prompt; `options` are those of `decode`.

    Raises the error of the first sequence that fails; `decode` reports it and continues with the others.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> len(generate(model, [[1, 2, 3]], Sampling(max_tokens=4))[0])
    4
    """
    generated: list[list[int]] = [[] for _ in (prompts or how.get("source") or [])]
    for event in decode(model, prompts, sampling, **how):
        if isinstance(event, Token):
            generated[event.choice].append(event.chosen.id)
        elif isinstance(event, Ended) and event.error is not None:
            raise event.error
    return generated


def decode(
    model: Model,
    prompts: Ids | None = None,
    sampling: Sampling | Sequence[Sampling] | None = None,
    *,
    source: Ids | None = None,
    tokenizer: Tokenizer | None = None,
    cached: bool = True,
    chunk: int | None = None,
    long: Long = "refuse",
) -> Iterator[Event]:
    """Continue all prompts in one batch, yielding events; closing the iterator stops the work.

    Each sequence has its own decode state and random generator: with one `sampling` for all, sequence i uses
    `seed` + i. It ends with an eos id (included), at a stop string, or at its token limit. A sequence that fails ends
    with an error, and the others continue. Encoder-decoder models need `source`. With a `tokenizer`, events carry
    text. Without `use_cache`, every step recomputes the whole sequence. `prefill_chunk`: prompt tokens per pass, so
    that short prompts generate while long ones are still prefilled. `truncation`: for prompts longer than the context.
    """
    sequences: list[Text] = []
    for opened in open_texts(model, prompts, sampling, source=source, tokenizer=tokenizer, cached=cached, long=long):
        if isinstance(opened, Ended):
            yield opened
        else:
            sequences.append(opened)
    if cached:
        _join_alike(sequences)
    step = 0
    while running := [sequence for sequence in sequences if not sequence.over and sequence.leader is None]:
        done, ready = _pass(model, step, running, chunk if cached else None)
        yield done
        for sequence, logits in ready:
            yield from sequence.write(logits, model.config.special.end)
        step += 1


@dataclass(eq=False)
class Text:
    """Sequence during decoding: the first `num_computed` of its `ids` are in `state` (None = no cache).

    With a `leader` it waits until that sequence has prefilled the prompt that both share.
    """

    ids: list[int]
    memory: Any
    source: Tensor | None
    chooser: Chooser
    teller: Teller
    most: int
    number: int = 0
    read: int = 0
    written: int = 0
    over: bool = False
    leader: "Text | None" = None
    alike: list["Text"] = field(default_factory=list)

    def write(self, scores: Tensor, end: tuple[int, ...]) -> Iterator[Token | Ended]:
        """Sample the next token and yield its event, and the final event if it was the last."""
        try:
            chosen = self.chooser.choose(scores)
        except InvalidInput as error:
            yield self.finish("error", error)
            return
        self.ids.append(chosen.id)
        self.written += 1
        text, stopped = self.teller.push(chosen.id)
        reason: Reason | None = "end" if chosen.id in end else "stop" if stopped else None
        if reason is None and self.written == self.most:
            reason = "length"
        self.over = reason is not None
        yield Token(self.number, self.written - 1, chosen, text)
        if reason is not None:
            yield self.finish(reason)

    def finish(self, reason: Reason, error: PeasyError | None = None) -> Ended:
        """Mark the sequence finished and return its final event."""
        self.over = True
        rest = "" if reason == "stop" else self.teller.finish()
        return Ended(self.number, reason, self.written, rest, error)

    def follow(self, leader: "Text") -> "Text":
        """Continue from a fork of the leader's state; both have the same prompt."""
        self.leader, self.memory, self.read = None, leader.memory.fork(), leader.read
        return self


def _each(sampling: Sampling | Sequence[Sampling] | None, count: int) -> list[Sampling]:
    """Return sampling parameters for each sequence."""
    if sampling is None or isinstance(sampling, Sampling):
        shared = sampling or Sampling()
        return [replace(shared, seed=shared.seed + row) for row in range(count)]
    if len(sampling) != count:
        raise InvalidInput(
            f"There are {count} sequences but {len(sampling)} sampling parameters.", hint="Give one for each sequence."
        )
    return list(sampling)


def open_texts(
    model: Model, prompts: Ids | None, sampling: Sampling | Sequence[Sampling] | None, *, source: Ids | None, **how: Any
) -> Iterator[Text | Ended]:
    """Yield each valid sequence, or the final event of an invalid one; `options` are those of `open_sequence`."""
    for row, params in enumerate(_each(sampling, count_texts(prompts, source))):
        try:
            sequence = open_text(
                model, prompts[row] if prompts else None, source[row] if source else None, params, **how
            )
        except InvalidInput as error:
            yield Ended(row, "error", 0, "", error)
        else:
            sequence.number = row
            yield sequence


def open_text(
    model: Model,
    prompt: Sequence[int] | None,
    source: Sequence[int] | None,
    sampling: Sampling,
    tokenizer: Tokenizer | None = None,
    cached: bool = True,
    long: Long = "refuse",
) -> Text:
    """Validate one prompt and create its sequence; a source is encoded here, once."""
    if sampling.stop and tokenizer is None:
        raise InvalidInput("Stop strings need a tokenizer.", hint="Give tokenizer=.")
    ids = fit(model, begin_one(model, prompt or ()), sampling, long)
    check_ids(ids, writing_vocabulary(model))
    source_ids = _source(model, source)
    max_new_tokens = most_tokens(model, sampling, len(ids))
    with torch.inference_mode():
        state = model.start(room=len(ids) + max_new_tokens, source=source_ids) if cached else None
    return Text(ids, state, source_ids, Chooser(sampling, ids), Teller(tokenizer, sampling.stop), max_new_tokens)


def _source(model: Model, source: Sequence[int] | None) -> Tensor | None:
    if not model.reads_source:
        return None
    if not source:
        hint = "Give source=ids, with at least one id for each sequence."
        raise InvalidInput("This encoder-decoder model needs a source.", hint=hint)
    check_ids(source, model.config.vocabulary)
    return torch.tensor([list(source)], device=model.device)


def _join_alike(texts: list[Text]) -> None:
    """Prefill equal prompts once: the first sequence leads, the others will fork its state."""
    leaders: dict[Any, Text] = {}
    for sequence in texts:
        key = (tuple(sequence.ids), None if sequence.source is None else tuple(sequence.source[0].tolist()))
        if (leader := leaders.setdefault(key, sequence)) is not sequence:
            sequence.leader = leader
            leader.alike.append(sequence)


@torch.inference_mode()
def _pass(model: Model, step: int, texts: list[Text], chunk: int | None) -> tuple[Pass, list[tuple[Text, Tensor]]]:
    """Run the new tokens of all sequences in one forward pass; return logits of those whose input is complete."""
    began = time.perf_counter()
    inputs = [seq.ids[seq.read : None if chunk is None else seq.read + chunk] for seq in texts]
    rows = tuple((seq.number, len(new), seq.read) for seq, new in zip(texts, inputs, strict=True))
    if texts[0].memory is None:
        logits = [_read_all(model, seq) for seq in texts]
        return Pass(step, rows, time.perf_counter() - began), list(zip(texts, logits, strict=True))
    logits = model.read(inputs, [seq.memory for seq in texts])
    ready = []
    for seq, new, next_logits in zip(texts, inputs, logits, strict=True):
        seq.read += len(new)
        if seq.read == len(seq.ids):
            ready += [(seq, next_logits), *((follower.follow(seq), next_logits) for follower in seq.alike)]
            seq.alike = []
    return Pass(step, rows, time.perf_counter() - began), ready


def _read_all(model: Model, text: Text) -> Tensor:
    """Return the next-token logits by recomputing the whole sequence, without a cache."""
    source = {} if text.source is None else {"source": text.source}
    return model(torch.tensor([text.ids], device=model.device), last=True, **source)[0, -1]
