"""Result cache: the last result of each experiment in the user's data directory."""

import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np

from peasy.checkpoint.home import home
from peasy.render import json as plain_json
from peasy.render import write
from peasy.views.document import Block, Part, Rows, Vectors
from peasy.workbench.experiments.finding import Finding

PARTS: dict[str, type] = {node.__name__.lower(): node for node in (*get_args(Part), Block, Rows, Vectors)}
"""Document nodes by their name in JSON."""

NUMBERS = ("lines", "values", "points", "shades")
"""Numeric fields, in which a string can only be nan, inf or -inf, which JSON lacks."""

FORM = 1
"""Format version; files of other versions are ignored."""


def remember(finding: Finding) -> Path:
    """Save a result, replacing the previous one."""
    payload = {"form": FORM, "when": time.time(), "parts": list(finding.parts), **finding.data()}
    path = _place(finding.experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, plain_json.dump(payload))


def recall(name: str) -> tuple[Finding, float] | None:
    """Load the last result of an experiment and its time in seconds since 1970; None without one."""
    try:
        payload = json.loads(_place(name).read_text(encoding="utf-8"))
        if payload["form"] != FORM or payload["experiment"] != name:
            return None
        fields = {
            key: payload[key] for key in ("experiment", "question", "verdict", "holds", "caveat", "numbers", "seed")
        }
        return Finding(parts=tuple(map(_part, payload["parts"])), **fields), float(payload["when"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # an unreadable file is not worth an error: the experiment can be run again


def _place(name: str) -> Path:
    return home() / "experiments" / f"{name}.json"


def _part(told: dict[str, Any]) -> Any:
    kind = PARTS[told["kind"]]
    array_fields = {field.name for field in fields(kind) if field.type == "np.ndarray"}
    values = {key: _fixed(value, key in NUMBERS or key in array_fields) for key, value in told.items() if key != "kind"}
    values |= {key: np.array(values[key], dtype=float) for key in array_fields}
    return kind(**values | ({"marks": frozenset(values["marks"])} if "marks" in values else {}))


def _fixed(value: Any, numbers: bool = False) -> Any:
    """Restore tuples from lists, nodes from dicts and, in numeric fields, non-finite floats from strings."""
    if isinstance(value, list):
        return tuple(_fixed(item, numbers) for item in value)
    if isinstance(value, dict):
        return _part(value)
    return float(value) if numbers and value in ("nan", "inf", "-inf") else value
