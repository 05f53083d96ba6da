"""Chance from arithmetic: what is drawn depends on the seed and the step alone, so no random state is kept."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


def mixed(seed: int, *where: int) -> int:
    """One seed out of a seed and a place.

    >>> mixed(1, 2) == mixed(1, 2), mixed(1, 2) == mixed(2, 1)
    (True, False)
    """
    return int(np.random.SeedSequence([seed % 2**64, *where]).generate_state(1, np.uint64)[0])


def generator(seed: int, *where: int) -> torch.Generator:
    """Random numbers of one place."""
    return torch.Generator().manual_seed(mixed(seed, *where))


@contextlib.contextmanager
def drawing(seed: int, step: int) -> Iterator[None]:
    """Inside, torch's own random numbers (dropout) are those of this step; outside, nothing has changed."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(mixed(seed, step))
        yield
