"""Generation with and without a KV cache is equal; a faulty or slow cache changes the verdict."""

from peasy.experiments import cache
from peasy.experiments.statistics import Outcome
from peasy.generation.cache_benchmark import CacheBenchmarkStep
from peasy.nn.kv_cache import LayerKVCache


def test_kv_cache_does_not_change_tokens(decoder):
    result = cache.run(model=decoder, max_tokens=24, repeats=1)
    assert result.numbers["tokens_equal"], result.verdict
    assert "the same 24 tokens" in result.verdict
    assert result.numbers["bytes_per_token"] == 2 * 2 * 16 * 4  # keys and values, two layers, 16 wide, float32


def test_faulty_cache_changes_verdict(decoder, monkeypatch):
    extend = LayerKVCache.extend

    def lossy_extend(self, key, value):
        keys, values = extend(self, key, value)
        return keys, values * (0.5 if self.length > 4 and key.shape[2] == 1 else 1.0)

    monkeypatch.setattr(LayerKVCache, "extend", lossy_extend)
    result = cache.run(model=decoder, max_tokens=12, repeats=1)
    assert result.outcome is Outcome.NOT_SUPPORTED
    assert "NOT the same" in result.verdict


def steps(seconds, uncached, count=12):
    return [CacheBenchmarkStep(cached, 1, 5, 50, seconds, uncached, 1e-7) for cached in range(count)]


def test_time_of_the_steps_decides():
    pieces = ["a"] * 12
    assert cache.conclude(steps(1e-3, 4e-3), True, 64, pieces, 0).outcome is Outcome.SUPPORTED
    assert cache.conclude(steps(4e-3, 1e-3), True, 64, pieces, 0).outcome is Outcome.NOT_SUPPORTED
    assert cache.conclude(steps(1e-3, 1e-3), True, 64, pieces, 0).outcome is Outcome.NOT_SUPPORTED
    assert cache.conclude(steps(1e-3, 4e-3, 4), True, 64, pieces, 0).outcome is Outcome.CANNOT_TELL
