"""Quantisation: within the stated error, NaN preserved, compact."""

import base64
import zlib

import numpy as np
import pytest
from tests.quantised import unpack

from peasy.render.custom_elements import exact_decimals, quantise, top_keys


@pytest.mark.parametrize("fine", [0, 10**6])
@pytest.mark.parametrize("low", [0.0, -3.0])
def test_every_number_is_within_the_stated_error(fine, low):
    values = np.random.default_rng(1).random((3, 40, 40)) * (2 - low) + low
    packed = quantise(values, fine)
    assert packed["bytes"] == (2 if fine else 1)
    assert np.abs(unpack(packed) - values).max() <= packed["error"] * 1.001
    assert packed["error"] < (1e-4 if fine else 0.02)


def test_the_largest_keys_are_ranked_by_exact_numbers():
    """A long causal map has one byte per number, in which most weights tie; float32 tells them apart."""
    size = 300
    scores = np.random.default_rng(3).normal(size=(4, 4, size, size)) / 4
    weights = np.where(np.tri(size, dtype=bool), np.exp(scores), 0)
    weights = np.where(np.tri(size, dtype=bool), weights / weights.sum(-1, keepdims=True), np.nan)
    packed = top_keys(weights)
    keys = np.frombuffer(zlib.decompress(base64.b64decode(packed["keys"])), "<u4").reshape(4, 4, size, 8)
    expected = np.argsort(-np.nan_to_num(weights, nan=-1), axis=-1, kind="stable")[..., :8]
    assert np.array_equal(keys[:, :, 8:], expected[:, :, 8:])
    numbers = quantise(weights)
    assert numbers["bytes"] == 1
    by_code = np.argsort(-np.nan_to_num(unpack(numbers), nan=-1), axis=-1, kind="stable")[..., :8]
    assert not np.array_equal(by_code[:, :, 8:], expected[:, :, 8:])  # inverse: the codes rank other keys first


def test_non_finite_numbers_become_nan():
    values = np.array([0.0, np.nan, 1.0, np.inf, -np.inf])
    assert np.array_equal(np.isnan(unpack(quantise(values))), ~np.isfinite(values))


@pytest.mark.parametrize("values", [np.full((2, 2), 0.25), np.full((2, 2), np.nan), np.zeros((0, 3))])
def test_constant_nan_and_empty_arrays(values):
    packed = quantise(values)
    assert packed["error"] == 0.0
    assert np.array_equal(unpack(packed), values, equal_nan=True)


def test_attention_of_many_heads_is_small():
    weights = np.tril(np.random.default_rng(2).dirichlet(np.full(128, 0.05), size=(12, 12, 128)))
    assert len(quantise(weights)["data"]) < 1.5e6 < weights.astype(np.float32).nbytes / 6


def test_decimals_are_within_the_error():
    for error in (0.002, 7.6e-6, 0.04, 3.0):
        assert 10.0 ** -exact_decimals(error, 4) / 2 >= error or exact_decimals(error, 4) in (0, 4)
