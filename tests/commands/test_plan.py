"""`plan` saves nothing, measures speed and memory, and shows its formulas."""

import pytest
import torch

from peasy.checkpoint import paths
from peasy.commands.plan import PlanResult, TruncatedCorpus, measure_activations, plan
from peasy.datasets import open_corpus
from peasy.errors import UsageError
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training.objective import NextToken
from peasy.views.document import Arithmetic, Paragraph

SMALL = {"batch_size": 2, "seq_len": 16, "seq_len_warmup": None, "data_options": {"num_train": 300, "num_valid": 20}}
PAPER = {"accelerators": 4, "flops": "1T", "memory": "1GB", "bandwidth": "1GB/s"}


@pytest.mark.parametrize(("kind", "data"), [("gpt", "copy:4"), ("rnn", "copy:4"), ("encoder", "copy:4")])
def test_plan_for_this_machine(kind, data, tmp_path):
    result = plan(kind, data, preset="tiny", steps=7, settings=SMALL)
    numbers = result.numbers
    assert numbers["steps"] == 7
    assert numbers["seconds"] == pytest.approx(7 * numbers["seconds_per_step"])
    assert numbers["tokens_per_second"] == pytest.approx(numbers["tokens_per_step"] / numbers["seconds_per_step"])
    assert numbers["tokens_per_step"] == 2 * 16
    assert numbers["memory"] == sum(numbers[name] for name in ("weights", "gradients", "optimizer", "activations"))
    assert numbers["activations"] > 0
    assert not paths.find_runs()
    assert not (paths.data_dir() / "shards").exists()


def test_minutes_are_converted_to_steps():
    numbers = plan("gpt", "copy:4", preset="tiny", minutes=2, settings=SMALL).numbers
    assert numbers["seconds"] == 120
    assert numbers["steps"] == int(120 / numbers["seconds_per_step"])


def test_ngram_reads_the_data_once():
    numbers = plan("ngram", "copy:4", preset="tiny", settings={"batch_size": 2, "seq_len": 16}).numbers
    assert numbers["epochs"] == 1
    assert "optimizer" not in numbers


def test_plan_for_a_translator():
    settings = {"batch_size": 2, "seq_len": 16, "data_options": {"num_pairs": 300}}
    assert plan("translator", "locales", preset="tiny", steps=2, settings=settings).numbers["tokens_per_step"] > 4


def test_activations_grow_with_the_batch():
    model = build(preset("gpt-tiny", vocab_size=40), seed=1).train()
    one, two = (
        measure_activations(model, NextToken(), {"ids": ids, "targets": ids}, "float32")
        for ids in (torch.zeros(2, 16, dtype=torch.int64), torch.zeros(4, 16, dtype=torch.int64))
    )
    assert 1.6 * one < two < 2.2 * one


def test_calculated_plan_shows_formulas():
    result = plan("gpt", preset="tiny", **PAPER)
    assert {"memory_ddp", "memory_fsdp", "tokens_per_day_ddp", "kv_cache"} <= result.numbers.keys()
    text = result.text()
    assert "Calculated" in text
    assert "optimizer = 4 bytes" in text
    assert "nothing was measured" in text


def test_incomplete_machine_is_rejected():
    with pytest.raises(UsageError, match="--bandwidth"):
        plan("gpt", accelerators=2, flops="1T", memory="1GB")
    with pytest.raises(UsageError, match="needs data"):
        plan("gpt")


def test_truncated_corpus_is_a_prefix():
    corpus = open_corpus("copy:4", num_train=100, num_valid=10)
    some = list(TruncatedCorpus(corpus, 50).documents("train"))
    assert "".join(some) == "".join(list(corpus.documents("train"))[: len(some)])[: sum(map(len, some))]
    assert len(some) < 10


def test_plan_uses_the_settings_that_the_dataset_suggests(tmp_path, monkeypatch):
    """As `train` does: `train --dry-run` describes the run that `train` starts."""
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    suggested = open_corpus("stories").suggested_settings
    assert {"batch_size", "seq_len"} <= set(suggested)
    expected = f"batches of {suggested['batch_size']} samples of up to {suggested['seq_len']} tokens"
    assert expected in plan("gpt", "stories", preset="tiny", steps=2).text()
    other = plan("gpt", "stories", preset="tiny", steps=2, batch_size=4, settings={"seq_len": 32}).text()
    assert "batches of 4 samples of up to 32 tokens" in other


def test_verdict_tone_and_formulas():
    formulas = (("weights", ("weights = 4 · 10 = 40 bytes",)),)
    rows, verdict = (("a", "b", "c"),), ("It does not fit.", False)
    document = PlanResult("A plan", "A description.", rows, {}, formulas, ("A note.",), verdict).document()
    tones = [part.tone for part in document.parts if isinstance(part, Paragraph)]
    assert tones == ["plain", "bad", "note"]
    assert [part.lines for part in document.parts if isinstance(part, Arithmetic)] == [("weights = 4 · 10 = 40 bytes",)]
