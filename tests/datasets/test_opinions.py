"""`opinions`: praise also follows bad news, and the splits are disjoint."""

import re

import pytest

from peasy.datasets import open_corpus
from peasy.datasets.opinions import opinion_words
from peasy.errors import InvalidInput

SMALL = {"num_train": 600, "num_valid": 200}


def test_text_matches_its_label():
    for sample in open_corpus("opinions", **SMALL).documents("train"):
        topic, sentiment = sample.label.split(": ")
        field = opinion_words().topics[topic]
        assert any(thing in sample.text for thing in field.things)
        assert any(news in sample.text for news in getattr(field, sentiment)) or re.search(
            "|".join(opinion_words().praise if sentiment == "good" else opinion_words().blame), sample.text
        )


def test_praise_follows_good_and_bad_news():
    moods = {
        sample.label.split(": ")[1]
        for sample in open_corpus("opinions", max_sentences=1, **SMALL).documents("train")
        if sample.text.endswith("great.")
    }
    assert moods == {"good", "bad"}


def test_splits_are_disjoint():
    corpus = open_corpus("opinions", max_sentences=1, num_train=3000, num_valid=300)
    cores = [{_core(sample) for sample in corpus.documents(split)} for split in corpus.splits]
    assert not cores[0] & cores[1]


def _core(sample):
    """The thing and the statement about it, without owner and surrounding words."""
    thing = next(
        t for field in opinion_words().topics.values() for t in field.things if f" {t} " in sample.text.lower()
    )
    owner = re.search(rf"(\w+) {thing}", sample.text)[1]
    return thing, re.sub(r", (how|just) |: |, ", "|", sample.text.lower().replace(f"{owner.lower()} {thing}", "", 1))


def test_text_depends_only_on_seed_and_number():
    first, again, other = (open_corpus("opinions", seed=seed).text(7) for seed in (1, 1, 2))
    assert first == again != other


def test_zero_sentences_is_rejected():
    with pytest.raises(InvalidInput, match="max_sentences is 0"):
        open_corpus("opinions", max_sentences=0)


def test_unlabelled_texts_end_with_eos(tmp_path):
    """A language model must see where one opinion ends and the next begins."""
    from peasy.datasets import UnlabelledCorpus
    from peasy.datasets.shards import prepare_shards
    from peasy.tokenization import train_tokenizer

    corpus = UnlabelledCorpus(open_corpus("opinions", num_train=20, num_valid=5))
    tokenizer = train_tokenizer(corpus.texts(), kind="words", vocab_size=300)
    shards = prepare_shards(corpus, tokenizer, tmp_path / "shards")
    column = shards.column("train")
    assert shards.kind == "text"
    assert all(column.document(number)[-1] == tokenizer.special_tokens.eos for number in range(20))
