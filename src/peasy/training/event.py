"""What happens in a run, told while it happens: whoever runs the loop prints, streams or stores it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from peasy import config


@dataclass(frozen=True)
class Started:
    """The run begins, or goes on after `step` steps. `parameters` are the numbers to learn."""

    event: ClassVar[str] = "started"
    run: Path
    step: int
    seed: int
    parameters: int
    steps: int | None = None
    minutes: float | None = None
    precision: str = "float32"
    device: str = "cpu"
    warning: str | None = None


@dataclass(frozen=True)
class Step:
    """One step. `norm` is the gradient's length, `rate` tokens per second, `left` seconds, as far as can be told."""

    event: ClassVar[str] = "step"
    step: int
    loss: float
    lr: float
    norm: float | None
    tokens: int
    rate: float
    elapsed: float
    left: float


@dataclass(frozen=True)
class Validated:
    """The mean loss over held-out text; `tokens` were predicted for it."""

    event: ClassVar[str] = "validated"
    step: int
    loss: float
    tokens: int
    elapsed: float


@dataclass(frozen=True)
class Sampled:
    """What the model writes by now; `ids` are the tokens of each text."""

    event: ClassVar[str] = "sampled"
    step: int
    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...] = field(default=())


@dataclass(frozen=True)
class Saved:
    """A checkpoint is safe on the disk. `sha256` is the hash of its weights."""

    event: ClassVar[str] = "saved"
    step: int
    folder: Path
    sha256: str


@dataclass(frozen=True)
class Finished:
    """The budget is used up; the last checkpoint is the trained model."""

    event: ClassVar[str] = "finished"
    step: int
    folder: Path
    sha256: str
    loss: float | None
    valid: float | None
    tokens: int
    elapsed: float


Event = Started | Step | Validated | Sampled | Saved | Finished


def data(event: Event) -> dict[str, Any]:
    """An event as plain data: one line of `metrics.jsonl`, or of what `--json` prints.

    >>> data(Validated(step=3, loss=1.5, tokens=64, elapsed=2.0))["event"]
    'validated'
    """
    plain = config.plain(event)
    return {"event": event.event} | {key: str(v) if isinstance(v, Path) else v for key, v in plain.items()}
