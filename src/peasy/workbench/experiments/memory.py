"""The last result of each experiment, kept in the user's own folder: it can be shown again without a minute's wait."""

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

PARTS: dict[str, type] = {each.__name__.lower(): each for each in (*get_args(Part), Block, Rows, Vectors)}
"""What documents are made of, by the name it has in JSON."""

NUMBERS = ("lines", "values", "points", "shades")
"""Fields in which a word can only be a number that JSON has none for."""

FORM = 1
"""Raised when what is written changes: older files are then as if they were not there."""


def remember(finding: Finding) -> Path:
    """Keep a finding; it takes the place of the one before."""
    told = {"form": FORM, "when": time.time(), "parts": list(finding.parts), **finding.data()}
    path = _place(finding.experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, plain_json.dump(told))


def recall(name: str) -> tuple[Finding, float] | None:
    """The last finding of an experiment and when it was made, in seconds since 1970; None = there is none."""
    try:
        told = json.loads(_place(name).read_text(encoding="utf-8"))
        if told["form"] != FORM or told["experiment"] != name:
            return None
        fields = {key: told[key] for key in ("experiment", "question", "verdict", "holds", "caveat", "numbers", "seed")}
        return Finding(parts=tuple(map(_part, told["parts"])), **fields), float(told["when"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # nobody's fault worth a word: it can be run again


def _place(name: str) -> Path:
    return home() / "experiments" / f"{name}.json"


def _part(told: dict[str, Any]) -> Any:
    kind = PARTS[told["kind"]]
    arrays = {each.name for each in fields(kind) if each.type == "np.ndarray"}
    found = {key: _fixed(value, key in NUMBERS or key in arrays) for key, value in told.items() if key != "kind"}
    found |= {key: np.array(found[key], dtype=float) for key in arrays}
    return kind(**found | ({"marks": frozenset(found["marks"])} if "marks" in found else {}))


def _fixed(value: Any, numbers: bool = False) -> Any:
    """Lists as tuples, parts as parts; where numbers stand, the words for those that JSON has none for are numbers."""
    if isinstance(value, list):
        return tuple(_fixed(each, numbers) for each in value)
    if isinstance(value, dict):
        return _part(value)
    return float(value) if numbers and value in ("nan", "inf", "-inf") else value
