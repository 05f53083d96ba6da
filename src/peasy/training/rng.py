"""Counter-based seeding: randomness depends only on seed and step, so no random state is saved."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


def derive_seed(seed: int, *counters: int) -> int:
    """Derive a seed from a seed and a position.

    >>> derive_seed(1, 2) == derive_seed(1, 2), derive_seed(1, 2) == derive_seed(2, 1)
    (True, False)
    """
    return int(np.random.SeedSequence([seed % 2**64, *counters]).generate_state(1, np.uint64)[0])


def seeded_generator(seed: int, *counters: int) -> torch.Generator:
    """Return a generator seeded for one position."""
    return torch.Generator().manual_seed(derive_seed(seed, *counters))


@contextlib.contextmanager
def seeded_step(seed: int, step: int) -> Iterator[None]:
    """Seed torch's global generator (dropout) for one step inside the block; restore it afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive_seed(seed, step))
        yield
