"""`opinions`: praise after bad news is not liking; what is held out is never learned from."""

import re

import pytest

from peasy.corpora import open_corpus
from peasy.corpora.opinions import world
from peasy.errors import InvalidInput

SMALL = {"size": 600, "held_out": 200}


def test_every_text_tells_its_topic_and_its_mood():
    for sample in open_corpus("opinions", **SMALL).documents("train"):
        topic, mood = sample.label.split(": ")
        field = world().topics[topic]
        assert any(thing in sample.text for thing in field.things)
        assert any(news in sample.text for news in getattr(field, mood)) or re.search(
            "|".join(world().praise if mood == "good" else world().blame), sample.text
        )


def test_praise_follows_good_and_bad_news():
    moods = {
        sample.label.split(": ")[1]
        for sample in open_corpus("opinions", sentences=1, **SMALL).documents("train")
        if sample.text.endswith("great.")
    }
    assert moods == {"good", "bad"}


def test_what_is_held_out_is_never_learned_from():
    corpus = open_corpus("opinions", sentences=1, size=3000, held_out=300)
    cores = [{_core(sample) for sample in corpus.documents(split)} for split in corpus.splits]
    assert not cores[0] & cores[1]


def _core(sample):
    """The thing and what is said of it: owners and the words around are free."""
    thing = next(t for field in world().topics.values() for t in field.things if f" {t} " in sample.text.lower())
    owner = re.search(rf"(\w+) {thing}", sample.text)[1]
    return thing, re.sub(r", (how|just) |: |, ", "|", sample.text.lower().replace(f"{owner.lower()} {thing}", "", 1))


def test_the_same_number_is_the_same_text():
    first, again, other = (open_corpus("opinions", seed=seed).text(7) for seed in (1, 1, 2))
    assert first == again != other


def test_no_sentences_is_refused():
    with pytest.raises(InvalidInput, match="at least 1"):
        open_corpus("opinions", sentences=0)


def test_without_labels_texts_end_where_they_end(tmp_path):
    """A model of running text must see where one opinion stops and the next begins."""
    from peasy.corpora import Unlabelled, prepare
    from peasy.text import train

    corpus = Unlabelled(open_corpus("opinions", size=20, held_out=5))
    tokenizer = train(corpus.texts(), kind="words", vocabulary=300)
    shards = prepare(corpus, tokenizer, tmp_path / "shards")
    column = shards.column("train")
    assert shards.kind == "text"
    assert all(column.document(number)[-1] == tokenizer.special.eos for number in range(20))
