"""Attention rollout as a document: one heat map and its caveat."""

from peasy.inspection.label import LabelledMatrix
from peasy.inspection.results import AttentionRecord
from peasy.inspection.rollout import ROLLOUT_CAVEAT
from peasy.views.attention import opening_notes, short_title
from peasy.views.document import Document, DocumentPart, Maps, Paragraph


def rollout_document(record: AttentionRecord, matrix: LabelledMatrix) -> Document:
    """Document of the rollout: how much of each token could reach each position after the last layer."""
    maps = Maps("Attention rollout", matrix.values[None, None], matrix.rows, matrix.columns)
    parts: list[DocumentPart] = [*opening_notes(record.interventions), maps, Paragraph(ROLLOUT_CAVEAT, "note")]
    return Document(short_title(record.tokens.text, record.model), tuple(parts))
