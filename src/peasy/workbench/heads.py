"""Ranking of attention heads by their scores on sentences and on repeated random tokens (induction)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from peasy.errors import InvalidInput, did_you_mean
from peasy.looking.record import HeadReport, HeadScore
from peasy.views.ranking import ranking_document
from peasy.workbench.finding import Finding
from peasy.workbench.load import LoadedModel

if TYPE_CHECKING:
    from peasy.looking.reading import Reading

RANKS = tuple(f.name for f in fields(HeadScore) if f.name not in ("place", "head", "profile"))
"""Head scores that can be ranked by."""


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences: at line ends, and after . ! ? followed by whitespace.

    >>> split_sentences("It rained. We stayed in!\\nThen 3.5 cm fell.")
    ['It rained.', 'We stayed in!', 'Then 3.5 cm fell.']
    """
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", text.strip()) if part]


def study(loaded: LoadedModel, texts: str | Sequence[str], *, by: str = "sharpness", seed: int = 0) -> Finding:
    """Score every head on these texts and rank them by `by`, largest first."""
    from peasy.looking.head import study_heads

    if by not in RANKS:
        raise InvalidInput(
            f'Heads cannot be ranked by "{by}".', hint=did_you_mean(by, RANKS) or f"By {', '.join(RANKS)}."
        )
    sentences = [texts] if isinstance(texts, str) else list(texts)
    report: HeadReport = study_heads(loaded.model, _readings(loaded, sentences), name=loaded.name, seed=seed)
    return Finding(report, lambda: ranking_document(report, by))


def _readings(loaded: LoadedModel, texts: Sequence[str]) -> "Iterator[Reading]":
    from peasy.workbench.passage import open_passage

    return (open_passage(loaded, text).reading for text in texts)
