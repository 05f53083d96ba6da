"""Remembered or read again: the same; a cache that loses something turns the verdict."""

from peasy.generation.saving import Step
from peasy.nn.cache import LayerCache
from peasy.workbench.experiments import cache


def test_the_cache_changes_nothing_but_the_time(decoder):
    found = cache.run(model=decoder, tokens=24, rounds=1)
    assert found.numbers["same"], found.verdict
    assert "the same 24 tokens" in found.verdict
    assert found.numbers["bytes_per_token"] == 2 * 2 * 16 * 4  # keys and values, two layers, 16 wide, float32


def test_a_cache_that_loses_something_turns_the_verdict(decoder, monkeypatch):
    real = LayerCache.extend

    def forgetful(self, key, value):
        keys, values = real(self, key, value)
        return keys, values * (0.5 if self.length > 4 and key.shape[2] == 1 else 1.0)

    monkeypatch.setattr(LayerCache, "extend", forgetful)
    found = cache.run(model=decoder, tokens=6, rounds=1)
    assert not found.holds
    assert "NOT the same" in found.verdict


def steps(seconds, without):
    return [Step(kept, 1, 5, 50, seconds, without, 1e-7) for kept in range(12)]


def test_a_cache_that_saves_no_time_is_no_gain():
    pieces = ["a"] * 12
    assert cache.conclude(steps(1e-3, 4e-3), True, 64, pieces, 0).holds
    assert not cache.conclude(steps(4e-3, 1e-3), True, 64, pieces, 0).holds
