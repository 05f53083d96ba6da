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
from peasy.generation.decode import DecodingSequence, Pass, open_sequences
from peasy.generation.ngram_proposer import NgramProposer
from peasy.generation.prompt import TokenIds, Truncation
from peasy.generation.request import Ended, Token
from peasy.generation.sampling_params import SamplingParams
from peasy.models.protocol import Model
from peasy.nn.kv_cache import KVCache
from peasy.tokenization import Tokenizer

MAX_DRAFT_TOKENS = 15
"""Most draft tokens per pass: with the last token they are sixteen rows, which cost little more than one where decoding
is bound by memory bandwidth."""


@dataclass(frozen=True)
class SpeculationStats:
    """Speculation statistics: drafted, accepted and generated tokens, and forward passes."""

    num_drafted: int
    num_accepted: int
    num_generated: int
    num_passes: int

    @property
    def acceptance_rate(self) -> float:
        """Acceptance rate of draft tokens.

        >>> SpeculationStats(num_drafted=40, num_accepted=30, num_generated=50, num_passes=20).acceptance_rate
        0.75
        """
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    def summary(self) -> str:
        """Return a one-line description.

        >>> SpeculationStats(num_drafted=40, num_accepted=30, num_generated=50, num_passes=20).summary()
        '30 of 40 draft tokens accepted (75 %): 50 tokens in 20 passes'
        """
        share = f" ({100 * self.acceptance_rate:.0f} %)" if self.num_drafted else ""
        accepted = f"{self.num_accepted} of {self.num_drafted} draft tokens accepted{share}"
        return f"{accepted}: {self.num_generated} tokens in {self.num_passes} passes"


SpeculativeEvent = Pass | Token | Ended | SpeculationStats


def speculative_decode(
    model: Model,
    prompts: TokenIds | None = None,
    sampling: SamplingParams | Sequence[SamplingParams] | None = None,
    *,
    source: TokenIds | None = None,
    tokenizer: Tokenizer | None = None,
    truncation: Truncation = "error",
    max_draft_tokens: int = MAX_DRAFT_TOKENS,
) -> Iterator[SpeculativeEvent]:
    """Yield the events of `decode` with fewer passes where the text repeats itself; the last event has statistics.

    Only for models whose decode state can be cropped: Transformers, not recurrent models.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> *_, last = speculative_decode(model, [[1, 2, 3] * 4], SamplingParams(max_tokens=20))
    >>> last.num_generated, last.num_passes < 20
    (20, True)
    """
    _check_croppable(model)
    sequences = []
    for opened in open_sequences(model, prompts, sampling, source=source, tokenizer=tokenizer, truncation=truncation):
        if isinstance(opened, Ended):
            yield opened
        else:
            sequences.append(_SpeculativeSequence(opened, NgramProposer(opened.ids), max_draft_tokens))
    step, eos = 0, model.config.special_tokens.eos
    while running := [sequence for sequence in sequences if not sequence.sequence.finished]:
        began = time.perf_counter()
        rows, logits = _forward_pass(model, running)
        yield Pass(step, rows, time.perf_counter() - began)
        for sequence, draft_logits in zip(running, logits, strict=True):
            yield from sequence.verify(draft_logits, eos)
        step += 1
    drafted, accepted = sum(seq.num_drafted for seq in sequences), sum(seq.num_accepted for seq in sequences)
    yield SpeculationStats(drafted, accepted, sum(seq.num_generated for seq in sequences), step)


@dataclass(eq=False)
class _SpeculativeSequence:
    """Sequence with draft tokens; drafts get shorter after a rejection and longer after full acceptance."""

    sequence: DecodingSequence
    proposer: NgramProposer
    max_draft_tokens: int
    draft_length: int = 4
    num_drafted: int = 0
    num_accepted: int = 0
    draft: list[int] = field(default_factory=list)

    @property
    def num_generated(self) -> int:
        return self.sequence.num_generated

    def next_input(self) -> list[int]:
        """Return the next input: uncomputed tokens and a draft; no draft during prefill."""
        remaining = self.sequence.max_new_tokens - self.sequence.num_generated - 1
        uncomputed = self.sequence.ids[self.sequence.num_computed :]
        self.draft = (
            self.proposer.propose(min(self.draft_length, self.max_draft_tokens, remaining))
            if self.sequence.num_generated
            else []
        )
        return uncomputed + self.draft

    def verify(self, logits: Tensor, eos: tuple[int, ...]) -> Iterator[Token | Ended]:
        """Sample after each draft token until one is rejected."""
        sequence, num_accepted = self.sequence, 0
        sequence.num_computed = len(sequence.ids)
        for next_logits, draft_token in zip(logits, [*self.draft, None], strict=True):
            yield from sequence.sample_next(next_logits, eos)
            if sequence.finished or sequence.ids[-1] != draft_token:
                break
            num_accepted += 1
            sequence.num_computed += 1
        self._update(num_accepted)

    def _update(self, num_accepted: int) -> None:
        for id in self.sequence.ids[len(self.proposer.ids) :]:
            self.proposer.append(id)
        if self.draft:
            self.num_drafted += len(self.draft)
            self.num_accepted += num_accepted
            self.draft_length = (
                min(2 * self.draft_length, self.max_draft_tokens)
                if num_accepted == len(self.draft)
                else max(num_accepted, 2)
            )
        self.sequence.state.crop(self.sequence.num_computed)


@torch.inference_mode()
def _forward_pass(
    model: Model, sequences: list[_SpeculativeSequence]
) -> tuple[tuple[tuple[int, int, int], ...], list[Tensor]]:
    """Run new and draft tokens of all sequences in one forward pass; a prompt gives only its last logits."""
    inputs = [sequence.next_input() for sequence in sequences]
    rows = tuple(
        (seq.sequence.index, len(new), seq.sequence.num_computed) for seq, new in zip(sequences, inputs, strict=True)
    )
    states = [sequence.sequence.state for sequence in sequences]
    if not any(sequence.draft for sequence in sequences):
        return rows, [logits[None] for logits in model.forward_varlen(inputs, states)]
    return rows, model.forward_varlen(inputs, states, all_positions=True)


def _check_croppable(model: Model) -> None:
    source = torch.zeros(1, 1, dtype=torch.long, device=model.device) if model.is_encoder_decoder else None
    with torch.inference_mode():
        can_crop = isinstance(model.new_state(source=source), KVCache)
    if not can_crop:
        raise InvalidInput(
            f"A {type(model.config).kind} model cannot drop rejected draft tokens from its state.",
            hint="Generate without speculation.",
        )
