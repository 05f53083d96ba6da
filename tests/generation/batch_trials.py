"""Randomised check of batch invariance: sequences in any order and chunks against each sequence alone."""

import random

import torch
from tests.models.tiny_models import some_ids

from peasy.models.protocol import Model


def one_trial(model: Model, draw: random.Random) -> bool:
    """True if random batches and chunks give the same bits as each sequence alone in one pass."""
    sequences = [[draw.randrange(1, 60) for _ in range(draw.randint(1, 12))] for _ in range(draw.randint(1, 6))]
    sources = [{"source": some_ids(1, 3 + index, seed=index)} if model.is_encoder_decoder else {} for index in range(6)]
    alone = [
        model.forward_varlen([sequence], [model.new_state(**sources[i])], all_positions=True)[0]
        for i, sequence in enumerate(sequences)
    ]
    states, positions = [model.new_state(**sources[i]) for i in range(len(sequences))], [0] * len(sequences)
    batched: list[list[torch.Tensor]] = [[] for _ in sequences]
    while pending := [i for i, sequence in enumerate(sequences) if positions[i] < len(sequence)]:
        batch = draw.sample(pending, draw.randint(1, len(pending)))
        chunks = [sequences[i][positions[i] : positions[i] + draw.randint(1, 12)] for i in batch]
        for i, logits in zip(
            batch, model.forward_varlen(chunks, [states[i] for i in batch], all_positions=True), strict=True
        ):
            batched[i].append(logits)
            positions[i] += len(logits)
    return all(torch.equal(torch.cat(chunks), whole) for chunks, whole in zip(batched, alone, strict=True))
