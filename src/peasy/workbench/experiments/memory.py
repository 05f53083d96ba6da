"""The last result of each experiment, kept in the user's own folder: it can be shown again without a minute's wait."""

import json
import time
from pathlib import Path
from typing import Any

from peasy.checkpoint.home import home
from peasy.render import json as plain_json
from peasy.render import write
from peasy.views.document import Curves, Matrix, Paragraph, Part, Table
from peasy.workbench.experiments.finding import Finding

PARTS: dict[str, type] = {"table": Table, "curves": Curves, "matrix": Matrix, "paragraph": Paragraph}
"""What findings are made of, by the name it has in JSON."""

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


def _part(told: dict[str, Any]) -> Part:
    fields = {key: _fixed(value, key in ("lines", "values")) for key, value in told.items() if key != "kind"}
    if "marks" in fields:
        fields["marks"] = frozenset(fields["marks"])
    part: Part = PARTS[told["kind"]](**fields)
    return part


def _fixed(value: Any, numbers: bool = False) -> Any:
    """Lists as tuples; where numbers stand, the words for those that JSON has none for are numbers again."""
    if isinstance(value, list):
        return tuple(_fixed(each, numbers) for each in value)
    return float(value) if numbers and value in ("nan", "inf", "-inf") else value
