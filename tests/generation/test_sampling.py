"""Chances: filters as elsewhere, draws that follow them, and nothing that has no chance."""

import math

import pytest
import torch
from transformers.generation import logits_process as theirs

from peasy.errors import InvalidInput
from peasy.generation import sampling as room
from peasy.generation.sampling import Chooser, NoChoice, Sampling, draw

SIZE = 97


def some_scores(seed=0, size=SIZE):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3


def their_chances(scores, processors, ids=(0,)):
    scores, ids = scores[None].double(), torch.tensor([list(ids)])
    for processor in processors:
        scores = processor(ids, scores)
    return torch.softmax(scores, dim=-1)[0]


WAYS = {
    "temperature": ({"temperature": 0.7}, [theirs.TemperatureLogitsWarper(0.7)]),
    "top-k": ({"temperature": 1.0, "top_k": 5}, [theirs.TopKLogitsWarper(5)]),
    "top-p": ({"temperature": 1.0, "top_p": 0.6}, [theirs.TopPLogitsWarper(0.6)]),
    "top-p of nothing": ({"temperature": 1.0, "top_p": 0.0}, [theirs.TopPLogitsWarper(1e-9)]),
    "min-p": ({"temperature": 1.0, "min_p": 0.1}, [theirs.MinPLogitsWarper(0.1)]),
    "all": (
        {"temperature": 1.7, "top_k": 30, "top_p": 0.8, "min_p": 0.05},
        [
            theirs.TemperatureLogitsWarper(1.7), theirs.TopKLogitsWarper(30),
            theirs.TopPLogitsWarper(0.8), theirs.MinPLogitsWarper(0.05),
        ],
    ),
    "hot": ({"temperature": 50.0, "top_p": 0.9}, [theirs.TemperatureLogitsWarper(50.0), theirs.TopPLogitsWarper(0.9)]),
    "repetition": (
        {"temperature": 0.9, "repetition_penalty": 1.3},
        [theirs.RepetitionPenaltyLogitsProcessor(1.3), theirs.TemperatureLogitsWarper(0.9)],
    ),
    "bias": (
        {"temperature": 1.0, "logit_bias": {3: 5.0, 4: -2.5, 9: -math.inf}},
        [theirs.SequenceBiasLogitsProcessor({(3,): 5.0, (4,): -2.5, (9,): -math.inf})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_chances_are_those_of_the_other_road(way):
    ours, processors = WAYS[way]
    for seed in range(20):
        scores, prompt = some_scores(seed).double(), [seed, seed + 7, 2 * seed + 1, 5]
        found = Chooser(Sampling(**ours), prompt).probabilities(scores)
        expected = their_chances(scores, processors, prompt)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        assert torch.equal(found == 0, expected == 0)


def test_the_order_of_the_filters_matters():
    """The inverse: the same filters the other way round give other chances."""
    ours, processors = WAYS["all"]
    found = Chooser(Sampling(**ours)).probabilities(some_scores())
    assert not torch.allclose(found, their_chances(some_scores(), processors[::-1]))


def test_presence_and_frequency():
    chooser = Chooser(Sampling(temperature=1.0, presence_penalty=0.5, frequency_penalty=0.25), prompt=[7])
    for id in (3, 3, 4):
        chooser.take(id)
    expected = some_scores().double()
    expected[3] -= 0.5 + 0.25 * 2
    expected[4] -= 0.5 + 0.25
    torch.testing.assert_close(chooser.probabilities(some_scores()), torch.softmax(expected, -1))


def test_repetition_counts_what_was_written_too():
    chooser = Chooser(Sampling(temperature=1.0, repetition_penalty=2.0), prompt=[7])
    chooser.take(5)
    processor = theirs.RepetitionPenaltyLogitsProcessor(2.0)
    torch.testing.assert_close(chooser.probabilities(some_scores()), their_chances(some_scores(), [processor], (7, 5)))


def test_greedy_is_the_best_after_penalties():
    scores = torch.tensor([1.0, 3.0, 2.9, -1.0])
    assert Chooser(Sampling()).choose(scores).id == 1
    assert Chooser(Sampling(repetition_penalty=1.5), [1]).choose(scores).id == 2
    assert Chooser(Sampling(logit_bias={3: 10})).choose(scores).id == 3
    chooser = Chooser(Sampling(frequency_penalty=0.2))
    assert [chooser.choose(scores).id for _ in range(4)] == [1, 2, 1, 2]
    assert Chooser(Sampling()).probabilities(scores).tolist() == [0, 1, 0, 0]


def test_scores_are_never_changed():
    scores = some_scores()
    before = scores.clone()
    Chooser(Sampling(temperature=0.5, top_k=3, repetition_penalty=2.0, logit_bias={1: 4.0}), [1, 2]).choose(scores)
    assert torch.equal(scores, before)


# Draws.


def draws(chooser, scores, count):
    return torch.bincount(torch.tensor([chooser.choose(scores).id for _ in range(count)]), minlength=len(scores))


def spoiled(size=SIZE):
    """Scores with many tokens that have no chance, at both ends and in between."""
    scores = some_scores(4, size)
    scores[::3] = -torch.inf
    scores[0] = scores[-1] = -torch.inf
    return scores


def test_draws_follow_the_chances():
    """Within four and a half standard deviations for every token."""
    chooser, count = Chooser(Sampling(temperature=1.5, top_p=0.95, seed=2)), 4_000
    chances = chooser.probabilities(some_scores())
    found = draws(chooser, some_scores(), count) / count
    assert ((found - chances).abs() <= 4.5 * (chances * (1 - chances) / count).sqrt()).all()


def test_what_has_no_chance_is_never_drawn():
    chances, ways = None, (Sampling(temperature=5.0), Sampling(temperature=2.0, top_k=20, top_p=0.9, min_p=0.01))
    for way in ways:
        chooser = Chooser(way)
        chances = chooser.probabilities(spoiled())
        met = draws_at_once(chances, 50_000, seed=1)
        assert not met[chances == 0].any()
        assert not draws(chooser, spoiled(), 500)[chances == 0].any()


@pytest.mark.slow
def test_what_has_no_chance_is_never_drawn_in_ten_million():
    chances = Chooser(Sampling(temperature=5.0)).probabilities(spoiled())
    met = sum(draws_at_once(chances, 1_000_000, seed) for seed in range(10))
    assert not met[chances == 0].any()
    assert met.sum() == 10_000_000


def draws_at_once(chances, count, seed):
    """Many draws by the same rule, and the same draws one by one for a part of them."""
    at = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    reached = chances.cumsum(0)
    found = torch.searchsorted(reached, at * reached[-1], right=True)
    assert found[:500].tolist() == [draw(chances, float(one)) for one in at[:500]]
    return torch.bincount(found, minlength=len(chances))


@pytest.mark.parametrize("at", [0.0, 5e-324, 0.25, 0.5, 1 - 2**-53, 1.0])
def test_the_ends_of_the_way_meet_nothing_without_a_chance(at):
    chances = torch.tensor([0.0, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0], dtype=torch.float64)
    assert chances[draw(chances, at)] > 0
    many = torch.softmax(spoiled(5000).double(), -1)
    assert many[draw(many, at)] > 0


def test_a_draw_that_stops_at_the_border_is_noticed(monkeypatch):
    """The inverse: the first whose end is not before `at` has no chance when `at` is 0."""
    search = torch.searchsorted
    monkeypatch.setattr(room.torch, "searchsorted", lambda *a, right: search(*a))
    chances = torch.tensor([0.0, 0.5, 0.5])
    assert chances[draw(chances, 0.0)] == 0


def test_the_seed_decides_and_nobody_else():
    scores = [some_scores(seed) for seed in range(30)]

    def write(seed, others=0):
        chooser, rest = Chooser(Sampling(temperature=1.0, seed=seed)), [Chooser(Sampling(temperature=1.0))] * others
        found = []
        for each in scores:
            for other in rest:
                other.choose(each)
            found.append(chooser.choose(each).id)
        return found

    assert write(1) == write(1) == write(1, others=3)
    assert write(1) != write(2)


def test_tiny_and_huge_scores_are_survived():
    for factor in (1e-30, 1e30):
        for temperature in (1e-300, 1e-6, 1.0, 100.0):
            chances = Chooser(Sampling(temperature=temperature)).probabilities(some_scores() * factor)
            assert torch.isfinite(chances).all()
            assert chances.sum() == pytest.approx(1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scores_that_are_no_numbers_are_an_error(bad, temperature):
    scores = some_scores()
    scores[11] = bad
    with pytest.raises(NoChoice, match="no finite numbers"):
        Chooser(Sampling(temperature=temperature)).choose(scores)
    with pytest.raises(NoChoice, match="minus infinity"):
        Chooser(Sampling(temperature=temperature)).choose(torch.full((5,), -torch.inf))


def test_log_probabilities_are_the_models_own():
    chosen = Chooser(Sampling(temperature=0.1, top_k=2, repetition_penalty=2.0, logprobs=3), [1]).choose(some_scores())
    logs = torch.log_softmax(some_scores().double(), -1)
    assert chosen.logprob == pytest.approx(float(logs[chosen.id]))
    assert [c.id for c in chosen.candidates] == logs.topk(3).indices.tolist()
    assert Chooser(Sampling()).choose(some_scores())[1:] == (None, ())
    only = Chooser(Sampling(logprobs=5)).choose(torch.tensor([0.0, -torch.inf]))
    assert [c.id for c in only.candidates] == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0}, {"temperature": -1.0}, {"temperature": math.nan}, {"temperature": math.inf}, {"top_k": 0},
        {"top_p": -0.1}, {"top_p": 1.1}, {"top_p": math.nan}, {"min_p": 2.0}, {"repetition_penalty": 0.0},
        {"repetition_penalty": math.nan}, {"presence_penalty": math.inf}, {"frequency_penalty": math.nan},
        {"stop": ("",)}, {"logprobs": -1}, {"logit_bias": {1: math.nan}}, {"logit_bias": {1: math.inf}},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InvalidInput):
        Sampling(**wrong)


def test_a_bias_on_a_token_that_is_not_there():
    with pytest.raises(InvalidInput, match="no token 99 to bias"):
        Chooser(Sampling(logit_bias={99: 1.0})).choose(some_scores())


def test_one_stop_text_needs_no_list():
    assert Sampling(stop="x").stop == ("x",)
