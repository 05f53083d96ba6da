"""What is recorded is what the model looks at, small, and replaced in one move."""

import torch

from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn.tap import Tap
from peasy.training.attention import Sentence, look, read_records, record, trim_records

WATCHED = Sentence((5, 6, 7), ("a", "b", "c"))


def test_recorded_weights_are_the_taps(tmp_path):
    model = build(preset("gpt-tiny", vocabulary=20), seed=1)
    record(tmp_path, 3, model, WATCHED)
    seen = []
    model(torch.tensor([[5, 6, 7]]), tap=Tap(seen.append))
    (found,) = read_records(tmp_path)
    assert found.sentence == WATCHED
    assert list(found.weights) == [f"decoder.{layer}.attention" for layer in range(2)]
    for layer, each in enumerate(seen):
        torch.testing.assert_close(found.weights[f"decoder.{layer}.attention"], each.array[0].half(), rtol=0, atol=0)


def test_translators_look_at_their_source():
    for name, layer in (("translator-tiny", 1), ("rnn-translator-tiny", 0)):
        model = build(preset(name, vocabulary=20), seed=1)
        found = look(model, Sentence((2, 6, 7), ("s", "b", "c"), (8, 9), ("x", "y")))
        assert found[f"decoder.{layer}.cross_attention"].shape[-2:] == (3, 2)


def test_a_model_without_attention_records_nothing(tmp_path):
    assert record(tmp_path, 1, build(preset("rnn-tiny", vocabulary=20), seed=1), WATCHED) is None
    assert read_records(tmp_path) == []


def test_later_records_are_trimmed(tmp_path):
    model = build(preset("gpt-tiny", vocabulary=20), seed=1)
    for step in (2, 4, 6):
        record(tmp_path, step, model, WATCHED)
    trim_records(tmp_path, 4)
    assert [each.step for each in read_records(tmp_path)] == [2, 4]
