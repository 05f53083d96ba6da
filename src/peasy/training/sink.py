"""Event sinks: TensorBoard, or your own callable that receives every training event.

    def report(event):
        if isinstance(event, peasy.training.event.TrainStep):
            print(event.step, event.loss)

    peasy.train("gpt", data="stories", sinks=[report])

A sink is called after the event was written to `metrics.jsonl`, in the order of the events, in the training thread.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from peasy.errors import InvalidInput, did_you_mean
from peasy.extras import require_extra
from peasy.training.event import Event, Finished, Sampled, Started, TrainStep, Validated

Sink = Callable[[Event], object]


class _TensorBoardSink:
    """TensorBoard writer of curves and samples, in the folder `tensorboard` of the run."""

    def __init__(self, run: Path) -> None:
        require_extra("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._open_writer = lambda step: SummaryWriter(str(run / "tensorboard"), purge_step=step)
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        """Write one event; on resume, first purge the steps that will be written again."""
        if isinstance(event, Started):
            self._writer = self._open_writer(event.step + 1)
        assert self._writer is not None, "the first event is Started"
        if isinstance(event, TrainStep):
            for name, value in (("loss", event.loss), ("lr", event.lr), ("tokens per second", event.tokens_per_second)):
                self._writer.add_scalar(name, value, event.step)
        elif isinstance(event, Validated):
            self._writer.add_scalar("validation loss", event.loss, event.step)
        elif isinstance(event, Sampled):
            for number, (prompt, text) in enumerate(zip(event.prompts, event.texts, strict=True)):
                self._writer.add_text(f"sample {number}", f"{prompt}{text}", event.step)
        elif isinstance(event, Finished):
            self._writer.close()


_SINKS_BY_NAME: dict[str, Callable[[Path], Sink]] = {"tensorboard": _TensorBoardSink}
"""Sinks that a recipe can name."""


def open_sink(sink: str | Sink, run: Path) -> Sink:
    """Return the sink with this name, or the callable itself."""
    if not isinstance(sink, str):
        return sink
    if sink not in _SINKS_BY_NAME:
        raise InvalidInput(
            f'There is no sink "{sink}".',
            hint=did_you_mean(sink, _SINKS_BY_NAME) or f"Known: {', '.join(_SINKS_BY_NAME)}.",
        )
    return _SINKS_BY_NAME[sink](run)
