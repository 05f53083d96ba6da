"""Batches: pure functions of the position, every sample once per epoch, correct padding masks."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as given_by
from hypothesis import strategies as st

from peasy.datasets import TextPair
from peasy.datasets.batches import (
    bucketed_indices,
    num_windows,
    padded_batch,
    rank_slice,
    sequential_windows,
    window_batch,
)
from peasy.datasets.shards import prepare_shards
from peasy.errors import InvalidInput


@pytest.fixture
def numbers(given, tokenizer, tmp_path):
    """Column of digits that count up, so that tokens show their positions."""
    text = "".join(str(n % 10) for n in range(1003))
    return prepare_shards(given("text", train=[text]), tokenizer, tmp_path / "shards").column()


def test_targets_are_the_next_tokens(numbers):
    batch = window_batch(numbers, 16, 8, seed=1, position=0)
    assert batch.inputs.shape == batch.targets.shape == (8, 16)
    assert (batch.inputs[:, 1:] == batch.targets[:, :-1]).all()
    assert batch.padding_mask.all()


@pytest.mark.parametrize("context", [1, 7, 64, 333, 501, 1003])
def test_epoch_has_each_window_once(numbers, context):
    size = num_windows(numbers, context)
    batch = window_batch(numbers, context, size, seed=3, position=size)
    assert sorted(batch.sample_indices) == list(range(size))
    assert size >= (len(numbers) - 1) // context - 1


def test_window_starts_differ_between_epochs(numbers):
    size = num_windows(numbers, 50)
    starts = {window_batch(numbers, 50, size, seed=3, position=e * size).inputs[0][0] for e in range(12)}
    assert len(starts) > 3


def test_batch_may_cross_epochs(numbers):
    size = num_windows(numbers, 100)
    assert len(window_batch(numbers, 100, 2 * size, seed=0, position=size - 1).sample_indices) == 2 * size


def test_too_few_tokens_are_rejected(numbers):
    with pytest.raises(InvalidInput, match="too few for one window"):
        window_batch(numbers, 2000, 1, seed=0, position=0)


@pytest.mark.parametrize("context", [1, 10, 64, 5000])
def test_sequential_windows_cover_every_target_once(numbers, context):
    batches = [(b.targets[b.padding_mask], b.inputs[b.padding_mask]) for b in sequential_windows(numbers, context, 4)]
    targets = np.concatenate([target for target, _ in batches])
    whole = numbers.windows(np.array([0]), len(numbers))[0]
    assert (targets == whole[1:]).all()
    assert (np.concatenate([given for _, given in batches]) == whole[:-1]).all()


def test_padding_mask_and_special_tokens(pairs, tokenizer, tmp_path):
    shards = prepare_shards(pairs, tokenizer, tmp_path / "shards")
    samples = np.array([0, 12, 3])
    batch = padded_batch(shards.column("train", "source"), samples, pad=0, bos=2, eos=3)
    assert batch.ids.shape == (3, 15)
    for row, padding_mask, sample in zip(batch.ids, batch.padding_mask, samples, strict=True):
        length = 1 + sample % 13
        assert row[0] == 2
        assert row[length + 1] == 3
        assert padding_mask.sum() == length + 2
        assert (row[~padding_mask] == 0).all()
        assert tokenizer.decode(row[1 : length + 1]) == "s" * length


def test_empty_documents_are_padding(given, tokenizer, tmp_path):
    shards = prepare_shards(given("text", train=["", "a", ""]), tokenizer, tmp_path / "shards")
    assert padded_batch(shards.column(), np.array([0, 1, 2])).padding_mask.sum(axis=1).tolist() == [1, 2, 1]  # eos


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given_by(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.integers(0, 99))
def test_bucketing_gives_every_pair_equally_often(shards_of_pairs, batch, world, seed):
    """Over whole pools each pair occurs equally often, for any world size."""
    batch, size = batch * world, 131
    steps = 64
    seen = np.concatenate(
        [
            bucketed_indices(shards_of_pairs, batch, seed=seed, position=step * batch)[
                rank_slice(batch, world_size=world, rank=rank)
            ]
            for step in range(steps)
            for rank in range(world)
        ]
    )
    counts = np.bincount(seen, minlength=size)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == steps * batch


@pytest.fixture(scope="module")
def shards_of_pairs(tmp_path_factory, tokenizer, given):
    rows = [TextPair("s" * (1 + n % 13), "t" * (1 + n % 7)) for n in range(131)]
    return prepare_shards(given("pairs", train=rows), tokenizer, tmp_path_factory.mktemp("pairs") / "shards")


def test_batches_have_similar_lengths(shards_of_pairs):
    spread = []
    for step in range(32):
        column = shards_of_pairs.column("train", "source")
        lengths = column.lengths(bucketed_indices(shards_of_pairs, 8, seed=0, position=8 * step))
        spread.append(lengths.max() - lengths.min())
    assert np.mean(spread) < 4  # drawn at random it would be about 9


def test_batch_depends_only_on_position(shards_of_pairs):
    later = bucketed_indices(shards_of_pairs, 8, seed=4, position=80)
    for step in (0, 50, 10):
        again = bucketed_indices(shards_of_pairs, 8, seed=4, position=8 * step)
    assert (again == later).all()


def test_unaligned_positions_are_rejected(shards_of_pairs):
    with pytest.raises(InvalidInput, match="not a multiple of the batch size"):
        bucketed_indices(shards_of_pairs, 8, seed=4, position=3)
