"""`generate`: one text or many, in the order given; chances, cache, what goes wrong with one of them."""

import json

import numpy as np
import pytest
import torch

import peasy
from peasy.errors import InvalidInput
from peasy.workbench.generate import ROWS, Writer, generate

HOW = {"max_tokens": 6, "weights": "float32"}


@pytest.fixture
def loaded(decoder):
    return peasy.load(decoder)


def test_many_are_each_alone_and_in_their_order(loaded):
    texts = ["The pizza came out", "it", "of the oven and it tasted", "The"] * 3
    found = generate(loaded, texts, temperature=1.0, seed=4, **HOW)
    assert [writing.prompt for writing in found.writings] == texts
    for text in set(texts):
        alone = generate(loaded, text, temperature=1.0, seed=4, **HOW)
        assert found.texts[texts.index(text)] == alone.texts[0]


def test_an_order_that_was_lost_would_be_noticed(loaded, monkeypatch):
    texts = ["The pizza came out of the oven", "it", "of the"]
    right = generate(loaded, texts, logprobs=0, **HOW)
    monkeypatch.setattr("peasy.workbench.generate.replace", lambda event, **changed: event)
    assert [writing.pieces for writing in generate(loaded, texts, logprobs=0, **HOW).writings] != [
        writing.pieces for writing in right.writings
    ]


def test_more_texts_than_are_written_at_once(loaded):
    count = ROWS + 3
    found = generate(loaded, ["The pizza"] * count, max_tokens=2, weights="float32")
    assert len(found.writings) == count
    assert len(set(found.texts)) == 1


def test_several_from_one_have_seeds_of_their_own(loaded):
    found = generate(loaded, ["The", "it"], n=3, temperature=1.5, seed=7, **HOW)
    assert [writing.seed for writing in found.writings] == [7, 8, 9] * 2
    alone = [generate(loaded, "it", temperature=1.5, seed=seed, **HOW).texts[0] for seed in (7, 8, 9)]
    assert found.texts[3:] == alone
    assert len(set(alone)) > 1


def test_one_that_cannot_be_written_leaves_the_others(loaded):
    found = generate(loaded, ["The pizza", "half a \ud800 character", "it"], **HOW)
    assert [writing.reason for writing in found.writings] == ["length", "error", "length"]
    assert "half a character" in found.writings[1].error
    assert found.texts[0] == generate(loaded, "The pizza", **HOW).texts[0]
    assert "half a character" in found.text()
    with pytest.raises(InvalidInput, match="half a character"):
        loaded.generate("half a \ud800 character")


def test_chances_are_told(loaded):
    found = generate(loaded, "The pizza", logprobs=4, **HOW)
    first = found.writings[0].pieces[0]
    ids = list(loaded.tokenizer.encode("The pizza").ids)
    with torch.inference_mode():
        expected = torch.softmax(loaded.model(torch.tensor([ids]))[0, -1].double(), -1)
    assert first.chance == pytest.approx(float(expected.max()), rel=1e-4)
    assert [name for name, _ in first.candidates] == [
        loaded.tokenizer.piece(id) for id in expected.topk(4).indices.tolist()
    ]
    assert first.piece in found.text()
    assert json.dumps(found.data())


def test_the_cache_is_shown_and_counted(loaded):
    found = generate(loaded, "The pizza came", show_cache=True, **HOW)
    length = len(loaded.tokenizer.encode("The pizza came").ids)
    assert [(step.reused, step.computed) for step in found.cache] == [(0, length)] + [
        (length + place, 1) for place in range(5)
    ]
    assert found.cache[0].work == found.cache[0].work_without
    assert all(step.work < step.work_without for step in found.cache[1:])
    assert max(step.apart for step in found.cache) < 1e-4
    assert "multiplications" in found.text()
    assert "reused" in found.html()


@pytest.mark.parametrize("how", [{"cached": False}, {"lookup": True}, {"weights": "int8"}])
def test_other_ways_to_the_same_text(loaded, how):
    found = generate(loaded, "The pizza came out of the oven", **(HOW | how))
    assert len(found.writings[0].pieces) == 6
    if "weights" not in how:
        assert found.texts == generate(loaded, "The pizza came out of the oven", **HOW).texts
    else:
        assert "int8" in found.note


def test_weights_are_packed_once(loaded):
    assert Writer(loaded, ["The"]).model is Writer(loaded, ["it"]).model
    with pytest.raises(InvalidInput, match='no weights "int4"'):
        generate(loaded, "The", weights="int4")


def test_a_stop_text_ends_before_it(loaded):
    whole = loaded.generate("The pizza", max_tokens=20, temperature=1.0, seed=4)
    stop = whole[len(whole) // 2 :][:3]
    found = generate(loaded, "The pizza", max_tokens=20, temperature=1.0, seed=4, stop=stop)
    assert found.texts[0] == whole[: whole.index(stop)]
    assert found.writings[0].reason == "stop"


def test_many_by_the_method(loaded):
    assert loaded.generate(["The", "it"], max_tokens=3) == [loaded.generate(t, max_tokens=3) for t in ("The", "it")]
    assert isinstance(loaded.generate("The", max_tokens=3), str)


def test_closing_keeps_what_was_written(loaded):
    writer = Writer(loaded, ["The pizza"], max_tokens=50)
    events = writer.events()
    for _ in range(8):
        next(events)
    events.close()
    found = writer.result()
    assert found.writings[0].reason == "interrupted"
    assert 0 < len(found.writings[0].pieces) < 50


def test_what_means_nothing_is_said(loaded, encoder):
    with pytest.raises(InvalidInput, match="n is 0"):
        generate(loaded, "The", n=0)
    with pytest.raises(InvalidInput, match="no text"):
        generate(loaded, [])
    with pytest.raises(InvalidInput, match="does not write on"):
        peasy.load(encoder).generate("The")
    with pytest.raises(TypeError):
        generate(loaded, "The", tempersture=1)


def test_unknown_words_are_counted(tmp_path):
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.preset import preset
    from peasy.text import train

    words = train(["the cat sat"] * 9, "words")
    save_model(tmp_path / "cats", build(preset("gpt-tiny", vocabulary=len(words), d_model=16), seed=1), words)
    found = generate(tmp_path / "cats", "the zebra sat", max_tokens=2)
    assert found.writings[0].unknown == 1
    assert "unknown to this model" in found.text()


def test_vectors_of_a_decoder_need_a_pooling(loaded):
    ids = list(loaded.tokenizer.encode("The pizza").ids)
    with torch.inference_mode():
        hidden = loaded.model.hidden(torch.tensor([ids]))[0].numpy()
    for pooling, expected in (("last", hidden[-1]), ("cls", hidden[0]), ("mean", hidden.mean(axis=0))):
        found = loaded.embed(["it tasted good and", "The pizza"], pooling=pooling)[1]
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)
