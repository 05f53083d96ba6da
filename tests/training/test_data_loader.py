"""Data loaders: batches are functions of the position; targets, special tokens and positives are correct."""

import json

import pytest

from peasy import tokenization
from peasy.datasets import open_corpus
from peasy.datasets.shards import prepare_shards
from peasy.errors import InvalidInput
from peasy.models.config import SpecialTokensConfig
from peasy.training.data_loader import (
    ContrastiveDataLoader,
    DocumentDataLoader,
    PairDataLoader,
    SpecialTokens,
    WindowDataLoader,
    make_data_loader,
)
from peasy.training.objective import IGNORE_INDEX, Contrastive, MaskedToken, NextToken, Seq2Seq

SPECIAL = SpecialTokensConfig(pad=0, bos=3, eos=(3,), decoder_start=2, mask=4, unk=1)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    lines = [f"{'ab' * (i % 5 + 1)}{i}\t{'xy' * (i % 3 + 1)}{i}" for i in range(100)]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus = open_corpus(folder / "pairs.tsv")
    tokenizer = tokenization.train_tokenizer(corpus.texts("train"), kind="characters")
    return prepare_shards(corpus, tokenizer, folder / "shards"), tokenizer


def test_targets_follow_their_tokens(shards):
    opened, _ = shards
    batch = WindowDataLoader(opened.column("train"), None, seed=1).batch(0, 4, 16)
    assert batch["ids"].shape == (4, 16)
    assert (batch["ids"][:, 1:] == batch["targets"][:, :-1]).all()
    assert "padding_mask" not in batch


def test_batch_depends_only_on_position(shards):
    opened, _ = shards
    loader = WindowDataLoader(opened.column("train"), opened.column("valid"), seed=1)
    assert (loader.batch(8, 4, 16)["ids"] == loader.batch(8, 4, 16)["ids"]).all()
    assert (loader.batch(8, 4, 16)["ids"] != loader.batch(12, 4, 16)["ids"]).any()


def test_every_validation_token_is_a_target_once(shards):
    opened, _ = shards
    loader = WindowDataLoader(opened.column("train"), opened.column("valid"), seed=1)
    targets = sum(int((batch["targets"] != IGNORE_INDEX).sum()) for batch in loader.validation(3, 16))
    assert targets == len(opened.column("valid")) - 1


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    corpus = open_corpus("stories", num_train=64, num_valid=9)
    tokenizer = tokenization.train_tokenizer(corpus.texts("train"), kind="words")
    return corpus, prepare_shards(corpus, tokenizer, tmp_path_factory.mktemp("stories") / "shards"), tokenizer


def test_documents_are_sequences(stories):
    corpus, shards, tokenizer = stories
    loader = make_data_loader(
        shards, NextToken(), SPECIAL, SpecialTokens(bos=SPECIAL.bos), seed=1, sample_unit="documents"
    )
    assert isinstance(loader, DocumentDataLoader)
    seen = []
    for position in range(0, loader.num_samples(64), 2):  # one pool of batches that are sorted by length together
        batch = loader.batch(position, 2, 64)
        assert (batch["ids"][:, 0] == SPECIAL.bos).all()
        assert ((batch["targets"] != IGNORE_INDEX).sum(1) - batch["ids"].shape[1]).max() == 0, "as wide as the longest"
        seen += [tuple(id for id in row if id != IGNORE_INDEX) for row in batch["targets"].tolist()]
    documents = ((*tokenizer.encode(text, add_special_tokens=False).ids, 3) for text in corpus.texts("train"))
    assert sorted(seen) == sorted(documents)


def test_long_document_is_truncated(stories):
    _, shards, _ = stories
    (batch,) = DocumentDataLoader(shards, SpecialTokensConfig(), SpecialTokens(bos=3), seed=1).validation(9, 5)
    assert batch["ids"].shape == batch["targets"].shape == (9, 5)
    assert (batch["ids"][:, 1:] == batch["targets"][:, :-1]).all()


def test_masked_tokens_use_windows(stories):
    """Bidirectional attention would see padding, and windows have none."""
    _, shards, _ = stories
    assert isinstance(
        make_data_loader(shards, MaskedToken(), SPECIAL, SpecialTokens(), seed=1, sample_unit="documents"),
        WindowDataLoader,
    )


def test_targets_start_with_decoder_start_and_end_with_eos(pairs):
    opened, tokenizer = pairs
    batch = PairDataLoader(opened, SPECIAL, SpecialTokens(), seed=1).batch(0, 8, 64)
    assert (batch["ids"][:, 0] == 2).all()
    ends = (batch["targets"] != IGNORE_INDEX).sum(1) - 1
    assert (batch["targets"].gather(1, ends[:, None]) == 3).all()
    first = tokenizer.decode(batch["source"][0].tolist()).strip()
    answer = tokenizer.decode([id for id in batch["targets"][0].tolist() if id > 4])
    number = "".join(filter(str.isdigit, first))
    assert number
    assert number == "".join(filter(str.isdigit, answer))


def test_long_pairs_are_truncated(pairs):
    opened, _ = pairs
    batch = PairDataLoader(opened, SPECIAL, SpecialTokens(), seed=1).batch(0, 8, 4)
    assert batch["ids"].shape[1] <= 4
    assert batch["source"].shape[1] <= 4


def test_special_tokens_match_the_tokenizer(shards):
    _, plain = shards
    assert SpecialTokens.from_tokenizer(plain) == SpecialTokens()
    wrapped = tokenization.train_tokenizer(["a b"] * 3, kind="characters", add_bos_eos=True)
    assert SpecialTokens.from_tokenizer(wrapped) == SpecialTokens(
        wrapped.special_tokens.bos, wrapped.special_tokens.eos
    )


def test_sources_get_special_tokens(pairs):
    opened, _ = pairs
    bare = PairDataLoader(opened, SPECIAL, SpecialTokens(), seed=1).batch(0, 4, 64)["source"]
    wrapped = PairDataLoader(opened, SPECIAL, SpecialTokens(bos=2, eos=3), seed=1).batch(0, 4, 64)["source"]
    assert wrapped.shape[1] == bare.shape[1] + 2
    assert (wrapped[:, 0] == 2).all()


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Twelve texts of two labels, and one with a label of its own."""
    folder = tmp_path_factory.mktemp("labelled")
    rows = [{"text": f"text {i:02}", "label": ("red", "blue")[i % 2]} for i in range(12)]
    rows.append({"text": "text 12", "label": "alone"})
    for name in ("train", "valid"):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    corpus = open_corpus(folder)
    tokenizer = tokenization.train_tokenizer(corpus.texts("train"), kind="characters")
    return prepare_shards(corpus, tokenizer, folder / "shards"), tokenizer


def test_positives_share_the_label_and_differ(labelled):
    opened, tokenizer = labelled
    loader = ContrastiveDataLoader(opened, SPECIAL, SpecialTokens(), seed=1)
    pairs_seen = set()
    for position in range(0, 52, 4):
        batch = loader.batch(position, 4, 16)
        for source, positive, label in zip(batch["source"], batch["ids"], batch["label"], strict=True):
            first, second = (int(tokenizer.decode(ids.tolist())[-2:]) for ids in (source, positive))
            pairs_seen.add((first, second))
            assert opened.labels[label] == ("alone" if first == 12 else ("red", "blue")[first % 2])
            assert (first == second) if first == 12 else (first != second and first % 2 == second % 2)
    assert len(pairs_seen) > 20  # not always the same positive


def test_data_loader_matches_objective(shards, pairs):
    texts, two = shards[0], pairs[0]
    assert isinstance(make_data_loader(texts, NextToken(), SPECIAL, SpecialTokens(), seed=0), WindowDataLoader)
    assert isinstance(make_data_loader(two, Seq2Seq(), SPECIAL, SpecialTokens(), seed=0), PairDataLoader)
    assert isinstance(make_data_loader(two, Contrastive(), SPECIAL, SpecialTokens(), seed=0), ContrastiveDataLoader)
    for shard, objective in ((texts, Seq2Seq()), (two, NextToken()), (texts, Contrastive())):
        with pytest.raises(InvalidInput):
            make_data_loader(shard, objective, SPECIAL, SpecialTokens(), seed=0)
