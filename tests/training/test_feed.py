"""Data loaders: batches are functions of the position; targets, special tokens and positives are correct."""

import json

import pytest

from peasy import text
from peasy.corpora import open_corpus, prepare
from peasy.errors import InvalidInput
from peasy.models.config import Special
from peasy.training.feed import DocumentFeed, Frame, PairFeed, SentenceFeed, TextFeed, choose_feed
from peasy.training.objective import HIDDEN, Contrastive, MaskedToken, NextToken, SourceToTarget

SPECIAL = Special(padding=0, begin=3, end=(3,), start=2, mask=4, unknown=1)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    lines = [f"{'ab' * (i % 5 + 1)}{i}\t{'xy' * (i % 3 + 1)}{i}" for i in range(100)]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus = open_corpus(folder / "pairs.tsv")
    tokenizer = text.train(corpus.texts("train"), kind="characters")
    return prepare(corpus, tokenizer, folder / "shards"), tokenizer


def test_targets_follow_their_tokens(shards):
    opened, _ = shards
    batch = TextFeed(opened.column("train"), None, seed=1).batch(0, 4, 16)
    assert batch["ids"].shape == (4, 16)
    assert (batch["ids"][:, 1:] == batch["targets"][:, :-1]).all()
    assert "real" not in batch


def test_batch_depends_only_on_position(shards):
    opened, _ = shards
    feed = TextFeed(opened.column("train"), opened.column("valid"), seed=1)
    assert (feed.batch(8, 4, 16)["ids"] == feed.batch(8, 4, 16)["ids"]).all()
    assert (feed.batch(8, 4, 16)["ids"] != feed.batch(12, 4, 16)["ids"]).any()


def test_every_validation_token_is_a_target_once(shards):
    opened, _ = shards
    feed = TextFeed(opened.column("train"), opened.column("valid"), seed=1)
    targets = sum(int((batch["targets"] != HIDDEN).sum()) for batch in feed.held_out(3, 16))
    assert targets == len(opened.column("valid")) - 1


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    corpus = open_corpus("stories", size=64, held_out=9)
    tokenizer = text.train(corpus.texts("train"), kind="words")
    return corpus, prepare(corpus, tokenizer, tmp_path_factory.mktemp("stories") / "shards"), tokenizer


def test_documents_are_sequences(stories):
    corpus, shards, tokenizer = stories
    feed = choose_feed(shards, NextToken(), SPECIAL, Frame(), seed=1, rows="documents")
    assert isinstance(feed, DocumentFeed)
    seen = []
    for position in range(0, feed.samples(64), 2):  # one pool of batches that are sorted by length together
        batch = feed.batch(position, 2, 64)
        assert (batch["ids"][:, 0] == SPECIAL.begin).all()
        assert ((batch["targets"] != HIDDEN).sum(1) - batch["ids"].shape[1]).max() == 0, "as wide as the longest"
        seen += [tuple(id for id in row if id != HIDDEN) for row in batch["targets"].tolist()]
    assert sorted(seen) == sorted((*tokenizer.encode(t, special=False).ids, 3) for t in corpus.texts("train"))


def test_long_document_is_truncated(stories):
    _, shards, _ = stories
    (batch,) = DocumentFeed(shards, 3, seed=1).held_out(9, 5)
    assert batch["ids"].shape == batch["targets"].shape == (9, 5)
    assert (batch["ids"][:, 1:] == batch["targets"][:, :-1]).all()


def test_masked_tokens_use_windows(stories):
    """Bidirectional attention would see padding, and windows have none."""
    _, shards, _ = stories
    assert isinstance(choose_feed(shards, MaskedToken(), SPECIAL, Frame(), seed=1, rows="documents"), TextFeed)


def test_targets_start_with_decoder_start_and_end_with_eos(pairs):
    opened, tokenizer = pairs
    batch = PairFeed(opened, SPECIAL, Frame(), seed=1).batch(0, 8, 64)
    assert (batch["ids"][:, 0] == 2).all()
    ends = (batch["targets"] != HIDDEN).sum(1) - 1
    assert (batch["targets"].gather(1, ends[:, None]) == 3).all()
    first = tokenizer.decode(batch["source"][0].tolist()).strip()
    answer = tokenizer.decode([id for id in batch["targets"][0].tolist() if id > 4])
    number = "".join(filter(str.isdigit, first))
    assert number
    assert number == "".join(filter(str.isdigit, answer))


def test_long_pairs_are_truncated(pairs):
    opened, _ = pairs
    batch = PairFeed(opened, SPECIAL, Frame(), seed=1).batch(0, 8, 4)
    assert batch["ids"].shape[1] <= 4
    assert batch["source"].shape[1] <= 4


def test_special_tokens_match_the_tokenizer(shards):
    _, plain = shards
    assert Frame.of(plain) == Frame()
    wrapped = text.train(["a b"] * 3, kind="characters", wrap=True)
    assert Frame.of(wrapped) == Frame(wrapped.special.bos, wrapped.special.eos)


def test_sources_get_special_tokens(pairs):
    opened, _ = pairs
    bare = PairFeed(opened, SPECIAL, Frame(), seed=1).batch(0, 4, 64)["source"]
    framed = PairFeed(opened, SPECIAL, Frame(begin=2, end=3), seed=1).batch(0, 4, 64)["source"]
    assert framed.shape[1] == bare.shape[1] + 2
    assert (framed[:, 0] == 2).all()


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Twelve texts of two labels, and one with a label of its own."""
    folder = tmp_path_factory.mktemp("labelled")
    rows = [{"text": f"text {i:02}", "label": ("red", "blue")[i % 2]} for i in range(12)]
    rows.append({"text": "text 12", "label": "alone"})
    for name in ("train", "valid"):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    corpus = open_corpus(folder)
    tokenizer = text.train(corpus.texts("train"), kind="characters")
    return prepare(corpus, tokenizer, folder / "shards"), tokenizer


def test_positives_share_the_label_and_differ(labelled):
    opened, tokenizer = labelled
    feed = SentenceFeed(opened, SPECIAL, Frame(), seed=1)
    pairs_seen = set()
    for position in range(0, 52, 4):
        batch = feed.batch(position, 4, 16)
        for source, positive, label in zip(batch["source"], batch["ids"], batch["label"], strict=True):
            first, second = (int(tokenizer.decode(ids.tolist())[-2:]) for ids in (source, positive))
            pairs_seen.add((first, second))
            assert opened.labels[label] == ("alone" if first == 12 else ("red", "blue")[first % 2])
            assert (first == second) if first == 12 else (first != second and first % 2 == second % 2)
    assert len(pairs_seen) > 20  # not always the same positive


def test_data_loader_matches_objective(shards, pairs):
    texts, two = shards[0], pairs[0]
    assert isinstance(choose_feed(texts, NextToken(), SPECIAL, Frame(), seed=0), TextFeed)
    assert isinstance(choose_feed(two, SourceToTarget(), SPECIAL, Frame(), seed=0), PairFeed)
    assert isinstance(choose_feed(two, Contrastive(), SPECIAL, Frame(), seed=0), SentenceFeed)
    for shard, objective in ((texts, SourceToTarget()), (two, NextToken()), (texts, Contrastive())):
        with pytest.raises(InvalidInput):
            choose_feed(shard, objective, SPECIAL, Frame(), seed=0)
