"""The verdict on recall distance and speed follows from the numbers."""

from peasy.experiments import long_or_parallel as lop
from peasy.experiments.statistics import Outcome


def test_short_run_measures_every_architecture(tmp_path):
    result = lop.run(steps=2, probes=6, distances=(6, 8), lengths=(16, 32))
    assert set(result.numbers) == set(lop.KINDS)
    for kind in result.numbers.values():
        assert set(kind["recall"]) == {6, 8}
        assert all(rate > 0 for rate in kind["tokens_per_second"].values())
    sizes = [kind["parameters"] for name, kind in result.numbers.items() if name != "n-gram"]
    assert max(sizes) < 1.5 * min(sizes)
    recall = [part for part in result.comparisons if "recalls" in part.name]
    assert all(part.outcome is Outcome.NOT_SUPPORTED for part in recall), "two steps are too few for any recall"


def kind(near, far, step, seconds=1e-3, layers=2):
    hits = {6: (True,) * near + (False,) * (20 - near), 48: (True,) * far + (False,) * (20 - far)}
    return lop.ArchitectureResult(1000, hits, layers, {32: (1e-2,) * 8, 512: (step,) * 8}, {32: 1e-3, 512: seconds})


def concluded(ours, rnn):
    others = {"n-gram": kind(10, 10, 1e-3), "CNN": kind(20, 10, 1e-2)}
    return lop.conclude({**others, "RNN": rnn, "Transformer": ours}, 0)


def test_verdict_follows_the_numbers():
    far, near = kind(20, 20, 1e-2), kind(20, 11, 3e-2)
    assert concluded(far, near).outcome is Outcome.SUPPORTED
    assert concluded(near, far).outcome is Outcome.NOT_SUPPORTED
    assert concluded(kind(20, 20, 5e-2), near).outcome is Outcome.CONDITIONS, "long, but slower than the RNN"
    many_layers = kind(20, 20, 1e-2, layers=2000)
    assert concluded(many_layers, near).outcome is Outcome.NOT_SUPPORTED, "as many sequential steps as the RNN"


def test_verdict_reports_where_the_rnn_is_better():
    result = concluded(kind(20, 20, 1e-2, seconds=5e-3), kind(20, 20, 3e-2))
    assert "in generation the RNN is cheaper" in result.verdict
    assert "the RNN recalls as far" in result.verdict


def test_recall_distance_ends_where_chance_explains_the_hits():
    def reached(*counts):
        distances = zip((6, 12, 24), counts, strict=False)
        return lop.ArchitectureResult(1, {d: (True,) * n + (False,) * (20 - n) for d, n in distances}).recall_distance

    assert reached(20, 11, 20) == 6
    assert reached(14) == 0
    assert reached(15) == 6


def test_probe_has_the_requested_distance():
    probe = lop.validation_probes(12, 1, 0)[0]
    words = probe.text.split()
    given = [at for at, word in enumerate(words[:-2]) if word == words[-1]]
    assert len(words) - 1 - given[0] == 12
