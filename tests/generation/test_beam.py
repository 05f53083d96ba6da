"""Beams: exhaustive search where that is possible, greedy where there is one, each text as if it were alone."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from tests.models.zoo import DECODERS, SOURCED, WRITERS, make

from peasy.errors import InvalidInput
from peasy.generation.beam import Beams, search
from peasy.generation.decode import generate
from peasy.generation.sampling import Sampling
from peasy.models import config as kinds
from peasy.nn import part

SOURCES = [[4, 8, 15, 16], [23], [42, 4, 8]]
PROMPTS = [[5, 9, 2], [7], [3, 3, 8, 1, 4, 9]]
TINY = kinds.DecoderConfig(
    4, 16, part.Stack(2, part.Attention(2), part.Plain(24)), 16, special=kinds.Special(end=(0,))
)  # fmt: skip


def asked(model):
    return {"source": SOURCES} if model.reads_source else {"prompts": PROMPTS}


def ends_at(model, end):
    model.config = replace(model.config, special=replace(model.config.special, end=end))
    return model


def exhaustive(model, prompt, length, penalty, end=0):
    """Every text up to a length, scored by reading it whole; best first."""
    found = []
    for size in range(1, length + 1):
        for ids in itertools.product(range(model.config.vocabulary), repeat=size):
            if end in ids[:-1] or (size < length and ids[-1] != end):
                continue
            with torch.inference_mode():
                logs = torch.log_softmax(model(torch.tensor([[*prompt, *ids]]))[0].double(), -1)
            total = sum(float(logs[len(prompt) - 1 + place, id]) for place, id in enumerate(ids))
            found.append((total / size**penalty, ids))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_wide_beams_find_what_trying_everything_finds(penalty, seed):
    model = make(TINY, seed=seed, double=True)
    best = exhaustive(model, [1, 2], 4, penalty)[:5]
    beams = Beams(width=400, max_tokens=4, length_penalty=penalty, n=5, patience="sure")
    found = search(model, [[1, 2]], beams)[0].best
    assert [one.ids for one in found] == [ids for _, ids in best]
    assert [one.score for one in found] == pytest.approx([score for score, _ in best])


def test_a_narrow_beam_can_miss_the_best():
    """What the test above compares with is not what any search would find."""
    models = (make(TINY, seed=seed, double=True) for seed in range(20))
    assert any(
        search(model, [[1, 2]], Beams(width=1, max_tokens=3, length_penalty=0.0))[0].best[0].ids
        != exhaustive(model, [1, 2], 3, 0.0)[0][1]
        for model in models
    )


@pytest.mark.parametrize("name", WRITERS)
def test_one_beam_is_greedy(name):
    model = make(WRITERS[name], double=True)
    given = asked(model)
    found = [list(one.best[0].ids) for one in search(model, beams=Beams(width=1, max_tokens=8), **given)]
    assert found == generate(model, sampling=Sampling(8), **given)


@pytest.mark.parametrize("name", ["rotary", "window", "lstm", "ngram", "both", "recurrent-translator"])
def test_searching_together_is_searching_alone(name):
    model = ends_at(make(WRITERS[name], double=True), (3, 11))
    given, beams = asked(model), Beams(width=3, max_tokens=7, n=3)
    together = search(model, beams=beams, **given)
    for row, found in enumerate(together):
        alone = search(model, beams=beams, **{key: [value[row]] for key, value in given.items()})[0]
        assert [one.ids for one in alone.best] == [one.ids for one in found.best]


@pytest.mark.parametrize("name", ["rotary", "lstm", "both"])
def test_scores_are_those_of_the_texts_read_whole(name):
    model = ends_at(make(WRITERS[name], double=True), (3,))
    given = asked(model)
    for row, found in enumerate(search(model, beams=Beams(width=4, max_tokens=6, n=4), **given)):
        assert [one.score for one in found.best] == sorted((one.score for one in found.best), reverse=True)
        for one in found.best:
            begun = [0] if model.reads_source else PROMPTS[row]
            source = {"source": torch.tensor([SOURCES[row]])} if model.reads_source else {}
            with torch.inference_mode():
                logs = torch.log_softmax(model(torch.tensor([[*begun, *one.ids]]), **source)[0].double(), -1)
            total = sum(float(logs[len(begun) - 1 + place, id]) for place, id in enumerate(one.ids))
            assert one.logprob == pytest.approx(total)
            assert one.score == pytest.approx(total / len(one.ids))
            assert one.ended == (one.ids[-1] == 3)


def test_beams_that_shared_a_memory_would_be_noticed(monkeypatch):
    """The inverse: a fork that is the same memory once more."""
    from peasy.nn.cache import Cache

    model, beams = make(DECODERS["rotary"], double=True), Beams(width=4, max_tokens=6, n=4)
    right = search(model, PROMPTS, beams)
    monkeypatch.setattr(Cache, "fork", lambda self: self)
    assert search(model, PROMPTS, beams) != right


def test_the_source_is_read_once(monkeypatch):
    model, read = make(SOURCED["both"]), []
    encode = type(model).encode
    monkeypatch.setattr(type(model), "encode", lambda self, *a, **k: read.append(1) or encode(self, *a, **k))
    search(model, beams=Beams(width=4, max_tokens=6), source=SOURCES)
    assert len(read) == len(SOURCES)


def test_a_penalty_prefers_long_or_short_texts():
    model = ends_at(make(DECODERS["rotary"], double=True), tuple(range(0, 61, 4)))
    lengths = [
        len(search(model, [[5]], Beams(width=8, max_tokens=12, length_penalty=penalty, patience="sure"))[0].best[0].ids)
        for penalty in (-2.0, 0.0, 4.0)
    ]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_one_that_fails_leaves_the_others_alone():
    model = make(DECODERS["learned"])
    found = search(model, [[5, 9], [], [61], [1] * 65], Beams(max_tokens=4))
    assert found[0] == search(model, [[5, 9]], Beams(max_tokens=4))[0]
    assert [one.error is None for one in found] == [True, False, False, False]
    with torch.no_grad():
        model.embedding.token.weight[7] = math.nan
    assert "no finite numbers" in search(model, [[5]], Beams(max_tokens=2))[0].error.message


def test_settings_that_mean_nothing_are_refused():
    for wrong in ({"width": 0}, {"n": 5}, {"length_penalty": math.nan}, {"patience": "never"}, {"max_tokens": 0}):
        with pytest.raises(InvalidInput):
            Beams(**wrong)
    with pytest.raises(InvalidInput, match="nothing to write on"):
        search(make(DECODERS["learned"]))


def test_a_model_in_double_precision_is_searched_in_it():
    model = make(DECODERS["rotary"]).double().eval()
    (best,) = search(model, [[1, 2, 3]], Beams(width=3, max_tokens=5))[0].best
    with torch.inference_mode():
        logs = model(torch.tensor([[1, 2, 3, *best.ids]])).log_softmax(-1)[0, 2:-1]
    assert best.logprob == pytest.approx(float(logs[range(5), list(best.ids)].sum()), abs=1e-12)
