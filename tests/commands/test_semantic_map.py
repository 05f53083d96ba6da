"""Semantic maps use the model's own vectors; "before" shows the initial weights of the run."""

import json

import numpy as np
import pytest

from peasy.commands.load import LoadedModel
from peasy.commands.semantic_map import map_texts, map_words
from peasy.commands.train import train
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer

TEXTS = ["the cat sat on the mat and the dog sat under the old tree"] * 9
DOCUMENTS = [["the cat sat on the mat", "the dog sat"], ["the old tree", "under the old tree"]]


@pytest.fixture(scope="module")
def words():
    return train_tokenizer(TEXTS, "words")


@pytest.fixture(scope="module")
def reader(words):
    return LoadedModel("reader", build(preset("encoder-tiny", vocab_size=len(words), d_model=16), seed=3), words)


def test_map_uses_embeddings_and_documents_are_means(reader):
    result = map_texts(reader, DOCUMENTS, clusters=2)
    texts = [text for document in DOCUMENTS for text in document]
    vectors = reader.embed(texts).vectors
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(result.cosines[:4, :4], unit @ unit.T, atol=1e-6)
    mean = vectors[:2].mean(axis=0)
    assert result.cosines[4, 0] == pytest.approx(float(mean @ unit[0] / np.linalg.norm(mean)), abs=1e-6)
    assert [point.kind for point in result.points] == ["sentence"] * 4 + ["document"] * 2
    for at, point in enumerate(result.points):
        others = sorted(range(len(result.points)), key=lambda other: -result.cosines[at, other])
        assert point.neighbours[0][1] == pytest.approx(
            result.cosines[at, others[1] if others[0] == at else others[0]], abs=1e-6
        )
    assert json.dumps(result.data())
    assert "the old tree" in result.text()


def test_one_document_shows_only_sentences(reader):
    assert {point.kind for point in map_texts(reader, DOCUMENTS[:1], clusters=1).points} == {"sentence"}


@pytest.mark.parametrize("documents", [[[]], [["alone"]], [["a"] * 501]])
def test_too_few_or_too_many_texts_are_rejected(reader, documents):
    with pytest.raises(InvalidInput, match="A map needs 2 to"):
        map_texts(reader, documents)


def test_before_shows_initial_weights_of_the_run(tmp_path):
    result = train("words", "copy", preset="tiny", steps=3, seed=5, run=tmp_path / "letters")
    maps = map_words(result.model, ["a", "b", "c", "d"])
    assert maps.is_exact_init
    assert maps.seed == 5
    first = build(result.model.model.config, seed=5).embedding.weight.detach().numpy()
    ids = [result.model.tokenizer.encode(letter, add_special_tokens=False).ids[-1] for letter in "ab"]
    one, two = first[ids[0]], first[ids[1]]
    cosine = float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))
    assert dict(maps.before[0].neighbours)[1] == pytest.approx(cosine, abs=1e-5)
    assert [point.name for point in maps.before] == [point.name for point in maps.after] == list("abcd")
    assert [point.group for point in maps.before] == [point.group for point in maps.after]


def test_unknown_words_are_listed_and_missing_initial_weights_are_reported(words):
    model = LoadedModel("bare", build(preset("words-tiny", vocab_size=len(words)), seed=3), words)
    result = map_words(model, ["cat", "zebra", "dog"], clusters=2)
    assert result.unknown == ("zebra",)
    assert not result.is_exact_init
    assert "drawn" in result.summary
    assert "zebra" in result.text()
    assert len(map_words(model).after) >= 2
    with pytest.raises(InvalidInput, match="A map needs 2 to"):
        map_words(model, ["zebra", "yak"])
