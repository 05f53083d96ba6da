"""Speculative decoding with n-gram drafts: several draft tokens are verified in one forward pass.

At every draft token the sampler draws from the model's logits as usual; the draft is accepted while the sampled token
equals it. Every token is sampled from the same logits with the same random numbers as without drafts, so the output
is identical for a given seed, and only the number of passes differs.
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
"""Most draft tokens per pass: with the last token they are sixteen rows, which cost little more than one where decoding
is bound by memory bandwidth."""


@dataclass(frozen=True)
class Guessed:
    """Speculation statistics: drafted, accepted and generated tokens, and forward passes."""

    guessed: int
    right: int
    written: int
    passes: int

    @property
    def rate(self) -> float:
        """Acceptance rate of draft tokens.

        >>> Guessed(guessed=40, right=30, written=50, passes=20).rate
        0.75
        """
        return self.right / self.guessed if self.guessed else 0.0

    def says(self) -> str:
        """Return a one-line description.

        >>> Guessed(guessed=40, right=30, written=50, passes=20).says()
        '30 of 40 draft tokens accepted (75 %): 50 tokens in 20 passes'
        """
        share = f" ({100 * self.rate:.0f} %)" if self.guessed else ""
        accepted = f"{self.right} of {self.guessed} draft tokens accepted{share}"
        return f"{accepted}: {self.written} tokens in {self.passes} passes"


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
    """Yield the events of `decode` with fewer passes where the text repeats itself; the last event has statistics.

    Only for models whose decode state can be cropped: Transformers, not recurrent models.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> *_, last = decode_with_lookup(model, [[1, 2, 3] * 4], Sampling(max_tokens=20))
    >>> last.written, last.passes < 20
    (20, True)
    """
    _check_memory(model)
    sequences = []
    for opened in open_texts(model, prompts, sampling, source=source, tokenizer=tokenizer, long=long):
        if isinstance(opened, Ended):
            yield opened
        else:
            sequences.append(_Writer(opened, Lookup(opened.ids), most))
    step, eos = 0, model.config.special.end
    while running := [sequence for sequence in sequences if not sequence.text.over]:
        began = time.perf_counter()
        rows, logits = _pass(model, running)
        yield Pass(step, rows, time.perf_counter() - began)
        for sequence, draft_logits in zip(running, logits, strict=True):
            yield from sequence.write(draft_logits, eos)
        step += 1
    drafted, accepted = sum(seq.guessed for seq in sequences), sum(seq.right for seq in sequences)
    yield Guessed(drafted, accepted, sum(seq.written for seq in sequences), step)


@dataclass(eq=False)
class _Writer:
    """Sequence with draft tokens; drafts get shorter after a rejection and longer after full acceptance."""

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
        """Return the next input: uncomputed tokens and a draft; no draft during prefill."""
        remaining = self.text.most - self.text.written - 1
        uncomputed = self.text.ids[self.text.read :]
        self.guess = self.lookup.guess(min(self.length, self.most, remaining)) if self.text.written else []
        return uncomputed + self.guess

    def write(self, scores: Tensor, end: tuple[int, ...]) -> Iterator[Token | Ended]:
        """Sample after each draft token until one is rejected."""
        sequence, num_accepted = self.text, 0
        sequence.read = len(sequence.ids)
        for next_logits, draft_token in zip(scores, [*self.guess, None], strict=True):
            yield from sequence.write(next_logits, end)
            if sequence.over or sequence.ids[-1] != draft_token:
                break
            num_accepted += 1
            sequence.read += 1
        self._learn(num_accepted)

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
    """Run new and draft tokens of all sequences in one forward pass; a prompt gives only its last logits."""
    inputs = [sequence.news() for sequence in writers]
    rows = tuple((seq.text.number, len(new), seq.text.read) for seq, new in zip(writers, inputs, strict=True))
    states = [sequence.text.memory for sequence in writers]
    if not any(sequence.guess for sequence in writers):
        return rows, [logits[None] for logits in model.read(inputs, states)]
    return rows, model.read(inputs, states, every=True)


def _check_memory(model: Model) -> None:
    source = torch.zeros(1, 1, dtype=torch.long, device=model.device) if model.reads_source else None
    with torch.inference_mode():
        can_crop = isinstance(model.start(source=source), Cache)
    if not can_crop:
        raise InvalidInput(
            f"A {type(model.config).kind} model cannot drop rejected draft tokens from its state.",
            hint="Generate without speculation.",
        )
