"""Head ranking of `look --rank`: sorts heads by one score; `inspection/head_scores.py` computes the scores."""

import re
from collections.abc import Sequence
from dataclasses import field, fields
from typing import Annotated

from annotated_types import Ge

from peasy.commands.load import LoadedModel
from peasy.commands.model_input import make_input
from peasy.commands.result import RecordResult
from peasy.errors import InvalidInput, did_you_mean
from peasy.inspection.head_scores import score_heads
from peasy.inspection.results import HeadReport, HeadScore
from peasy.views.document import Document
from peasy.views.inspection import ranking_document

_RANK_KEYS = tuple(f.name for f in fields(HeadScore) if f.name not in ("path", "head", "profile"))
"""Head scores that can be ranked by."""


class HeadRankingResult(RecordResult, HeadReport, eq=False, kw_only=True):
    """Scores of every head of a model over some sentences, displayed in the order of one score."""

    by: str = field(repr=False)

    def document(self) -> Document:
        """Heads in the order of the score, and their distance profiles."""
        return ranking_document(self, self.by)


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences: at line ends, and after . ! ? followed by whitespace.

    >>> split_sentences("It rained. We stayed in!\\nThen 3.5 cm fell.")
    ['It rained.', 'We stayed in!', 'Then 3.5 cm fell.']
    """
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", text.strip()) if part]


def rank_heads(
    loaded: LoadedModel,
    texts: str | Sequence[str],
    *,
    by: str = "sharpness",
    seed: Annotated[int, Ge(0)] = 0,
    add_special_tokens: bool = True,
) -> HeadRankingResult:
    """Score every head on these texts and rank them by `by`, largest first."""
    if by not in _RANK_KEYS:
        hint = did_you_mean(by, _RANK_KEYS) or f"By {', '.join(_RANK_KEYS)}."
        raise InvalidInput(f'Heads cannot be ranked by "{by}".', hint=hint)
    sentences = [texts] if isinstance(texts, str) else texts
    inputs = (make_input(loaded, text, add_special_tokens=add_special_tokens).model_input for text in sentences)
    return HeadRankingResult.of(score_heads(loaded.model, inputs, name=loaded.name, seed=seed), by=by)
