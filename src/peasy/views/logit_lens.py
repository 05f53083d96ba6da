"""Logit lens as a document: the top prediction of each layer at each position, shaded by probability."""

from peasy.inspection.results import LensTable
from peasy.views.attention import short_title
from peasy.views.document import Arithmetic, Document, DocumentPart, Matrix, Paragraph


def lens_document(lens: LensTable) -> Document:
    """Document of the logit lens, from the last layer down to the embedding; a cell expands to its top candidates."""
    order = list(range(len(lens.layers)))[::-1]
    final = lens.final
    agreed = {(row, column) for row, index in enumerate(order[1:], 1) for column, word in enumerate(final)
              if lens.pieces[index][column][0] == word}  # fmt: skip
    parts: tuple[DocumentPart, ...] = (
        Paragraph(
            "The residual stream after each layer, decoded by the LM head. Marked: same as the final prediction."
        ),
        lens_matrix(lens, order, frozenset(agreed)),
        *(Paragraph(note, "note") for note in lens.notes),
    )
    return Document(f"Logit lens: {short_title(lens.tokens.text, lens.model)}", parts)


def lens_matrix(lens: LensTable, order: list[int], marks: frozenset[tuple[int, int]]) -> Matrix:
    """Matrix of the top prediction of each layer at each position."""

    def explain(row: int, column: int) -> Arithmetic:
        index = order[row]
        title = f"layer {lens.layers[index]} after {lens.tokens.pieces[lens.rows[column]]}"
        candidates = zip(lens.pieces[index][column], lens.probabilities[index, column], strict=False)
        return Arithmetic(title, tuple(f"{piece}  {float(probability):.4f}" for piece, probability in candidates))

    return Matrix(
        "top prediction of each layer",
        tuple(tuple(lens.pieces[index][column][0] for column in range(len(lens.rows))) for index in order),
        tuple(str(lens.layers[index]) for index in order),
        tuple(lens.tokens.pieces[row] for row in lens.rows),
        "layer", "after",
        shaded=True, marks=marks, explain=explain,
        shades=tuple(tuple(float(lens.probabilities[i, column, 0]) for column in range(len(lens.rows))) for i in order),
    )  # fmt: skip
