"""Forward pass as one picture: its numbers against those of `look`, and the story against a model without the head."""

import base64
import copy

import numpy as np
import pytest
import torch

import peasy
from peasy.commands.forward_pass import MAX_MAP, forward_pass
from peasy.commands.load import load
from peasy.errors import InvalidInput
from peasy.nn.module_path import Address

TEXT = "The pizza came out of the oven and it"


@pytest.fixture(scope="module")
def stories():
    return load("stories")


@pytest.fixture(scope="module")
def shown(stories):
    return forward_pass(stories, TEXT)


def maps(attention):
    codes = np.frombuffer(base64.b64decode(attention.maps), np.uint8)
    return codes.reshape(attention.num_heads, attention.rows, attention.columns) / 255


def test_maps_and_next_tokens_are_those_of_look(stories, shown):
    looked = peasy.look(stories, TEXT)
    (stack,) = shown.stacks
    assert stack.tokens.pieces == looked.tokens.pieces
    for layer in stack.layers:
        (attention,) = layer.attentions
        for head, weights in enumerate(maps(attention)):
            np.testing.assert_allclose(weights, np.asarray(looked.weights[layer.layer, head]), atol=0.5 / 255 + 1e-6)
    assert [token.id for token in shown.next_tokens[:5]] == [token.id for token in looked.next_tokens]
    last = stack.layers[-1].lens[0]
    assert (last.id, pytest.approx(last.probability, abs=1e-5)) == (
        shown.next_tokens[0].id,
        shown.next_tokens[0].probability,
    )


def test_story_equals_a_model_whose_head_has_no_output(stories, shown):
    story = shown.story
    pieces = shown.stacks[0].tokens.pieces
    assert (pieces[story.query], pieces[story.key]) == ("·it", "·pizza")
    model = copy.deepcopy(stories.model)
    attention = model.decoder.blocks[story.layer].attention
    begin = story.head * attention.d_head
    with torch.no_grad():
        attention.output.weight[:, begin : begin + attention.d_head] = 0
        ids = torch.tensor([shown.stacks[0].tokens.ids])
        before, after = (m(ids)[0, -1].softmax(-1) for m in (stories.model, model))
    token = stories.tokenizer.encode(story.token.replace("·", " "), add_special_tokens=False).ids[-1]
    assert story.before == pytest.approx(float(before[token]), abs=1e-5)
    assert story.after == pytest.approx(float(after[token]), abs=1e-5)
    assert story.before - story.after > 0.05


def test_translation_tells_of_the_output_token_that_needs_a_head_most():
    shown = forward_pass(load("locales-fr"), "3 days ago")
    encoder, decoder = shown.stacks
    assert (encoder.name, decoder.name) == ("encoder", "decoder")
    story = shown.story
    assert story.part == "cross_attention"
    assert encoder.tokens.pieces[story.key] == "·days"
    assert (story.token, decoder.tokens.pieces[story.query + 1]) == ("·jours", "·jours")
    assert shown.answer_row == story.query, "the next tokens are those that the story is about"
    following = shown.next_tokens[0]
    assert (following.piece, pytest.approx(following.probability, abs=1e-5)) == (story.token, story.before)
    last = decoder.layers[-1].lens[0]
    assert (last.id, pytest.approx(last.probability, abs=1e-5)) == (following.id, following.probability)
    place = (story.part, story.layer, story.head)
    without = next(one for one in shown.ablations if (one.part, one.layer, one.head) == place)
    assert without.next_tokens[0].probability == pytest.approx(story.after, abs=1e-5)


def test_next_tokens_after_any_token_and_at_any_temperature(stories, shown):
    shorter = forward_pass(stories, TEXT.removesuffix(" it"), story=False)
    place = {"answer_row": shorter.answer_row, "story": False, "ablations": False}
    earlier = forward_pass(stories, TEXT, **place)
    for one, other in zip(earlier.next_tokens, shorter.next_tokens, strict=True):
        assert (one.id, pytest.approx(one.probability, abs=1e-5)) == (other.id, other.probability)
    cold = forward_pass(stories, TEXT, temperature=0.5, story=False, ablations=False).next_tokens
    (first, second), (usual, other) = cold[:2], shown.next_tokens[:2]
    ratio = usual.probability / other.probability
    assert first.probability / second.probability == pytest.approx(ratio**2, rel=1e-4)
    coldest = forward_pass(stories, TEXT, temperature=1e-300, story=False, ablations=False).next_tokens[0]
    assert (coldest.id, coldest.probability) == (shown.next_tokens[0].id, 1.0)
    with pytest.raises(InvalidInput, match="There is no output token 10"):
        forward_pass(stories, TEXT, answer_row=10)


@pytest.mark.parametrize(("name", "kinds"), [("sentences", ["encoder"]), ("locales-fr-2015", ["encoder", "decoder"])])
def test_other_architectures(name, kinds):
    shown = forward_pass(load(name), "3 days ago")
    assert [stack.name for stack in shown.stacks] == kinds
    assert shown.stacks[-1].layers[0].attentions
    assert shown.stacks[0].recurrent is (name == "locales-fr-2015")


def test_long_texts_are_pooled_by_their_largest_weight(stories):
    text = "The pizza came out of the oven and it tasted good . " * 7
    (stack,) = forward_pass(stories, text.strip(), story=False).stacks
    attention = stack.layers[0].attentions[0]
    assert attention.tile > 1
    assert max(attention.rows, attention.columns) <= MAX_MAP
    exact = np.asarray(peasy.look(stories, text.strip(), layers=[0], heads=[1]).weights[0, 1])
    corner = exact[: attention.tile, : attention.tile].max()
    assert maps(attention)[1][0, 0] == pytest.approx(corner, abs=0.5 / 255 + 1e-6)


def test_shared_page_holds_the_numbers_of_heads_and_the_answers_without_them(stories, shown):
    looked = peasy.look(stories, TEXT, steps=("query", "key", "weights"))
    told = shown.head_numbers[0]
    assert (told.layer, told.head) == (shown.story.layer, shown.story.head), "the head of the story comes first"
    assert (
        len(shown.head_numbers)
        == len(shown.ablations)
        == sum(attention.num_heads for layer in shown.stacks[0].layers for attention in layer.attentions)
    )
    for name in ("weights", "query", "key"):
        (capture,) = (c for c in looked.captures if c.step == name and c.path.layer == told.layer)
        np.testing.assert_allclose(told.steps[name], capture.array[told.head], atol=1e-5)
    assert told.steps["masked"][0][1] is None, "a hidden key has no score"
    without = next(a for a in shown.ablations if (a.layer, a.head) == (told.layer, told.head))
    edited = forward_pass(stories, TEXT, edit=[peasy.edit.zero(told.layer, told.head)], story=False, head_numbers=())
    assert [token.id for token in without.next_tokens] == [token.id for token in edited.next_tokens]
    assert edited.head_numbers == ()


def test_head_numbers_are_bounded_and_can_be_named(stories, monkeypatch):
    monkeypatch.setattr("peasy.commands.forward_pass.MAX_HEAD_NUMBERS", 4000)
    few = forward_pass(stories, TEXT, ablations=False)
    assert 0 < len(few.head_numbers) < 9
    assert few.ablations == ()
    (named,) = forward_pass(stories, TEXT, head_numbers=["decoder.2.attention.1"], story=False).head_numbers
    assert (named.layer, named.head) == (2, 1)
    one = forward_pass(stories, TEXT, head_numbers=["story"], ablations=False)
    assert [(found.layer, found.head) for found in one.head_numbers] == [(one.story.layer, one.story.head)]
    assert one.head_numbers[0].steps == few.head_numbers[0].steps


def loss_of(model, ids, address, change):
    """Mean cross-entropy of each next token, the last being the likeliest, with a changed context of one head."""

    def edit(place, array):
        return array + change if place == address else None

    logits = model.logits(model.hidden(torch.tensor([ids]), intervention=edit))[0]
    labels = torch.tensor([*ids[1:], int(model.logits(model.hidden(torch.tensor([ids])))[0, -1].argmax())])
    return torch.nn.functional.cross_entropy(logits, labels).item()


@torch.no_grad()
def test_gradients_of_a_training_step_are_slopes_of_the_loss(stories):
    named = ["decoder.1.attention.0"]
    found = forward_pass(stories, TEXT, story=False, head_numbers=named, ablations=False, gradients=True)
    gradient = torch.tensor(found.head_numbers[0].steps["gradient"]) / 1000
    ids, address = found.stacks[0].tokens.ids, Address("decoder", 1, "attention", "context")

    def loss_along(direction):
        change = torch.zeros(1, 3, *gradient.shape)
        change[0, 0] = direction
        return loss_of(stories.model, ids, address, change)

    assert found.loss == pytest.approx(loss_along(torch.zeros_like(gradient)), rel=1e-5)
    for direction in (gradient / gradient.norm(), torch.eye(*gradient.shape), gradient.sign()):
        slope = (loss_along(0.02 * direction) - loss_along(-0.02 * direction)) / 0.04
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=0.02, abs=2e-5)


def test_a_training_step_of_a_translator_and_of_an_encoder():
    translated = forward_pass("locales-fr", "3 days ago", head_numbers=[], gradients=True, ablations=False, story=False)
    assert 0 < translated.loss < 1, "it is its own translation"
    named = ["decoder.0.cross_attention.0"]
    crossing = forward_pass(
        "locales-fr", "3 days ago", head_numbers=named, gradients=True, ablations=False, story=False
    )
    assert np.abs(crossing.head_numbers[0].steps["gradient"]).max() > 0
    recurrent = forward_pass("locales-fr-2015", "3 days ago", gradients=True, story=False).head_numbers[0].steps
    assert np.shape(recurrent["gradient"]) == np.shape(recurrent["context"]), "one row for each output token"
    embedded = forward_pass("sentences", "My phone broke.", head_numbers=[], gradients=True)
    assert embedded.loss is None, "an encoder of sentences guesses no next token"
