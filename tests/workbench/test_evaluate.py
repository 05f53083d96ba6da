"""Each measure by another road: the training loop's own validation, sums by hand, models that know the answer."""

import math

import numpy as np
import pytest
import torch

from peasy.checkpoint.model import save_model
from peasy.corpora import open_corpus, prepare, windows_in_order
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.text import train as train_tokenizer
from peasy.training.setup import special_of
from peasy.workbench import measure
from peasy.workbench.evaluate import evaluate, find_scored
from peasy.workbench.load import LoadedModel

LINES = "The pizza came out of the oven and it tasted good.\nThe oven baked the pizza — it was switched off.\n" * 40


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


def small(kind: str, tokenizer, **changes) -> LoadedModel:
    from peasy import config

    special = config.plain(special_of(tokenizer))
    settings = preset(f"{kind}-tiny", vocabulary=len(tokenizer), d_model=16, special=special, **changes)
    return LoadedModel(kind, build(settings, seed=1), tokenizer)


def test_every_token_of_the_held_out_text_counts_once(book, tmp_path):
    """The other road: windows of token shards, as the training loop validates."""
    corpus = open_corpus(book)
    tokenizer = train_tokenizer(corpus.texts("train"), kind="characters")
    loaded = small("gpt", tokenizer)
    found = evaluate(loaded, book, context=7)
    total, count = 0.0, 0
    column = prepare(corpus, tokenizer, tmp_path / "shards").column("valid")
    for batch in windows_in_order(column, 7, 5):
        with torch.inference_mode():
            scores = loaded.model(torch.from_numpy(batch.inputs), real=torch.from_numpy(batch.real))
        chances = scores.log_softmax(-1).gather(2, torch.from_numpy(batch.targets)[..., None])[..., 0]
        total -= float(chances[torch.from_numpy(batch.real)].double().sum())
        count += int(batch.real.sum())
    assert found["loss"] == pytest.approx(total / count, abs=1e-5)
    assert found.facts.counted == f"{count:,} tokens"
    text = "".join(map(str, corpus.documents("valid")))
    assert found["bits per byte"] == pytest.approx(total / math.log(2) / len(text[1:].encode()), abs=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)


def test_windows_do_not_depend_on_how_the_text_comes():
    tokenizer = train_tokenizer([LINES], kind="characters")
    loaded = small("gpt", tokenizer)
    whole, _ = measure.measure_text(loaded, [(LINES[:500], False)], 16, lambda done: None)
    parts, _ = measure.measure_text(loaded, [(letter, False) for letter in LINES[:500]], 16, lambda done: None)
    assert (whole.tokens, whole.right, whole.bytes) == (parts.tokens, parts.right, parts.bytes)
    assert whole.nats == pytest.approx(parts.nats, rel=1e-6)


def test_whole_texts_are_read_one_by_one():
    """The other road: each alone, after an end token, with its own end asked for."""
    tokenizer = train_tokenizer([LINES], kind="characters")
    loaded, texts = small("gpt", tokenizer), ["it tasted good.", "The oven", "The pizza came out of the oven"]
    found, _ = measure.measure_text(loaded, [(text, True) for text in texts], 64, lambda done: None, whole=True)
    wanted, end = 0.0, tokenizer.special.eos
    for text in texts:
        ids = torch.tensor([[end, *tokenizer.encode(text, special=False).ids, end]])
        with torch.inference_mode():
            chances = loaded.model(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None])
        wanted -= float(chances.double().sum())
    assert found.nats == pytest.approx(wanted, rel=1e-5)
    assert found.tokens == sum(map(len, texts)) + len(texts)
    assert found.bytes == sum(map(len, texts))


class _Knows:
    """Scores as if the model knew which words belong together: 5 for the next token of a known text, else 0."""

    def __init__(self, loaded, texts):
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.known = {tuple(ids[: i + 1]): ids[i + 1] for ids in texts for i in range(len(ids) - 1)}

    def __call__(self, ids, real=None):
        scores = torch.zeros(*ids.shape, len(self.tokenizer))
        for row, at in np.ndindex(*ids.shape):
            wanted = self.known.get(tuple(ids[row, : at + 1].tolist()))
            if wanted is not None:
                scores[row, at, wanted] = 5
        return scores


@pytest.mark.parametrize(("taught", "share"), [("right", 1.0), ("wrong", 0.0)])
def test_the_likelier_ending_is_the_choice(taught, share, monkeypatch):
    corpus = open_corpus("stories", size=50, held_out=6)
    tokenizer = train_tokenizer(list(corpus.texts("train")), kind="words")
    loaded = small("gpt", tokenizer)
    begin = loaded.model.config.special.begin
    probes = list(corpus.probes("valid"))
    texts = {"right": [p.text for p in probes], "wrong": [p.prompt + p.wrong for p in probes]}[taught]
    knows = _Knows(loaded, [[begin, *ids] for ids in tokenizer.ids(texts, special=False)])
    monkeypatch.setattr(type(loaded.model), "forward", lambda self, ids, real=None: knows(ids))
    assert measure.measure_endings(loaded, probes, None, lambda done: None).share == share


@pytest.mark.parametrize(("taught", "share"), [(True, 1.0), (False, 0.0)])
def test_an_ending_without_a_rival_must_be_written(taught, share, monkeypatch):
    corpus = open_corpus("copy:3", size=50, held_out=6)
    tokenizer = train_tokenizer(list(corpus.texts("train")), kind="words")
    loaded = small("gpt", tokenizer)
    begin, probes = loaded.model.config.special.begin, list(corpus.probes("valid"))
    rows = [[begin, *ids] for ids in tokenizer.ids([p.text for p in probes], special=False)] if taught else []
    knows = _Knows(loaded, rows)
    monkeypatch.setattr(type(loaded.model), "forward", lambda self, ids, real=None: knows(ids))
    assert measure.measure_endings(loaded, probes, None, lambda done: None).share == share


def test_translations_are_held_against_their_targets(monkeypatch):
    corpus = open_corpus("locales:en-fr", size=300)
    tokenizer = train_tokenizer(list(corpus.texts("train")), "bpe", 400)
    loaded = small("translator", tokenizer)
    answers = {pair.source: pair.target for pair in corpus.documents("valid")}
    dates = {pair.source for pair in corpus.documents("valid") if pair.category == "date"}
    monkeypatch.setattr(
        measure, "translate", lambda loaded, sources: [answers[s] if s in dates else "non" for s in sources]
    )
    found = evaluate(loaded, corpus)
    right = {name: (good, asked) for name, good, asked in found.facts.categories}
    assert right["date"] == (len(dates), len(dates))
    assert all(good == 0 for name, (good, _) in right.items() if name != "date")
    assert found["exact match"] == pytest.approx(len(dates) / len(answers))
    assert 0 < found["BLEU"] < 100
    assert "version:" in found.data()["says"]["BLEU"]
    assert 0 < len(found.facts.wrong) <= 5


def test_a_translator_translates(monkeypatch):
    corpus = open_corpus("locales:en-fr", size=200)
    tokenizer = train_tokenizer(list(corpus.texts("train")), "bpe", 400)
    found = evaluate(small("translator", tokenizer), corpus, limit=4)
    assert found.facts.counted == "4 pairs"
    assert found["loss"] > 1


def test_sentences_are_ranked_against_peoples_scores(encoder, tmp_path, monkeypatch):
    path = tmp_path / "sts.tsv"
    path.write_text("one\ttwo\t0\none\tone\t5\none\tthree\t2.5\nbad row\n", encoding="utf-8")
    vectors = {"one": [1.0, 0.0], "two": [0.0, 1.0], "three": [1.0, 1.0]}
    monkeypatch.setattr(LoadedModel, "embed", lambda self, texts: np.array([vectors[t] for t in texts]))
    found = evaluate(encoder, path)
    assert found["STS Spearman"] == pytest.approx(1)
    assert "1 rows could not be used" in found.text().replace("\n", " ")
    monkeypatch.setitem(vectors, "three", [-1.0, 0.0])
    assert evaluate(encoder, path)["STS Spearman"] == pytest.approx(0.5)


def test_scored_files_are_told_from_pairs(tmp_path):
    for name, text, scored in [
        ("a.tsv", "one\ttwo\t3.5\n", True),
        ("b.tsv", "one\ttwo\n", False),
        ("c.jsonl", '{"source": "a", "target": "b", "score": 1}\n', True),
        ("d.jsonl", '{"source": "a", "target": "b"}\n', False),
        ("e.txt", "one\ttwo\t3.5\n", False),
    ]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert (find_scored(tmp_path / name) is not None) == scored, name


def test_an_encoder_finds_partners_and_covered_words(encoder, book, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    words = ("pizza", "came", "out", "oven", "tasted good", "it", "and the")
    pairs.write_text("".join(f"{word}\t{word}\n" for word in words), encoding="utf-8")
    assert evaluate(encoder, pairs, split="all")["partner found"] == 1.0
    labelled = tmp_path / "labels.jsonl"
    rows = [f'{{"text": "{word} {i}", "label": "{word}"}}' for i in range(4) for word in ("pizza", "oven")]
    labelled.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert 0 <= evaluate(encoder, labelled, split="all")["label found"] <= 1
    tokenizer = train_tokenizer([LINES], kind="words")
    assert evaluate(small("encoder", tokenizer), book)["loss"] > 1


def test_what_does_not_fit_is_refused(decoder, encoder, book):
    with pytest.raises(InvalidInput, match="pairs"):
        evaluate(decoder, "locales")
    with pytest.raises(InvalidInput, match="no split"):
        evaluate(decoder, book, split="vlaid")
    with pytest.raises(InvalidInput, match="context"):
        evaluate(decoder, book, context=100_000)
    with pytest.raises(InvalidInput, match="limit"):
        evaluate(decoder, book, limit=0)


def test_progress_is_told_and_ends(decoder, book):
    told = []
    found = evaluate(decoder, book, split="all", progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] == len(LINES)
    assert found.data()["split"] == "all"
    assert "loss" in repr(found)


def test_an_ngram_model_comes_back_from_its_file(tmp_path):
    tokenizer = train_tokenizer([LINES], kind="words")
    loaded = small_ngram(tokenizer)
    loaded.model.observe(torch.tensor(tokenizer.ids([LINES])))
    folder = save_model(tmp_path / "ngram", loaded.model, tokenizer)
    text = tmp_path / "t.txt"
    text.write_text(LINES, encoding="utf-8")
    assert evaluate(folder, text)["loss"] == pytest.approx(evaluate(loaded, text)["loss"])


def small_ngram(tokenizer) -> LoadedModel:
    from peasy.models.config import NGramConfig

    return LoadedModel("ngram", build(NGramConfig(len(tokenizer), special=special_of(tokenizer))), tokenizer)
