"""Speculation: tokens guessed from the text itself are read in one pass with the last one, and kept where right.

After every guessed token the model's scores tell what it would have chosen there; the text takes that token, and goes
on as long as it is the guessed one. So every token is chosen from the same scores, by the same chance in the same
order, as without guessing: the same seed writes the same text, and only the number of passes differs.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.generation.decode import Pass, Text, open_texts
from peasy.generation.lookup import Lookup
from peasy.generation.prompt import Ids, Long
from peasy.generation.request import Ended, Token
from peasy.generation.sampling import Sampling
from peasy.models.protocol import Model
from peasy.nn.cache import Cache
from peasy.text import Tokenizer

MOST = 15
"""So many tokens are guessed at a time at most: with the last one they make sixteen rows, which cost little more than
one where reading the weights is what takes time."""


@dataclass(frozen=True)
class Guessed:
    """How guessing went: tokens guessed, those of them that were right, tokens written and passes it took."""

    guessed: int
    right: int
    written: int
    passes: int

    @property
    def rate(self) -> float:
        """The share of guesses that were right.

        >>> Guessed(guessed=40, right=30, written=50, passes=20).rate
        0.75
        """
        return self.right / self.guessed if self.guessed else 0.0

    def says(self) -> str:
        """In one line.

        >>> Guessed(guessed=40, right=30, written=50, passes=20).says()
        '30 of 40 guessed tokens were right (75 %): 50 tokens in 20 passes'
        """
        share = f" ({100 * self.rate:.0f} %)" if self.guessed else ""
        right = f"{self.right} of {self.guessed} guessed tokens were right{share}"
        return f"{right}: {self.written} tokens in {self.passes} passes"


Event = Pass | Token | Ended | Guessed


def decode_with_lookup(
    model: Model,
    prompts: Ids | None = None,
    sampling: Sampling | Sequence[Sampling] | None = None,
    *,
    source: Ids | None = None,
    tokenizer: Tokenizer | None = None,
    long: Long = "refuse",
    most: int = MOST,
) -> Iterator[Event]:
    """The events of `decode`, in fewer passes where the text repeats itself; the last event tells how guessing went.

    Only for models whose memory can forget the last tokens again: Transformers, not recurrent ones.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> *_, last = decode_with_lookup(model, [[1, 2, 3] * 4], Sampling(max_tokens=20))
    >>> last.written, last.passes < 20
    (20, True)
    """
    _check_memory(model)
    writers = []
    for text in open_texts(model, prompts, sampling, source=source, tokenizer=tokenizer, long=long):
        if isinstance(text, Ended):
            yield text
        else:
            writers.append(_Writer(text, Lookup(text.ids), most))
    step, end = 0, model.config.special.end
    while running := [writer for writer in writers if not writer.text.over]:
        began = time.perf_counter()
        rows, scores = _pass(model, running)
        yield Pass(step, rows, time.perf_counter() - began)
        for writer, found in zip(running, scores, strict=True):
            yield from writer.write(found, end)
        step += 1
    guessed, right, written = (sum(getattr(one, name) for one in writers) for name in ("guessed", "right", "written"))
    yield Guessed(guessed, right, written, step)


@dataclass(eq=False)
class _Writer:
    """A text with its guesses. After a wrong one it guesses less, after right ones more."""

    text: Text
    lookup: Lookup
    most: int
    length: int = 4
    guessed: int = 0
    right: int = 0
    guess: list[int] = field(default_factory=list)

    @property
    def written(self) -> int:
        return self.text.written

    def news(self) -> list[int]:
        """What it reads next: what is new, and what it guesses to come after; nothing while the prompt is new."""
        left = self.text.most - self.text.written - 1
        fresh = self.text.ids[self.text.read :]
        self.guess = self.lookup.guess(min(self.length, self.most, left)) if self.text.written else []
        return fresh + self.guess

    def write(self, scores: Tensor, end: tuple[int, ...]) -> Iterator[Token | Ended]:
        """Choose after each guess, as long as the guesses were right."""
        text, right = self.text, 0
        text.read = len(text.ids)
        for row, guess in zip(scores, [*self.guess, None], strict=True):
            yield from text.write(row, end)
            if text.over or text.ids[-1] != guess:
                break
            right += 1
            text.read += 1
        self._learn(right)

    def _learn(self, right: int) -> None:
        for id in self.text.ids[len(self.lookup.ids) :]:
            self.lookup.push(id)
        if self.guess:
            self.guessed += len(self.guess)
            self.right += right
            self.length = min(2 * self.length, self.most) if right == len(self.guess) else max(right, 2)
        self.text.memory.crop(self.text.read)


@torch.inference_mode()
def _pass(model: Model, writers: list[_Writer]) -> tuple[tuple[tuple[int, int, int], ...], list[Tensor]]:
    """Every text reads what is new to it and its guesses, in one pass; of a prompt only the end is scored."""
    news = [writer.news() for writer in writers]
    rows = tuple((one.text.number, len(new), one.text.read) for one, new in zip(writers, news, strict=True))
    memories = [writer.text.memory for writer in writers]
    if not any(writer.guess for writer in writers):
        return rows, [scores[None] for scores in model.read(news, memories)]
    return rows, model.read(news, memories, every=True)


def _check_memory(model: Model) -> None:
    source = torch.zeros(1, 1, dtype=torch.long, device=model.device) if model.reads_source else None
    with torch.inference_mode():
        able = isinstance(model.start(source=source), Cache)
    if not able:
        raise InvalidInput(
            f"A {type(model.config).kind} model cannot go back: a token that was guessed wrong could not be unread.",
            hint="Let it write without look-up.",
        )
