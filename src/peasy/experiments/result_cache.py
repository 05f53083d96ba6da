"""Result cache: the last result of each experiment in the user's data directory."""

import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np

from peasy.atomic import write_atomic
from peasy.checkpoint.paths import data_dir
from peasy.experiments.result import ExperimentResult
from peasy.render import json as plain_json
from peasy.views.document import DocumentPart, Node, Rows, Vectors

NODES: dict[str, type] = {
    plain_json.KINDS.get(node.__name__, node.__name__.lower()): node
    for node in (*get_args(DocumentPart), Node, Rows, Vectors)
}
"""Document nodes by their name in JSON."""

NUMERIC_FIELDS = ("lines", "values", "points", "shades")
"""Numeric fields, in which a string can only be nan, inf or -inf, which JSON lacks."""

FORMAT_VERSION = 2
"""Format version; files of other versions are ignored."""


def save_result(result: ExperimentResult) -> Path:
    """Save a result, replacing the previous one."""
    payload = {"format_version": FORMAT_VERSION, "time": time.time(), "parts": list(result.parts), **result.data()}
    path = _path(result.experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomic(path, plain_json.dump(payload))


def load_result(name: str) -> tuple[ExperimentResult, float] | None:
    """Load the last result of an experiment and its time in seconds since 1970; None without one."""
    try:
        payload = json.loads(_path(name).read_text(encoding="utf-8"))
        if payload["format_version"] != FORMAT_VERSION or payload["experiment"] != name:
            return None
        fields = {
            key: payload[key] for key in ("experiment", "question", "verdict", "holds", "caveat", "numbers", "seed")
        }
        return ExperimentResult(parts=tuple(map(_read_node, payload["parts"])), **fields), float(payload["time"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # an unreadable file is not worth an error: the experiment can be run again


def _path(name: str) -> Path:
    return data_dir() / "experiments" / f"{name}.json"


def _read_node(data: dict[str, Any]) -> Any:
    kind = NODES[data["kind"]]
    array_fields = {field.name for field in fields(kind) if field.type == "np.ndarray"}
    values = {
        key: _restore(value, key in NUMERIC_FIELDS or key in array_fields)
        for key, value in data.items()
        if key != "kind"
    }
    values |= {key: np.array(values[key], dtype=float) for key in array_fields}
    return kind(**values | ({"marks": frozenset(values["marks"])} if "marks" in values else {}))


def _restore(value: Any, numeric: bool = False) -> Any:
    """Restore tuples from lists, nodes from dicts and, in numeric fields, non-finite floats from strings."""
    if isinstance(value, list):
        return tuple(_restore(item, numeric) for item in value)
    if isinstance(value, dict):
        return _read_node(value)
    return float(value) if numeric and value in ("nan", "inf", "-inf") else value
