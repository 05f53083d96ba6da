"""`generate`: one prompt or many, in order; probabilities, cache steps, errors of single prompts."""

import json

import numpy as np
import pytest
import torch

import peasy
from peasy.commands.generate import BATCH_SIZE, GenerationJob, generate
from peasy.errors import InvalidInput

OPTIONS = {"max_tokens": 6, "weights": "float32"}


@pytest.fixture
def loaded(decoder):
    return peasy.load(decoder)


def test_a_batch_gives_the_same_texts_as_single_prompts(loaded):
    texts = ["The pizza came out", "it", "of the oven and it tasted", "The"] * 3
    result = generate(loaded, texts, temperature=1.0, seed=4, **OPTIONS)
    assert [completion.prompt for completion in result.completions] == texts
    for text in set(texts):
        alone = generate(loaded, text, temperature=1.0, seed=4, **OPTIONS)
        assert result.texts[texts.index(text)] == alone.texts[0]


def test_a_wrong_order_of_outputs_would_be_noticed(loaded, monkeypatch):
    texts = ["The pizza came out of the oven", "it", "of the"]
    right = generate(loaded, texts, logprobs=0, **OPTIONS)
    monkeypatch.setattr("peasy.generation.decode.replace", lambda event, **changed: event)
    assert [completion.tokens for completion in generate(loaded, texts, logprobs=0, **OPTIONS).completions] != [
        completion.tokens for completion in right.completions
    ]


def test_more_prompts_than_one_batch(loaded):
    count = BATCH_SIZE + 3
    result = generate(loaded, ["The pizza"] * count, max_tokens=2, weights="float32")
    assert len(result.completions) == count
    assert len(set(result.texts)) == 1


def test_samples_of_one_prompt_have_different_seeds(loaded):
    result = generate(loaded, ["The", "it"], n=3, temperature=1.5, seed=7, **OPTIONS)
    assert [completion.seed for completion in result.completions] == [7, 8, 9] * 2
    alone = [generate(loaded, "it", temperature=1.5, seed=seed, **OPTIONS).texts[0] for seed in (7, 8, 9)]
    assert result.texts[3:] == alone
    assert len(set(alone)) > 1


def test_an_invalid_prompt_does_not_affect_the_others(loaded):
    result = generate(loaded, ["The pizza", "half a \ud800 character", "it"], **OPTIONS)
    assert [completion.finish_reason for completion in result.completions] == ["length", "error", "length"]
    assert "half a character" in result.completions[1].error
    assert result.texts[0] == generate(loaded, "The pizza", **OPTIONS).texts[0]
    assert "half a character" in result.text()
    with pytest.raises(InvalidInput, match="half a character"):
        loaded.generate("half a \ud800 character")


def test_probabilities_are_those_of_the_model(loaded):
    result = generate(loaded, "The pizza", logprobs=4, **OPTIONS)
    first = result.completions[0].tokens[0]
    ids = list(loaded.tokenizer.encode("The pizza").ids)
    with torch.inference_mode():
        expected = torch.softmax(loaded.model(torch.tensor([ids]))[0, -1].double(), -1)
    assert first.probability == pytest.approx(float(expected.max()), rel=1e-4)
    assert [name for name, _ in first.candidates] == [
        loaded.tokenizer.piece(id) for id in expected.topk(4).indices.tolist()
    ]
    assert first.piece in result.text()
    assert json.dumps(result.data())


def test_cache_steps_are_counted_and_shown(loaded):
    result = generate(loaded, "The pizza came", show_cache=True, **OPTIONS)
    length = len(loaded.tokenizer.encode("The pizza came").ids)
    assert [(step.num_cached, step.num_computed) for step in result.cache_steps] == [(0, length)] + [
        (length + step, 1) for step in range(5)
    ]
    assert result.cache_steps[0].multiplications == result.cache_steps[0].multiplications_uncached
    assert all(step.multiplications < step.multiplications_uncached for step in result.cache_steps[1:])
    assert max(step.max_difference for step in result.cache_steps) < 1e-4
    assert "multiplications" in result.text()
    assert "reused" in result.html()


@pytest.mark.parametrize("options", [{"use_cache": False}, {"speculative": True}, {"weights": "int8"}])
def test_other_execution_paths_give_the_same_text(loaded, options):
    result = generate(loaded, "The pizza came out of the oven", **(OPTIONS | options))
    assert len(result.completions[0].tokens) == 6
    if "weights" not in options:
        assert result.texts == generate(loaded, "The pizza came out of the oven", **OPTIONS).texts
    else:
        assert "int8" in result.note


def test_weights_are_packed_once(loaded):
    assert GenerationJob(loaded, ["The"]).model is GenerationJob(loaded, ["it"]).model
    with pytest.raises(InvalidInput, match='no weight format "int4"'):
        generate(loaded, "The", weights="int4")


def test_a_stop_string_is_not_included(loaded):
    whole = loaded.generate("The pizza", max_tokens=20, temperature=1.0, seed=4).texts[0]
    stop = whole[len(whole) // 2 :][:3]
    result = generate(loaded, "The pizza", max_tokens=20, temperature=1.0, seed=4, stop=stop)
    assert result.texts[0] == whole[: whole.index(stop)]
    assert result.completions[0].finish_reason == "stop"


def test_the_method_takes_one_prompt_or_many(loaded):
    texts = [loaded.generate(text, max_tokens=3).texts[0] for text in ("The", "it")]
    assert loaded.generate(["The", "it"], max_tokens=3).texts == texts
    assert type(loaded.generate("The", max_tokens=3)) is type(generate(loaded, "The", max_tokens=3))


def test_closing_keeps_the_generated_tokens(loaded):
    job = GenerationJob(loaded, ["The pizza"], max_tokens=50)
    events = job.events()
    for _ in range(8):
        next(events)
    events.close()
    result = job.result()
    assert result.completions[0].finish_reason == "cancelled"
    assert 0 < len(result.completions[0].tokens) < 50


def test_invalid_arguments_are_refused(loaded, encoder):
    with pytest.raises(InvalidInput, match="n is 0"):
        generate(loaded, "The", n=0)
    with pytest.raises(InvalidInput, match="no text"):
        generate(loaded, [])
    with pytest.raises(InvalidInput, match="cannot generate text"):
        peasy.load(encoder).generate("The")
    with pytest.raises(TypeError, match=r"no parameter tempersture\. Did you mean temperature\?"):
        peasy.generate(loaded, "The", tempersture=1)
    with pytest.raises(TypeError, match=r"no parameter tempersture\. Did you mean temperature\?"):
        loaded.generate("The", tempersture=1)


def test_unknown_words_are_counted(tmp_path):
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.preset import preset
    from peasy.tokenization import train_tokenizer

    tokenizer = train_tokenizer(["the cat sat"] * 9, "words")
    model = build(preset("gpt-tiny", vocab_size=len(tokenizer), d_model=16), seed=1)
    save_model(tmp_path / "cats", model, tokenizer)
    result = generate(tmp_path / "cats", "the zebra sat", max_tokens=2)
    assert result.completions[0].num_unknown == 1
    assert "not in the model's vocabulary" in result.text()


def test_pooling_of_a_decoder(loaded):
    ids = list(loaded.tokenizer.encode("The pizza").ids)
    with torch.inference_mode():
        hidden = loaded.model.hidden(torch.tensor([ids]))[0].numpy()
    for pooling, expected in (("last", hidden[-1]), ("cls", hidden[0]), ("mean", hidden.mean(axis=0))):
        result = loaded.embed(["it tasted good and", "The pizza"], pooling=pooling).vectors[1]
        np.testing.assert_allclose(result, expected / np.linalg.norm(expected), atol=1e-5)
