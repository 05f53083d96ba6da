"""Remembered measurements of this machine: what a packed model was checked and timed for, as JSON files.

A measurement holds for one CPU, instruction set, number of threads, torch, numba and peasy version and model shape.
`PEASY_MEASURE_AGAIN=1` measures anew.
"""

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import torch

from peasy import config
from peasy.atomic import write_atomic
from peasy.checkpoint.paths import data_dir
from peasy.checkpoint.store import package_versions
from peasy.errors import PeasyError

Measurement = TypeVar("Measurement")


def remembered(subject: dict[str, str], measure: Callable[[], Measurement], kind: type[Measurement]) -> Measurement:
    """Return the measurement of `subject` on this machine, from its file or else measured and stored.

    `kind` is the dataclass of the measurement. A missing, damaged or foreign file means that it is measured again.
    """
    conditions = _machine() | subject
    digest = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()
    path = data_dir() / "cache" / f"packing-{digest[:24]}.json"
    if not os.environ.get("PEASY_MEASURE_AGAIN"):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["conditions"] == conditions:
                return config.read(kind, stored["measurement"])
        except (OSError, ValueError, LookupError, TypeError, PeasyError):
            pass
    measurement = measure()
    content = json.dumps({"conditions": conditions, "measurement": asdict(measurement)}, indent=1)  # type: ignore[call-overload]
    with contextlib.suppress(OSError, PeasyError):  # a read-only home: the next process measures again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    return measurement


def _machine() -> dict[str, str]:
    try:
        numba = version("numba")
    except PackageNotFoundError:
        numba = ""
    try:
        names = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "CPU part", "Features")
        first_cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
        cpu = "; ".join(line for line in first_cpu.splitlines() if line.split(":")[0].strip() in names)
    except OSError:  # what Python knows of it
        cpu = f"{platform.machine()} {platform.processor()}"
    return {
        "cpu": cpu,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "numba": numba,
        "peasy": package_versions().get("peasy", ""),
    }
