"""Equal bits, tried: texts in any order and any pieces against each text alone."""

import random

import torch
from tests.models.zoo import some_ids

from peasy.models.protocol import Model


def one_trial(model: Model, draw: random.Random) -> bool:
    """Some texts in some order and some pieces: is every score the bits of its text alone, read at once?"""
    texts = [[draw.randrange(1, 60) for _ in range(draw.randint(1, 12))] for _ in range(draw.randint(1, 6))]
    sources = [{"source": some_ids(1, 3 + index, seed=index)} if model.reads_source else {} for index in range(6)]
    alone = [model.read([text], [model.start(**sources[i])], every=True)[0] for i, text in enumerate(texts)]
    memories, at = [model.start(**sources[i]) for i in range(len(texts))], [0] * len(texts)
    found: list[list[torch.Tensor]] = [[] for _ in texts]
    while waiting := [i for i, text in enumerate(texts) if at[i] < len(text)]:
        chosen = draw.sample(waiting, draw.randint(1, len(waiting)))
        pieces = [texts[i][at[i] : at[i] + draw.randint(1, 12)] for i in chosen]
        for i, scores in zip(chosen, model.read(pieces, [memories[i] for i in chosen], every=True), strict=True):
            found[i].append(scores)
            at[i] += len(scores)
    return all(torch.equal(torch.cat(mine), own) for mine, own in zip(found, alone, strict=True))
