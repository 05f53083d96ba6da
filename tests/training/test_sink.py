"""Event sinks: TensorBoard by name, or any callable."""

import pytest

from peasy.errors import InvalidInput
from peasy.training.metrics_log import open_sink


def test_tensorboard_receives_curves(make_spec, finish):
    pytest.importorskip("tensorboard", reason="comes with the extra `tracking`")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    spec = make_spec(steps=4, sinks=["tensorboard"])
    finish(spec)
    events = EventAccumulator(str(spec.run / "tensorboard"))
    events.Reload()
    assert [point.step for point in events.Scalars("loss")] == [1, 2, 3, 4]
    assert [point.step for point in events.Scalars("validation loss")] == [2, 4]


def test_unknown_sink_is_rejected(tmp_path):
    with pytest.raises(InvalidInput, match='no sink "tensorbord"') as error:
        open_sink("tensorbord", tmp_path)
    assert error.value.hint == "Did you mean tensorboard?"
