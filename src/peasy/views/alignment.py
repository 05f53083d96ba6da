"""Word alignment of a translation: ribbons between words, cross-attention weights, ranking of heads."""

from peasy.inspection.results import Alignment, AlignmentScore
from peasy.views.attention import short_title
from peasy.views.document import Cell, Document, DocumentPart, Links, Maps, Paragraph, Table


def alignment_document(alignment: Alignment, top: int = 12) -> Document:
    """Document with ribbons, the same weights as a heat map, and the heads ranked by how well they align."""
    parts: list[DocumentPart] = [alignment_links(alignment), alignment_map(alignment)]
    if len(alignment.scores) > 1:
        parts.append(_head_ranking(alignment.scores[:top]))
    parts.append(Paragraph(alignment.caveat[:1].upper() + alignment.caveat[1:], "note"))
    return Document(short_title(alignment.source.text, alignment.model), tuple(parts))


def alignment_links(alignment: Alignment) -> Links:
    """Alignment figure: source above, translation below; the width of a ribbon is its weight."""
    where = f"{alignment.path.stack} layer {alignment.path.layer}, head {alignment.head}"
    known = "Dashed: reference alignment." if alignment.gold else ""
    return Links(
        f"Alignment ({where})", alignment.source.words, alignment.target.words, alignment.weights.T, "source",
        "translation", description=f"The width of a ribbon is its attention weight. {known}".strip(), ribbons=True,
        min_weight=0.05, gold=alignment.gold,
    )  # fmt: skip


def alignment_map(alignment: Alignment) -> Maps:
    """Heat map of the same weights: one row for each word of the translation."""
    return Maps(
        "Attention weights", alignment.weights[None, None], alignment.target.words, alignment.source.words,
        row_axis="translation", column_axis="source",
    )  # fmt: skip


def _head_ranking(scores: tuple[AlignmentScore, ...]) -> Table:
    known = any(score.accuracy is not None for score in scores)
    columns = ("layer", "head", *(("alignment accuracy",) if known else ()), "monotonicity", "sharpness", "score")

    def row(score: AlignmentScore) -> tuple[Cell, ...]:
        accuracy = (score.accuracy,) if known else ()
        return (str(score.path.layer), str(score.head), *accuracy, score.monotonicity, score.sharpness, score.score)

    return Table(columns, tuple(map(row, scores)), "Heads by alignment quality")
