"""`align`: partners, order and number of words from weights that are known, and from models themselves."""

import json
from dataclasses import replace

import numpy as np
import pytest

from peasy.corpora import open_corpus
from peasy.errors import InvalidInput
from peasy.looking.label import Tokens
from peasy.looking.record import Alignment, AlignmentScore
from peasy.models.build import build
from peasy.models.config import RecurrentTranslatorConfig, Special
from peasy.models.preset import preset
from peasy.nn.place import Place
from peasy.text import train
from peasy.workbench.align import align, anchors, order_of
from peasy.workbench.aligner import aligning_head, find_aligning_head
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.look import look


def tokens(*words):
    places = tuple((at,) for at in range(len(words)))
    numbers = tuple(None if word == "<eos>" else at for at, word in enumerate(words))
    return Tokens(" ".join(words), tuple(range(len(words))), words, words, places, numbers)


def alignment(source, answer, weights):
    score = AlignmentScore(Place("decoder", 0, "cross_attention"), 0, None, 0.0, 0.0, 0.0)
    return Alignment("m", source, answer, np.array(weights), score.place, 0, (score,))


def test_words_that_change_places_cross():
    found = order_of(alignment(tokens("white", "house"), tokens("maison", "blanche"), [[0.1, 0.9], [0.8, 0.2]]))
    assert found.partners == ((1, 0), (0, 1))
    assert found.crossings == ((0, 1),)
    assert found.left == found.shared == ()


def test_commas_and_ends_are_no_words_and_size_shows_who_is_left_and_who_is_shared():
    source, answer = tokens("3", ",", "ago", "now"), tokens("il", "a", "3", "<eos>")
    weights = [[0.1, 0.6, 0.3, 0], [0.2, 0.1, 0.7, 0], [0.9, 0.1, 0, 0], [0, 1.0, 0, 0]]
    found = order_of(alignment(source, answer, weights))
    assert found.partners == ((2, 0), (2, 1), (0, 2))
    assert found.crossings == ((0, 2), (1, 2))
    assert (found.left, found.shared) == ((3,), (2,))


def test_words_that_stand_on_both_sides_once_belong_together():
    assert anchors(tokens("May", "15", "2026", "15"), tokens("15", "may", "2026")) == ((0, 1), (2, 2))


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def loaded(request):
    words = train(["the cat sat on the mat", "the dog"] * 9, "words")
    settings = preset("translator-tiny", vocabulary=len(words), d_model=16, special={"start": 1, "end": [2]})
    if request.param == "recurrent":
        settings = RecurrentTranslatorConfig(len(words), 16, special=Special(start=1, end=(2,)))
    return LoadedModel(request.param, build(settings, seed=3), words)


def test_weights_are_those_of_looking_and_every_head_can_be_chosen(loaded):
    answer = "the mat sat"
    best = align(loaded, "the dog sat on the mat", answer)
    told = best.data()
    assert json.dumps(told)
    assert (told["layer"], told["head"]) == (told["best"]["layer"], told["best"]["head"])
    for head in told["heads"]:
        one = align(loaded, "the dog sat on the mat", answer, layer=head["layer"], head=head["head"])
        other = look(loaded, "the dog sat on the mat", answer).alignment(layer=head["layer"], head=head["head"])
        np.testing.assert_allclose(one.alignment.weights, other.weights)
        assert one.data()["best"] == told["best"]
    assert best.says[0].startswith("6 words became 3 words")
    assert best.says[0] in best.text().replace("\n", " ")


def test_only_translators_align():
    words = train(["the cat"] * 9, "words")
    writer = LoadedModel("writer", build(preset("gpt-tiny", vocabulary=len(words))), words)
    with pytest.raises(InvalidInput, match="does not translate"):
        align(writer, "the cat")


def test_the_head_of_the_card_is_trusted_more_than_one_text(tmp_path):
    """A date changes its order; judged by this one text alone, another head would be taken and deny it."""
    loaded = load("locales-fr")
    found = align(loaded, "Sunday, November 15, 2026")
    assert (found.alignment.place.layer, found.alignment.head) == aligning_head(loaded)
    assert found.order.crossings
    assert found.data()["best"] == {"layer": found.alignment.place.layer, "head": found.alignment.head}
    alone = align(replace(loaded, folder=None), "Sunday, November 15, 2026")
    assert (alone.alignment.place.layer, alone.alignment.head) != aligning_head(loaded)
    assert aligning_head(replace(loaded, folder=tmp_path)) is None


def test_known_pairs_are_trusted_most():
    looked = load("locales-fr").look("Sunday, November 15, 2026")
    scores = looked.alignment([(0, 0)]).record.scores
    assert [score.score for score in scores] == sorted((score.score for score in scores), reverse=True)


@pytest.mark.parametrize("name", ["locales-fr", "locales-fr-2015"])
def test_the_card_names_the_head_that_aligns_best(name):
    loaded = load(name)
    assert find_aligning_head(loaded, open_corpus("locales:en-fr"), most=12) == aligning_head(loaded)


def test_a_model_that_has_no_source_aligns_nothing():
    assert find_aligning_head(load("stories"), open_corpus("stories")) is None
