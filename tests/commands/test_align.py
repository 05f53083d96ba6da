"""`align`: links, word order and word count, from given weights and from models."""

import json
from dataclasses import replace

import numpy as np
import pytest

from peasy.commands.align import align, find_alignment_head, find_anchors, read_alignment_head, word_order
from peasy.commands.load import LoadedModel, load
from peasy.commands.look import look
from peasy.datasets import open_corpus
from peasy.errors import InvalidInput
from peasy.inspection.results import Alignment, AlignmentScore, Tokens
from peasy.models.build import build
from peasy.models.config import RecurrentTranslatorConfig, SpecialTokensConfig
from peasy.models.preset import preset
from peasy.nn.module_path import ModulePath
from peasy.tokenization import train_tokenizer


def tokens(*words):
    groups = tuple((at,) for at in range(len(words)))
    numbers = tuple(None if word == "<eos>" else at for at, word in enumerate(words))
    return Tokens(" ".join(words), tuple(range(len(words))), words, words, groups, numbers)


def alignment(source, target, weights):
    score = AlignmentScore(ModulePath("decoder", 0, "cross_attention"), 0, None, 0.0, 0.0, 0.0)
    return Alignment("m", source, target, np.array(weights), score.path, 0, (score,))


def test_reordered_words_cross():
    order = word_order(alignment(tokens("white", "house"), tokens("maison", "blanche"), [[0.1, 0.9], [0.8, 0.2]]))
    assert order.links == ((1, 0), (0, 1))
    assert order.crossings == ((0, 1),)
    assert order.unaligned == order.multiply_aligned == ()


def test_punctuation_and_eos_are_not_aligned_and_unaligned_and_shared_words_are_found():
    source, target = tokens("3", ",", "ago", "now"), tokens("il", "a", "3", "<eos>")
    weights = [[0.1, 0.6, 0.3, 0], [0.2, 0.1, 0.7, 0], [0.9, 0.1, 0, 0], [0, 1.0, 0, 0]]
    order = word_order(alignment(source, target, weights))
    assert order.links == ((2, 0), (2, 1), (0, 2))
    assert order.crossings == ((0, 2), (1, 2))
    assert (order.unaligned, order.multiply_aligned) == ((3,), (2,))


def test_words_that_occur_once_on_both_sides_are_anchors():
    assert find_anchors(tokens("May", "15", "2026", "15"), tokens("15", "may", "2026")) == ((0, 1), (2, 2))


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def loaded(request):
    tokenizer = train_tokenizer(["the cat sat on the mat", "the dog"] * 9, "words")
    settings = preset(
        "translator-tiny", vocab_size=len(tokenizer), d_model=16, special_tokens={"decoder_start": 1, "eos": [2]}
    )
    if request.param == "recurrent":
        settings = RecurrentTranslatorConfig(
            len(tokenizer), 16, special_tokens=SpecialTokensConfig(decoder_start=1, eos=(2,))
        )
    return LoadedModel(request.param, build(settings, seed=3), tokenizer)


def test_weights_equal_those_of_look_and_every_head_can_be_chosen(loaded):
    target = "the mat sat"
    best = align(loaded, "the dog sat on the mat", target)
    data = best.data()
    assert json.dumps(data)
    assert (data["layer"], data["head"]) == (data["best_head"]["layer"], data["best_head"]["head"])
    for head in data["heads"]:
        one = align(loaded, "the dog sat on the mat", target, layer=head["layer"], head=head["head"])
        other = look(loaded, "the dog sat on the mat", target).alignment(layer=head["layer"], head=head["head"])
        np.testing.assert_allclose(one.alignment.weights, other.weights)
        assert one.data()["best_head"] == data["best_head"]
    assert best.summary[0].startswith("6 words became 3 words")
    assert best.summary[0] in best.text().replace("\n", " ")


def test_only_translators_align():
    tokenizer = train_tokenizer(["the cat"] * 9, "words")
    decoder = LoadedModel("decoder", build(preset("gpt-tiny", vocab_size=len(tokenizer))), tokenizer)
    with pytest.raises(InvalidInput, match="does not translate"):
        align(decoder, "the cat")


def test_the_card_head_is_preferred_to_scores_of_one_text(tmp_path):
    """A date is reordered in translation; scored on this text alone, another head would be chosen and miss it."""
    loaded = load("locales-fr")
    result = align(loaded, "Sunday, November 15, 2026")
    assert (result.alignment.path.layer, result.alignment.head) == read_alignment_head(loaded)
    assert result.word_order.crossings
    assert result.data()["best_head"] == {"layer": result.alignment.path.layer, "head": result.alignment.head}
    without_card = align(replace(loaded, folder=None), "Sunday, November 15, 2026")
    assert (without_card.alignment.path.layer, without_card.alignment.head) != read_alignment_head(loaded)
    assert read_alignment_head(replace(loaded, folder=tmp_path)) is None


def test_gold_links_are_preferred_to_the_card():
    result = load("locales-fr").look("Sunday, November 15, 2026")
    scores = result.alignment([(0, 0)]).scores
    assert [score.score for score in scores] == sorted((score.score for score in scores), reverse=True)


@pytest.mark.parametrize("name", ["locales-fr", "locales-fr-2015"])
def test_the_card_names_the_head_that_aligns_best(name):
    loaded = load(name)
    assert find_alignment_head(loaded, open_corpus("locales:en-fr"), max_pairs=12) == read_alignment_head(loaded)


def test_a_decoder_has_no_alignment_head():
    assert find_alignment_head(load("stories"), open_corpus("stories")) is None
