"""Counter-based seeding: randomness depends only on seed and step, so no random state is saved."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


def mixed(seed: int, *where: int) -> int:
    """Derive a seed from a seed and a position.

    >>> mixed(1, 2) == mixed(1, 2), mixed(1, 2) == mixed(2, 1)
    (True, False)
    """
    return int(np.random.SeedSequence([seed % 2**64, *where]).generate_state(1, np.uint64)[0])


def generator(seed: int, *where: int) -> torch.Generator:
    """Return a generator seeded for one position."""
    return torch.Generator().manual_seed(mixed(seed, *where))


@contextlib.contextmanager
def drawing(seed: int, step: int) -> Iterator[None]:
    """Seed torch's global generator (dropout) for one step inside the block; restore it afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(mixed(seed, step))
        yield
