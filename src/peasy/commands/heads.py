"""Head ranking of `look --rank`: sorts heads by one score; `inspection/head_scores.py` computes the scores."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from peasy.commands.analysis_result import AnalysisResult
from peasy.commands.load import LoadedModel
from peasy.errors import InvalidInput, did_you_mean
from peasy.inspection.results import HeadReport, HeadScore
from peasy.views.ranking import ranking_document

if TYPE_CHECKING:
    from peasy.inspection.forward import ModelInput

RANK_KEYS = tuple(f.name for f in fields(HeadScore) if f.name not in ("path", "head", "profile"))
"""Head scores that can be ranked by."""


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences: at line ends, and after . ! ? followed by whitespace.

    >>> split_sentences("It rained. We stayed in!\\nThen 3.5 cm fell.")
    ['It rained.', 'We stayed in!', 'Then 3.5 cm fell.']
    """
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", text.strip()) if part]


def rank_heads(
    loaded: LoadedModel, texts: str | Sequence[str], *, by: str = "sharpness", seed: int = 0
) -> AnalysisResult:
    """Score every head on these texts and rank them by `by`, largest first."""
    from peasy.inspection.head_scores import score_heads

    if by not in RANK_KEYS:
        raise InvalidInput(
            f'Heads cannot be ranked by "{by}".', hint=did_you_mean(by, RANK_KEYS) or f"By {', '.join(RANK_KEYS)}."
        )
    sentences = [texts] if isinstance(texts, str) else list(texts)
    report: HeadReport = score_heads(loaded.model, _model_inputs(loaded, sentences), name=loaded.name, seed=seed)
    return AnalysisResult(report, lambda: ranking_document(report, by))


def _model_inputs(loaded: LoadedModel, texts: Sequence[str]) -> "Iterator[ModelInput]":
    from peasy.commands.model_input import make_input

    return (make_input(loaded, text).model_input for text in texts)
