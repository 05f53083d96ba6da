"""Stateless shuffle: each sample exactly once per epoch, for any world size and any restart."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.datasets import batches
from peasy.datasets.batches import permute, rank_slice, shuffled_indices
from peasy.errors import InvalidInput

settings.register_profile("relaxed", deadline=None, max_examples=40)  # other work shares the machine
RELAXED = settings.get_profile("relaxed")

SIZES = st.one_of(st.integers(1, 70), st.integers(71, 5000), st.sampled_from([4**5, 4**5 - 1, 4**5 + 1]))
SEEDS = st.integers(0, 2**63)


@RELAXED
@given(SIZES, SEEDS, st.integers(0, 100))
def test_epoch_contains_every_sample_once(size, seed, epoch):
    assert sorted(permute(size, range(size), seed=seed, epoch=epoch)) == list(range(size))


@RELAXED
@given(SIZES, SEEDS, st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 6, 12]), st.data())
def test_no_sample_is_skipped_or_repeated_after_restart(size, seed, epochs, world, data):
    """A run resumed with another world size sees the same samples."""
    batch, position, seen = 12, 0, []
    whole = epochs * size
    stop = data.draw(st.integers(0, whole)) // batch * batch
    other = data.draw(st.sampled_from([1, 2, 3, 4, 6, 12]))
    while position < whole:
        processes = world if position < stop else other
        samples = shuffled_indices(size, np.arange(position, position + batch), seed=seed)
        for rank in range(processes):
            seen.extend(samples[rank_slice(batch, world_size=processes, rank=rank)])
        position += batch
    counts = np.bincount(seen[:whole], minlength=size)
    assert (counts == epochs).all()


def test_epochs_and_seeds_give_different_permutations():
    first, second, other = (permute(1000, range(1000), seed=s, epoch=e) for s, e in ((0, 0), (0, 1), (1, 0)))
    assert (first == second).sum() < 10
    assert (first == other).sum() < 10
    assert (np.abs(np.diff(first)) == 1).sum() < 10


def test_every_index_is_equally_likely():
    """Over many epochs a sample occurs at every index uniformly."""
    indices_drawn = np.array([permute(10, [0, 9], seed=5, epoch=e) for e in range(2000)])
    for column in indices_drawn.T:
        assert 140 < np.bincount(column, minlength=10).min() <= np.bincount(column, minlength=10).max() < 260


def test_random_access_in_constant_memory():
    size = 10**12
    positions = np.array([0, 1, size - 1, size, 3 * size + 17])
    together = shuffled_indices(size, positions, seed=7)
    assert [int(shuffled_indices(size, [p], seed=7)[0]) for p in positions] == together.tolist()
    assert ((together >= 0) & (together < size)).all()


def test_order_is_equal_in_another_process():
    code = "from peasy.datasets.batches import shuffled_indices as f; print(f(1000, range(5), seed=11).tolist())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(shuffled_indices(1000, range(5), seed=11).tolist())


def test_broken_permutation_is_detected(monkeypatch):
    """The inverse: without cycle walking, samples leave the range."""
    monkeypatch.setattr(batches, "_feistel", lambda value, half, keys: value // np.uint64(2))
    with pytest.raises(AssertionError):
        test_epoch_contains_every_sample_once.hypothesis.inner_test(50, 1, 0)


@pytest.mark.parametrize(("batch", "world", "rank"), [(5, 2, 0), (4, 2, 2), (4, 2, -1), (0, 1, 0)])
def test_invalid_rank_slices_are_rejected(batch, world, rank):
    with pytest.raises(InvalidInput):
        rank_slice(batch, world_size=world, rank=rank)


@pytest.mark.parametrize(("size", "positions"), [(0, [0]), (5, [-1])])
def test_invalid_positions_are_rejected(size, positions):
    with pytest.raises(InvalidInput):
        shuffled_indices(size, positions, seed=0)
