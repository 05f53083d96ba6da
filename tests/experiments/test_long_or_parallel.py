"""The verdict on recall distance and speed follows from the numbers."""

from peasy.experiments import long_or_parallel as lop


def test_short_run_measures_every_architecture(tmp_path):
    result = lop.run(steps=2, probes=4, distances=(6, 8), lengths=(16, 32))
    assert set(result.numbers) == set(lop.KINDS)
    for kind in result.numbers.values():
        assert set(kind["recall"]) == {6, 8}
        assert all(rate > 0 for rate in kind["tokens_per_second"].values())
    sizes = [kind["parameters"] for name, kind in result.numbers.items() if name != "n-gram"]
    assert max(sizes) < 1.5 * min(sizes)
    assert not result.holds  # two steps are too few for any recall


def kind(recall, rate, seconds=1e-3):
    recalled = dict(zip((6, 48), recall, strict=True))
    return lop.ArchitectureResult(1000, recalled, 0.9, 2, {32: 1e5, 512: rate}, {32: 1e-3, 512: seconds})


def concluded(ours, rnn):
    return lop.conclude({"n-gram": kind((0.5, 0.5), 1e6), "RNN": rnn, "Transformer": ours}, 0)


def test_verdict_follows_the_numbers():
    far, near = kind((1.0, 1.0), 9e4), kind((1.0, 0.6), 3e4)
    assert concluded(far, near).holds
    assert "is both long-range and parallel" in concluded(far, near).verdict
    swapped = concluded(near, far)
    assert not swapped.holds
    assert "is neither here" in swapped.verdict


def test_verdict_reports_where_the_rnn_is_better():
    result = concluded(kind((1.0, 1.0), 9e4, seconds=5e-3), kind((1.0, 1.0), 3e4))
    assert "in generation the RNN is cheaper" in result.verdict
    assert "the RNN recalls as far" in result.verdict


def test_recall_distance_ends_at_first_miss():
    assert lop.ArchitectureResult(1, {6: 1.0, 12: 0.5, 24: 1.0}, 0.0).recall_distance == 6
    assert lop.ArchitectureResult(1, {6: 0.5}, 0.0).recall_distance == 0


def test_probe_has_the_requested_distance():
    probe = lop.validation_probes(12, 1, 0)[0]
    words = probe.text.split()
    given = [at for at, word in enumerate(words[:-2]) if word == words[-1]]
    assert len(words) - 1 - given[0] == 12
