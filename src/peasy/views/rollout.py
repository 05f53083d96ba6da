"""Attention rollout as a document: one heat map and its caveat."""

from peasy.looking.label import Grid
from peasy.looking.record import Look
from peasy.looking.rollout import CAVEAT
from peasy.views.attention import opening, short_title
from peasy.views.document import Document, Maps, Paragraph, Part


def rollout_document(look: Look, rolled: Grid) -> Document:
    """Document of the rollout: how much of each token could reach each position after the last layer."""
    maps = Maps("Attention rollout", rolled.values[None, None], rolled.rows, rolled.columns)
    parts: list[Part] = [*opening(look.edits), maps, Paragraph(CAVEAT, "note")]
    return Document(short_title(look.tokens.text, look.model), tuple(parts))
