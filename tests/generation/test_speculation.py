"""Guessing changes the number of passes and nothing else: greedy text, drawn text, chances, log-probabilities, ends."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from tests.generation.company import far, model_of
from tests.models.zoo import BASELINES, DECODERS, RECURRENT_TRANSLATORS, TRANSLATORS, make

from peasy.errors import InvalidInput
from peasy.generation import speculation
from peasy.generation.decode import Pass, decode
from peasy.generation.lookup import Lookup
from peasy.generation.request import Ended, Token
from peasy.generation.sampling import Chosen, Sampling
from peasy.generation.speculation import Guessed, decode_with_lookup

PASSAGE = [5, 9, 2, 7, 7, 3, 1, 8]
PROMPTS = [PASSAGE * 3, [1, 2], [4, 4, 4, 4]]
WAYS = {
    "greedy": Sampling(24),
    "drawn": Sampling(24, 1.0, seed=5),
    "cool": Sampling(24, 0.2, seed=2, top_k=5, logprobs=2),
    "penalties": Sampling(24, 0.3, repetition_penalty=1.2, frequency_penalty=0.3, logprobs=0),
}


def without_passes(events):
    """What is told of each text, passes and guesses left out."""
    kept = [rounded(event) for event in events if not isinstance(event, Pass | Guessed)]
    return sorted(kept, key=lambda event: event.choice)  # texts may take turns otherwise


def rounded(event):
    """Log-probabilities to ten digits: only the bits of tokens are promised to be the same in any arithmetic."""
    if not isinstance(event, Token) or event.chosen.logprob is None:
        return event
    candidates = tuple((id, round(logprob, 10)) for id, logprob in event.chosen.candidates)
    return replace(event, chosen=Chosen(event.chosen.id, round(event.chosen.logprob, 10), candidates))


def in_a_circle(config, seed=0):
    """A model that soon repeats itself, so that guesses are right: its scores grow sharp."""
    model = make(config, seed, double=True)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "position" in name or "embedding" in name:
                weight.mul_(2.0)
    return model.eval()


MATRIX = [(name, way) for name in DECODERS for way in ("greedy", "penalties")] + [("rotary", way) for way in WAYS]


@pytest.mark.parametrize(("name", "way"), MATRIX)
def test_with_guesses_and_without_the_same_is_told(name, way):
    model = in_a_circle(DECODERS[name])
    plain = without_passes(decode(model, PROMPTS, WAYS[way]))
    *events, last = decode_with_lookup(model, PROMPTS, WAYS[way])
    assert without_passes(events) == plain
    assert last.written == sum(isinstance(event, Token) for event in plain)
    assert last.passes == sum(isinstance(event, Pass) for event in events)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_too(name):
    model = in_a_circle(TRANSLATORS[name])
    sources, sampling = [[4, 8, 15], [16, 23, 42, 4]], Sampling(24, 0.5, seed=1)
    *events, last = decode_with_lookup(model, source=sources, sampling=sampling)
    assert without_passes(events) == without_passes(decode(model, source=sources, sampling=sampling))
    assert last.guessed > 0


def test_it_takes_fewer_passes_where_the_text_repeats():
    model = in_a_circle(DECODERS["nowhere"])
    plain = [event.chosen.id for event in decode(model, [PASSAGE], Sampling(80)) if isinstance(event, Token)]
    *events, last = decode_with_lookup(model, [PASSAGE], Sampling(80))
    assert [event.chosen.id for event in events if isinstance(event, Token)] == plain
    assert last.passes < 40
    assert last.rate > 0.8
    assert last.says().startswith(f"{last.right} of {last.guessed} guessed tokens were right")


def test_a_window_that_has_dropped_tokens_still_goes_back():
    """Long enough for the cache to forget, with guesses right and wrong before and after."""
    model, sampling = in_a_circle(far(window=5)), Sampling(60, 0.7, seed=3)
    prompt = (PASSAGE * 40)[:240]
    *events, last = decode_with_lookup(model, [prompt], sampling)
    assert without_passes(events) == without_passes(decode(model, [prompt], sampling))
    assert 0 < last.right < last.guessed


def test_were_wrong_guesses_kept_in_memory_the_text_would_differ(monkeypatch):
    """The inverse: without going back, what was guessed wrong stays in the cache."""
    model = in_a_circle(DECODERS["rotary"])
    plain = without_passes(decode(model, [PASSAGE * 3], WAYS["drawn"]))
    monkeypatch.setattr("peasy.nn.cache.Cache.crop", lambda self, length: None)
    assert without_passes(decode_with_lookup(model, [PASSAGE * 3], WAYS["drawn"])) != plain


def drawn_rows(decoding, model, count: int) -> Counter[tuple[int, ...]]:
    """How often each row of three tokens was drawn, each time by another seed."""
    found: dict[int, list[int]] = {}
    prompts, ways = [[1, 2, 0, 1, 2]] * count, [Sampling(3, 1.0, seed=seed) for seed in range(count)]
    for event in decoding(model, prompts, ways):
        if isinstance(event, Token):
            found.setdefault(event.choice, []).append(event.chosen.id)
    return Counter(map(tuple, found.values()))


def tiny_model():
    """Three words; what follows is far from even, so that some guesses are right and some are wrong."""
    from peasy.models import config as kinds
    from peasy.nn import part

    stack = part.Stack(1, part.Attention(1), part.Plain(8), part.LayerNorm())
    return make(kinds.DecoderConfig(3, 8, stack, None, part.Rotary()), seed=3).eval()


def true_chances(model) -> dict[tuple[int, ...], float]:
    """The chance of every row of three tokens, from the model's own softmax, one after the other."""
    chances = {(): 1.0}
    for _ in range(3):
        longer = {}
        for row, chance in chances.items():
            with torch.inference_mode():
                softmax = torch.softmax(model(torch.tensor([[1, 2, 0, 1, 2, *row]]))[0, -1].double(), dim=-1)
            longer |= {(*row, id): chance * float(softmax[id]) for id in range(3)}
        chances = longer
    return chances


def surprise(found: Counter, chances: dict, count: int) -> float:
    """Chi-square of 26 degrees of freedom: around 26 if the draws follow the chances, beyond 54 once in a thousand."""
    return sum((found[row] - count * chance) ** 2 / (count * chance) for row, chance in chances.items())


def test_draws_follow_the_chances_with_guesses_in_play():
    """All 27 rows of three tokens, 1,500 draws; guesses right and wrong took part."""
    model, count = tiny_model(), 1500
    seen = []

    def watching(*given):
        for event in decode_with_lookup(*given):
            if isinstance(event, Guessed):
                seen.append(event)
            yield event

    assert surprise(drawn_rows(watching, model, count), true_chances(model), count) < 54.05
    assert 0.05 < seen[0].rate < 0.95


def test_taking_guesses_on_trust_would_bend_the_chances(monkeypatch):
    """The inverse: a writer that prefers what was guessed is found out by the same figure."""
    plain = speculation.Text.write

    def trusting(self, scores, end):
        if self.written and self.chooser.chance.random() < 0.5:
            scores = scores.clone()
            scores[2] += 1.5
        yield from plain(self, scores, end)

    monkeypatch.setattr(speculation.Text, "write", trusting)
    model, count = tiny_model(), 1500
    assert surprise(drawn_rows(decode_with_lookup, model, count), true_chances(model), count) > 54.05


@pytest.mark.parametrize("name", BASELINES | RECURRENT_TRANSLATORS)
def test_what_cannot_go_back_is_refused(name):
    model = make((BASELINES | RECURRENT_TRANSLATORS)[name])
    with pytest.raises(InvalidInput, match="cannot go back"):
        next(decode_with_lookup(model, [[1]]))


def test_learned_places_are_filled_and_not_exceeded():
    model = in_a_circle(DECODERS["learned"])
    plain = without_passes(decode(model, [PASSAGE * 6], Sampling(40)))
    assert without_passes(decode_with_lookup(model, [PASSAGE * 6], Sampling(40))) == plain
    assert plain[-1] == Ended(0, "length", 17)


def test_a_text_that_cannot_be_written_does_not_stop_the_others():
    model = model_of("decoder")
    events = without_passes(decode_with_lookup(model, [[1, 2], [99], PASSAGE], Sampling(5)))
    assert [event.reason for event in events if isinstance(event, Ended)] == ["length", "error", "length"]


def test_guesses_copy_what_followed_last():
    lookup = Lookup([1, 2, 3, 1, 2, 4, 1, 2])
    assert lookup.guess(2) == [4, 1]  # the last time, 4 came after 1 2
    assert lookup.guess(5) == [4, 1, 2, 4, 1]  # and on, as a circle
    assert Lookup([1, 2, 3]).guess(4) == []
    assert Lookup([]).guess(4) == []
    assert Lookup([7, 7, 7]).guess(3) == [7, 7, 7]
    assert Lookup([1, 2, 9, 8, 2, 1, 2]).guess(1) == [9]


@torch.inference_mode()
def test_a_window_goes_back_only_as_far_as_the_next_token_still_sees():
    """Between what was dropped and a whole window after it, a cache would answer from fewer keys than there were."""
    model = make(far(window=5), double=True).eval()
    ids = (PASSAGE * 40)[:270]
    memory = model.start()
    for new in ids:
        model.read([[new]], [memory])
    dropped = memory.layers[0].dropped
    assert dropped
    for length in (dropped + 5, dropped + 4):
        memory.crop(length)
        (found,), (expected,) = model.read([[1]], [memory.fork()]), model(torch.tensor([[*ids[:length], 1]]))[:, -1]
        torch.testing.assert_close(found, expected)
    with pytest.raises(InvalidInput, match=f"cannot go back to {dropped + 3} tokens"):
        memory.crop(dropped + 3)
