"""Head scores as a document: a ranked table, and attention distance profiles of the first heads."""

from peasy.inspection.results import HeadReport, HeadScore
from peasy.views.attention import attention_name
from peasy.views.document import Cell, Curves, Document, DocumentPart, Paragraph, Table

SCORE_FIELDS = ("previous", "next", "first", "own", "same", "induction", "position", "sharpness")
MAX_PROFILES = 6


def ranking_document(report: HeadReport, by: str = "sharpness", top: int = 30) -> Document:
    """Document of the heads ranked by one score, with their distance profiles."""
    ranked = report.ranked(by)[:top]
    columns = ("head", "pattern", "entropy", "distance", *SCORE_FIELDS)
    summary = f"{report.sentences} sentences, {report.tokens:,} tokens. Ranked by {by}; scores are shares of attention."
    parts: list[DocumentPart] = [Paragraph(summary), Table(columns, tuple(_row(score) for score in ranked))]
    parts.append(distance_curves(ranked[:MAX_PROFILES]))
    parts += [Paragraph(note, "note") for note in report.notes]
    parts.append(Paragraph(report.caveat[:1].upper() + report.caveat[1:], "note"))
    return Document(f"Attention heads of {report.model}", tuple(parts), decimals=2)


def distance_curves(scores: tuple[HeadScore, ...]) -> Curves:
    """Line plot of attention weight by distance."""
    lines = tuple(
        (head_name(score), tuple((float(d), float(weight)) for d, weight in enumerate(score.profile)))
        for score in scores
    )
    return Curves("Attention by distance", lines, "distance in tokens", "share of weight")


def head_name(score: HeadScore) -> str:
    """Return the name of a head, as in 5.3 (layer.head), with its stack unless it is a decoder."""
    kind = "" if score.path.stack == "decoder" and "cross" not in score.path.part else f" ({score.path.stack})"
    cross = " cross" if "cross-attention" in attention_name(score.path) else ""
    return f"{score.path.layer}.{score.head}{kind}{cross}"


def _row(score: HeadScore) -> tuple[Cell, ...]:
    scores = (getattr(score, name) for name in SCORE_FIELDS)
    return (head_name(score), score.summary(), score.entropy, score.distance, *scores)
