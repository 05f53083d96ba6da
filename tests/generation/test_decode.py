"""One loop for all models: cached = uncached, batched = alone, greedy = the best, draws by the seed."""

from dataclasses import replace

import pytest
import torch
from tests.models.zoo import BASELINES, DECODERS, ENCODERS, SOURCED, WRITERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.generation.decode import Sampling, decode, generate, pad_left

PROMPTS = [[5, 9, 2], [7], [3, 3, 8, 1, 4, 9]]
SOURCES = [[4, 8, 15, 16], [23], [42, 4, 8]]


def asked(model):
    return {"source": SOURCES} if model.reads_source else {"prompts": PROMPTS}


def one_of(given, row):
    return {key: [value[row]] for key, value in given.items()}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_with_and_without_memory(name, temperature):
    model = make(WRITERS[name], double=True)
    sampling = Sampling(12, temperature, seed=7)
    given = asked(model)
    assert generate(model, sampling=sampling, **given) == generate(model, sampling=sampling, cached=False, **given)


@pytest.mark.parametrize("name", WRITERS)
def test_a_batch_is_each_text_alone(name):
    model = make(WRITERS[name], double=True)
    given = asked(model)
    together = generate(model, sampling=Sampling(10, 0.9, seed=3), **given)
    for row, text in enumerate(together):
        assert generate(model, sampling=Sampling(10, 0.9, seed=3 + row), **one_of(given, row)) == [text]


@pytest.mark.parametrize("name", DECODERS | BASELINES)
def test_greedy_takes_the_best_each_time(name):
    model = make((DECODERS | BASELINES)[name], double=True)
    text = list(PROMPTS[0])
    for new in generate(model, [text], Sampling(8))[0]:
        with torch.inference_mode():
            assert new == int(model(torch.tensor([text]))[0, -1].argmax())
        text.append(new)


def test_draws_follow_the_chances():
    """Ten thousand first tokens against the softmax they are drawn from, within four standard deviations."""
    model = make(DECODERS["learned"])
    count, temperature = 10_000, 3.0
    drawn = generate(model, [[5, 9]] * count, Sampling(1, temperature, seed=1))
    with torch.inference_mode():
        chance = torch.softmax(model(torch.tensor([[5, 9]]))[0, -1].double() / temperature, dim=-1)
    found = torch.bincount(torch.tensor(drawn)[:, 0], minlength=61) / count
    assert ((found - chance).abs() < 4 * (chance * (1 - chance) / count).sqrt() + 1e-4).all()


def test_what_has_no_chance_is_never_drawn():
    model = make(DECODERS["learned-offset"])
    with torch.no_grad():
        model.head.bias[::2] = -torch.inf
    drawn = generate(model, [[5]] * 64, Sampling(20, 5.0))
    assert all(new % 2 for text in drawn for new in text)


def test_the_end_ends_one_text_and_not_the_others():
    model = make(DECODERS["rotary"])
    free = generate(model, PROMPTS, Sampling(15))
    end = free[1][4]
    model.config = replace(model.config, special=replace(model.config.special, end=(end,)))
    for text, all_of_it in zip(generate(model, PROMPTS, Sampling(15)), free, strict=True):
        stop = all_of_it.index(end) + 1 if end in all_of_it else 15
        assert text == all_of_it[:stop]


def test_closing_stops_the_work():
    model = make(DECODERS["rotary"])
    steps = decode(model, PROMPTS, Sampling(1000))
    assert next(steps).step == 0
    assert next(steps).step == 1
    steps.close()
    assert list(steps) == []


def test_the_seed_decides():
    model = make(DECODERS["rotary"])
    one, same, other = (generate(model, PROMPTS, Sampling(20, 1.0, seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_nothing_to_write_on_is_said():
    model = make(DECODERS["rotary"])
    for prompts in (None, [], [[1], []]):
        with pytest.raises(InvalidInput, match="nothing to write on from"):
            generate(model, prompts)
    with pytest.raises(InvalidInput, match="3 sources and 1 prompts"):
        generate(make(SOURCED["both"]), [[1]], source=SOURCES)
    with pytest.raises(InvalidInput, match="does not write on"):
        generate(make(ENCODERS["encoder"]), [[1]])
    with pytest.raises(InvalidInput, match="temperature is -1"):
        Sampling(temperature=-1.0)


@pytest.mark.parametrize("cached", [True, False])
def test_learned_places_run_out(cached):
    model = make(DECODERS["learned"])
    written = generate(model, some_ids(2, 60).tolist(), Sampling(20), cached=cached)
    assert [len(text) for text in written] == [5, 5]
    with pytest.raises(InvalidInput, match="has 65 tokens; this model reads at most 64"):
        generate(model, some_ids(1, 65).tolist(), Sampling(20), cached=cached)


def test_padding_on_the_left():
    ids, real = pad_left([[1, 2], [3]], padding=9)
    assert ids.tolist() == [[1, 2], [9, 3]]
    assert real.tolist() == [[True, True], [False, True]]


def test_no_gradients_are_kept():
    model = make(DECODERS["rotary"])
    generate(model, some_ids(1, 5).tolist(), Sampling(3))
    assert all(weight.grad is None for weight in model.parameters())
