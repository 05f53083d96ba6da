"""Attention snapshots equal the model's attention weights and are replaced atomically."""

import torch

from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn.tap import Tap
from peasy.training.attention_snapshots import (
    TrackedSentence,
    attention_weights,
    read_snapshots,
    trim_snapshots,
    write_snapshot,
)

SENTENCE = TrackedSentence((5, 6, 7), ("a", "b", "c"))


def test_snapshot_equals_tapped_weights(tmp_path):
    model = build(preset("gpt-tiny", vocab_size=20), seed=1)
    write_snapshot(tmp_path, 3, model, SENTENCE)
    activations = []
    model(torch.tensor([[5, 6, 7]]), tap=Tap(activations.append))
    (snapshot,) = read_snapshots(tmp_path)
    assert snapshot.sentence == SENTENCE
    assert list(snapshot.weights) == [f"decoder.{layer}.attention" for layer in range(2)]
    for layer, activation in enumerate(activations):
        torch.testing.assert_close(
            snapshot.weights[f"decoder.{layer}.attention"], activation.array[0].half(), rtol=0, atol=0
        )


def test_translator_records_cross_attention():
    for name, layer in (("translator-tiny", 1), ("rnn-translator-tiny", 0)):
        model = build(preset(name, vocab_size=20), seed=1)
        weights = attention_weights(model, TrackedSentence((2, 6, 7), ("s", "b", "c"), (8, 9), ("x", "y")))
        assert weights[f"decoder.{layer}.cross_attention"].shape[-2:] == (3, 2)


def test_model_without_attention_records_nothing(tmp_path):
    assert write_snapshot(tmp_path, 1, build(preset("rnn-tiny", vocab_size=20), seed=1), SENTENCE) is None
    assert read_snapshots(tmp_path) == []


def test_later_snapshots_are_deleted(tmp_path):
    model = build(preset("gpt-tiny", vocab_size=20), seed=1)
    for step in (2, 4, 6):
        write_snapshot(tmp_path, step, model, SENTENCE)
    trim_snapshots(tmp_path, 4)
    assert [snapshot.step for snapshot in read_snapshots(tmp_path)] == [2, 4]
