"""`evaluate`: each measure against a second computation: validation batches, manual sums, models that know texts."""

import json
import math

import numpy as np
import pytest
import torch

import peasy
from peasy.checkpoint.model import save_model
from peasy.commands.evaluate import EvaluateResult, EvaluationMetric, evaluate
from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.datasets.batches import sequential_windows
from peasy.datasets.shards import prepare_shards
from peasy.errors import InvalidInput
from peasy.evaluation import language
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import Tokenizer, train_tokenizer
from peasy.training.setup import special_ids
from peasy.views.document import Table

LINES = "The pizza came out of the oven and it tasted good.\nThe oven baked the pizza — it was switched off.\n" * 40


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


def small(kind: str, tokenizer, **changes) -> LoadedModel:
    from peasy import config

    special = config.to_plain(special_ids(tokenizer))
    settings = preset(f"{kind}-tiny", vocab_size=len(tokenizer), d_model=16, special_tokens=special, **changes)
    return LoadedModel(kind, build(settings, seed=1), tokenizer)


def test_every_validation_token_counts_once(book, tmp_path):
    """Second computation: windows of token shards, as in the training loop's validation."""
    corpus = open_corpus(book)
    tokenizer = train_tokenizer(corpus.texts("train"), kind="characters")
    loaded = small("gpt", tokenizer)
    result = evaluate(loaded, book, seq_len=7)
    total, count = 0.0, 0
    column = prepare_shards(corpus, tokenizer, tmp_path / "shards").column("valid")
    for batch in sequential_windows(column, 7, 5):
        with torch.inference_mode():
            logits = loaded.model(torch.from_numpy(batch.inputs), padding_mask=torch.from_numpy(batch.padding_mask))
        logprobs = logits.log_softmax(-1).gather(2, torch.from_numpy(batch.targets)[..., None])[..., 0]
        total -= float(logprobs[torch.from_numpy(batch.padding_mask)].double().sum())
        count += int(batch.padding_mask.sum())
    assert result["loss"] == pytest.approx(total / count, abs=1e-5)
    assert result.sample_count == f"{count:,} tokens"
    text = "".join(map(str, corpus.documents("valid")))
    assert result["bits per byte"] == pytest.approx(total / math.log(2) / len(text[1:].encode()), abs=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)


def test_translations_are_compared_with_their_references(monkeypatch):
    corpus = open_corpus("locales:en-fr", num_pairs=300)
    tokenizer = train_tokenizer(list(corpus.texts("train")), "bpe", 400)
    loaded = small("translator", tokenizer)
    answers = {pair.source: pair.target for pair in corpus.documents("valid")}
    dates = {pair.source for pair in corpus.documents("valid") if pair.category == "date"}
    monkeypatch.setattr(
        language, "translate_greedy", lambda loaded, sources: [answers[s] if s in dates else "non" for s in sources]
    )
    result = evaluate(loaded, corpus)
    by_category = {name: (correct, count) for name, correct, count in result.categories}
    assert by_category["date"] == (len(dates), len(dates))
    assert all(correct == 0 for name, (correct, _) in by_category.items() if name != "date")
    assert result["exact match"] == pytest.approx(len(dates) / len(answers))
    assert 0 < result["BLEU"] < 100
    assert "version:" in result.data()["description"]["BLEU"]
    assert 0 < len(result.errors) <= 5


def test_max_samples_counts_pairs():
    corpus = open_corpus("locales:en-fr", num_pairs=200)
    tokenizer = train_tokenizer(list(corpus.texts("train")), "bpe", 400)
    result = evaluate(small("translator", tokenizer), corpus, max_samples=4)
    assert result.sample_count == "4 pairs"
    assert result["loss"] > 1


def test_sts_correlation_with_human_scores(encoder, tmp_path, monkeypatch):
    path = tmp_path / "sts.tsv"
    path.write_text("one\ttwo\t0\none\tone\t5\none\tthree\t2.5\nbad row\n", encoding="utf-8")
    vectors = {"one": [1.0, 0.0], "two": [0.0, 1.0], "three": [1.0, 1.0]}
    monkeypatch.setattr(LoadedModel, "embed_texts", lambda self, texts: np.array([vectors[t] for t in texts]))
    result = evaluate(encoder, path)
    assert result["STS Spearman"] == pytest.approx(1)
    assert "1 rows could not be used" in result.text().replace("\n", " ")
    monkeypatch.setitem(vectors, "three", [-1.0, 0.0])
    assert evaluate(encoder, path)["STS Spearman"] == pytest.approx(0.5)


def test_an_encoder_is_evaluated_on_pairs_labels_and_masked_tokens(encoder, book, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    words = ("pizza", "came", "out", "oven", "tasted good", "it", "and the")
    pairs.write_text("".join(f"{word}\t{word}\n" for word in words), encoding="utf-8")
    assert evaluate(encoder, pairs, split="all")["retrieval accuracy"] == 1.0
    labelled = tmp_path / "labels.jsonl"
    rows = [f'{{"text": "{word} {i}", "label": "{word}"}}' for i in range(4) for word in ("pizza", "oven")]
    labelled.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert 0 <= evaluate(encoder, labelled, split="all")["nearest-neighbour accuracy"] <= 1
    tokenizer = train_tokenizer([LINES], kind="words")
    assert evaluate(small("encoder", tokenizer), book)["loss"] > 1


def test_texts_that_are_cut_are_counted(encoder, tmp_path):
    longest = peasy.load(encoder).max_text_tokens
    long, end = "pizza " * (longest + 5), f"cut to the first {longest} tokens: the model reads no more."
    files = {"pairs.tsv": f"it\tit\nout\t{long}\n", "sts.tsv": f"it\tit\t5\nout\t{long}\t1\n"}
    files["labels.jsonl"] = "".join(
        json.dumps({"text": text, "label": text[:2]}) + "\n" for text in ("it", "out", "it", long)
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        result = evaluate(encoder, tmp_path / name, split="all")
        assert result.notes[-1] == f"1 of 4 texts were {end}", name
        short = text.replace(long, "came")
        (tmp_path / name).write_text(short, encoding="utf-8")
        assert len(evaluate(encoder, tmp_path / name, split="all").notes) == 1, name


def test_a_long_source_keeps_its_end(tmp_path, monkeypatch):
    """It is cut as `long="cut"` cuts it: the token that ends a source is kept."""
    corpus = open_corpus("locales:en-fr", num_pairs=200)
    loaded = small("translator", train_tokenizer(list(corpus.texts("train")), "bpe", 400))
    (tmp_path / "pairs.tsv").write_text(f"{'May ' * 200}\tmai\n" * 2, encoding="utf-8")
    monkeypatch.setattr(language, "generate", lambda model, source, **_: sources.extend(source) or [[5]] * 2)
    eos, real, sources = loaded.tokenizer.special_tokens.eos, Tokenizer.encode_batch_ids, []
    monkeypatch.setattr(
        Tokenizer, "encode_batch_ids", lambda *given, **more: [[*ids, eos] for ids in real(*given, **more)]
    )
    result = evaluate(loaded, tmp_path / "pairs.tsv", split="all")
    assert "2 of 4 texts were cut" in result.notes[-1]
    assert sources == [[*loaded.encode_prompt("May " * 200)[: loaded.max_seq_len - 1], eos]] * 2


def test_unsuitable_data_and_options_are_refused(decoder, encoder, book):
    with pytest.raises(InvalidInput, match="pairs"):
        evaluate(decoder, "locales")
    with pytest.raises(InvalidInput, match="no split"):
        evaluate(decoder, book, split="vlaid")
    with pytest.raises(InvalidInput, match="windows of"):
        evaluate(decoder, book, seq_len=100_000)
    with pytest.raises(InvalidInput, match="max_samples"):
        evaluate(decoder, book, max_samples=0)


def test_progress_reaches_the_total(decoder, book):
    calls = []
    result = evaluate(decoder, book, split="all", on_progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] == len(LINES)
    assert result.data()["split"] == "all"
    assert "loss" in repr(result)


def test_a_saved_ngram_model_has_the_same_loss(tmp_path):
    tokenizer = train_tokenizer([LINES], kind="words")
    loaded = small_ngram(tokenizer)
    loaded.model.add_counts(torch.tensor(tokenizer.encode_batch_ids([LINES])))
    folder = save_model(tmp_path / "ngram", loaded.model, tokenizer)
    text = tmp_path / "t.txt"
    text.write_text(LINES, encoding="utf-8")
    assert evaluate(folder, text)["loss"] == pytest.approx(evaluate(loaded, text)["loss"])


def small_ngram(tokenizer) -> LoadedModel:
    from peasy.models.config import NGramConfig

    return LoadedModel("ngram", build(NGramConfig(len(tokenizer), special_tokens=special_ids(tokenizer))), tokenizer)


def tables(result):
    return [part for part in result.document().parts if isinstance(part, Table)]


def test_number_formats():
    measures = (
        EvaluationMetric("loss", 1.25, ""),
        EvaluationMetric("perplexity", 1234.5, ""),
        EvaluationMetric("exact match", 0.975, "", True),
    )
    (table,) = tables(EvaluateResult("m", "d", "valid", "3 tokens", measures))
    assert [row[1] for row in table.rows] == ["1.2500", "1,234.50", "97.50%"]


def test_single_category_has_no_table():
    facts = EvaluateResult("m", "d", "valid", "3 pairs", (), (("date", 1, 2),))
    assert len(tables(facts)) == 1
    assert len(tables(EvaluateResult("m", "d", "valid", "3", (), (("date", 1, 2), ("unit", 2, 2))))) == 2


def test_a_long_answer_is_cut_and_says_so():
    facts = EvaluateResult("m", "d", "valid", "1 pair", (), errors=(("a", "b", "u" * 500),))
    written = tables(facts)[1].rows[0][2]
    assert len(written) == 60
    assert written.endswith("…")
