"""What every head of a model does, as a document: a ranked table, and how far the first of them look."""

from peasy.looking.record import HeadReport, HeadScore
from peasy.views.attention import attention_name
from peasy.views.document import Cell, Curves, Document, Paragraph, Part, Table

SCORES = ("previous", "next", "first", "own", "same", "induction", "position", "sharpness")
MOST_PROFILES = 6


def ranking_document(report: HeadReport, by: str = "sharpness", top: int = 30) -> Document:
    """The heads with most of one score first; then their distance profiles."""
    ranked = report.ranked(by)[:top]
    columns = ("head", "what it does", "entropy", "distance", *SCORES)
    said = f"{report.sentences} sentences, {report.tokens:,} tokens. Most {by} first; scores are shares of attention."
    parts: list[Part] = [Paragraph(said), Table(columns, tuple(_row(score) for score in ranked))]
    parts.append(distance_curves(ranked[:MOST_PROFILES]))
    parts += [Paragraph(note, "note") for note in report.notes]
    parts.append(Paragraph(report.caveat[:1].upper() + report.caveat[1:], "note"))
    return Document(f"What the heads of {report.model} do", tuple(parts), decimals=2)


def distance_curves(scores: tuple[HeadScore, ...]) -> Curves:
    """How much weight lies how far away."""
    lines = tuple(
        (head_name(score), tuple((float(d), float(weight)) for d, weight in enumerate(score.profile)))
        for score in scores
    )
    return Curves("Distance profile", lines, "places away", "share of weight")


def head_name(score: HeadScore) -> str:
    """A head by its layer and number, as in 5.3; of which stack where that is not plain."""
    kind = "" if score.place.stack == "decoder" and "cross" not in score.place.part else f" ({score.place.stack})"
    cross = " cross" if "into the source" in attention_name(score.place) else ""
    return f"{score.place.layer}.{score.head}{kind}{cross}"


def _row(score: HeadScore) -> tuple[Cell, ...]:
    scores = (getattr(score, name) for name in SCORES)
    return (head_name(score), score.says(), score.entropy, score.distance, *scores)
