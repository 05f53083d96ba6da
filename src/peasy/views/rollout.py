"""Attention rollout as a document: one map, and what it is not."""

from peasy.looking.label import Grid
from peasy.looking.record import Look
from peasy.looking.rollout import CAVEAT
from peasy.views.attention import opening, short_title
from peasy.views.document import Document, Maps, Paragraph, Part


def rollout_document(look: Look, rolled: Grid) -> Document:
    """How much of each token could have reached each place after the last layer."""
    shown = Maps("Attention rollout", rolled.values[None, None], rolled.rows, rolled.columns)
    parts: list[Part] = [*opening(look.edits), shown, Paragraph(CAVEAT, "note")]
    return Document(short_title(look.tokens.text, look.model), tuple(parts))
