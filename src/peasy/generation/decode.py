"""The one loop of generation: read the prompt, then one token at a time, each from all tokens before."""

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
    """One pass through the model. For each text in it: its number, tokens computed now, tokens remembered before."""

    step: int
    rows: tuple[tuple[int, int, int], ...]
    seconds: float


Event = Pass | Token | Ended
"""What the loop tells; `choice` counts the texts."""


def generate(model: Model, prompts: Ids | None = None, sampling: Sampling | None = None, **how: Any) -> list[list[int]]:
    """What the model writes after each prompt, the prompt not included. `how` is that of `decode`.

    The first text that cannot be written is an error here; `decode` tells it and goes on with the others.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> len(generate(model, [[1, 2, 3]], Sampling(max_tokens=4))[0])
    4
    """
    written: list[list[int]] = [[] for _ in (prompts or how.get("source") or [])]
    for event in decode(model, prompts, sampling, **how):
        if isinstance(event, Token):
            written[event.choice].append(event.chosen.id)
        elif isinstance(event, Ended) and event.error is not None:
            raise event.error
    return written


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
    """Write on after `prompts`, step by step; closing the iterator stops the work.

    Each text has its own memory and its own chance: with one `sampling` for all, text i draws from `seed` + i. It ends
    with one of the model's end ids, which is the last it gets, at a stop text, or when it is long enough. One that
    cannot be written ends with an error, and the others go on. A model that answers a source needs `source`. With a
    `tokenizer` events have text. Without `cached` every step reads all again. `chunk`: prompts are read so many tokens
    at a time, while other texts are already written on. `long` says what becomes of a prompt longer than the context.
    """
    texts: list[Text] = []
    for opened in open_texts(model, prompts, sampling, source=source, tokenizer=tokenizer, cached=cached, long=long):
        if isinstance(opened, Ended):
            yield opened
        else:
            texts.append(opened)
    if cached:
        _join_alike(texts)
    step = 0
    while running := [text for text in texts if not text.over and text.leader is None]:
        done, ready = _pass(model, step, running, chunk if cached else None)
        yield done
        for text, scores in ready:
            yield from text.write(scores, model.config.special.end)
        step += 1


@dataclass(eq=False)
class Text:
    """A text while it is written: the first `read` of its `ids` are in `memory`; None = nothing is remembered.

    With a `leader` it waits until that one has read the beginning that both share.
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
        """Choose the next token and tell it, and the end if this was the last."""
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
        """It is over: what is told of it last."""
        self.over = True
        rest = "" if reason == "stop" else self.teller.finish()
        return Ended(self.number, reason, self.written, rest, error)

    def follow(self, leader: "Text") -> "Text":
        """Go on from what another text has read: it began alike."""
        self.leader, self.memory, self.read = None, leader.memory.fork(), leader.read
        return self


def _each(sampling: Sampling | Sequence[Sampling] | None, count: int) -> list[Sampling]:
    """One way of choosing for each text."""
    if sampling is None or isinstance(sampling, Sampling):
        one = sampling or Sampling()
        return [replace(one, seed=one.seed + row) for row in range(count)]
    if len(sampling) != count:
        raise InvalidInput(f"There are {count} texts and {len(sampling)} ways to choose.", hint="Give one each.")
    return list(sampling)


def open_texts(
    model: Model, prompts: Ids | None, sampling: Sampling | Sequence[Sampling] | None, *, source: Ids | None, **how: Any
) -> Iterator[Text | Ended]:
    """Every text that can be written, and the end of those that cannot; `how` is that of `open_text`."""
    for row, one in enumerate(_each(sampling, count_texts(prompts, source))):
        try:
            text = open_text(model, prompts[row] if prompts else None, source[row] if source else None, one, **how)
        except InvalidInput as error:
            yield Ended(row, "error", 0, "", error)
        else:
            text.number = row
            yield text


def open_text(
    model: Model,
    prompt: Sequence[int] | None,
    source: Sequence[int] | None,
    sampling: Sampling,
    tokenizer: Tokenizer | None = None,
    cached: bool = True,
    long: Long = "refuse",
) -> Text:
    """A text that can be written: all that can be known to fail is refused here; a source is read here, once."""
    if sampling.stop and tokenizer is None:
        raise InvalidInput("There are stop texts, but no tokenizer to find them by.", hint="Give tokenizer=.")
    ids = fit(model, begin_one(model, prompt or ()), sampling, long)
    check_ids(ids, writing_vocabulary(model))
    read = _source(model, source)
    most = most_tokens(model, sampling, len(ids))
    with torch.inference_mode():
        memory = model.start(room=len(ids) + most, source=read) if cached else None
    return Text(ids, memory, read, Chooser(sampling, ids), Teller(tokenizer, sampling.stop), most)


def _source(model: Model, source: Sequence[int] | None) -> Tensor | None:
    if not model.reads_source:
        return None
    if not source:
        hint = "Give source=ids, with at least one id for each text."
        raise InvalidInput("This model answers a source, and there is none.", hint=hint)
    check_ids(source, model.config.vocabulary)
    return torch.tensor([list(source)], device=model.device)


def _join_alike(texts: list[Text]) -> None:
    """Texts that begin alike read their beginning once: the first leads, the others will fork its memory."""
    leaders: dict[Any, Text] = {}
    for text in texts:
        key = (tuple(text.ids), None if text.source is None else tuple(text.source[0].tolist()))
        if (leader := leaders.setdefault(key, text)) is not text:
            text.leader = leader
            leader.alike.append(text)


@torch.inference_mode()
def _pass(model: Model, step: int, texts: list[Text], chunk: int | None) -> tuple[Pass, list[tuple[Text, Tensor]]]:
    """Every text reads what is new to it, in one pass; those that have read all get the scores of what comes next."""
    began = time.perf_counter()
    news = [text.ids[text.read : None if chunk is None else text.read + chunk] for text in texts]
    rows = tuple((text.number, len(new), text.read) for text, new in zip(texts, news, strict=True))
    if texts[0].memory is None:
        scores = [_read_all(model, text) for text in texts]
        return Pass(step, rows, time.perf_counter() - began), list(zip(texts, scores, strict=True))
    scores = model.read(news, [text.memory for text in texts])
    ready = []
    for text, new, found in zip(texts, news, scores, strict=True):
        text.read += len(new)
        if text.read == len(text.ids):
            ready += [(text, found), *((other.follow(text), found) for other in text.alike)]
            text.alike = []
    return Pass(step, rows, time.perf_counter() - began), ready


def _read_all(model: Model, text: Text) -> Tensor:
    """Without a memory: everything from the start."""
    source = {} if text.source is None else {"source": text.source}
    return model(torch.tensor([text.ids], device=model.device), last=True, **source)[0, -1]
