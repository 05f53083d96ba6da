"""A translation and where it came from: ribbons between words, the weights, and which head aligns best."""

from peasy.looking.record import Alignment, AlignmentScore
from peasy.views.attention import short_title
from peasy.views.document import Cell, Document, Links, Maps, Paragraph, Part, Table


def alignment_document(alignment: Alignment, top: int = 12) -> Document:
    """Ribbons first, then the same as a map, then the heads by how well they align."""
    parts: list[Part] = [ribbons(alignment), alignment_map(alignment)]
    if len(alignment.scores) > 1:
        parts.append(_ranking(alignment.scores[:top]))
    parts.append(Paragraph(alignment.caveat[:1].upper() + alignment.caveat[1:], "note"))
    return Document(short_title(alignment.source.text, alignment.model), tuple(parts))


def ribbons(alignment: Alignment) -> Links:
    """Source above, answer below; a ribbon is as wide as its weight."""
    where = f"{alignment.place.stack} layer {alignment.place.layer}, head {alignment.head}"
    known = "Dashed: pairs that are known to belong together." if alignment.known else ""
    return Links(
        f"Alignment ({where})", alignment.source.words, alignment.target.words, alignment.weights.T, "source", "answer",
        says=f"A ribbon is as wide as its weight. {known}".strip(), ribbons=True, least=0.05, known=alignment.known,
    )  # fmt: skip


def alignment_map(alignment: Alignment) -> Maps:
    """The same weights as a heat map: a row for each word of the answer."""
    return Maps(
        "The same as a map", alignment.weights[None, None], alignment.target.words, alignment.source.words,
        row_axis="answer", column_axis="source",
    )  # fmt: skip


def _ranking(scores: tuple[AlignmentScore, ...]) -> Table:
    known = any(score.right is not None for score in scores)
    columns = ("layer", "head", *(("known pairs found",) if known else ()), "monotony", "sharpness", "score")

    def row(score: AlignmentScore) -> tuple[Cell, ...]:
        right = (score.right,) if known else ()
        return (str(score.place.layer), str(score.head), *right, score.monotony, score.sharpness, score.score)

    return Table(columns, tuple(map(row, scores)), "Which head aligns best")
