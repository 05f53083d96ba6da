"""What each layer would say next, as a table of words shaded by how sure it is."""

from peasy.looking.record import LensTable
from peasy.views.attention import short_title
from peasy.views.document import Arithmetic, Document, Matrix, Paragraph, Part


def lens_document(lens: LensTable) -> Document:
    """Layers from the last down to the embedding; a cell opens to its other choices."""
    order = list(range(len(lens.layers)))[::-1]
    final = lens.final
    agreed = {(row, column) for row, at in enumerate(order[1:], 1) for column, word in enumerate(final)
              if lens.pieces[at][column][0] == word}  # fmt: skip
    parts: tuple[Part, ...] = (
        Paragraph("Each layer's state read by the model's own head. Marked: already what the model will say."),
        lens_matrix(lens, order, frozenset(agreed)),
        *(Paragraph(note, "note") for note in lens.notes),
    )
    return Document(f"Logit lens: {short_title(lens.tokens.text, lens.model)}", parts)


def lens_matrix(lens: LensTable, order: list[int], marks: frozenset[tuple[int, int]]) -> Matrix:
    """The first choice of each layer at each place."""

    def explain(row: int, column: int) -> Arithmetic:
        at = order[row]
        said = f"layer {lens.layers[at]} after {lens.tokens.pieces[lens.rows[column]]}"
        best = zip(lens.pieces[at][column], lens.chances[at, column], strict=False)
        return Arithmetic(said, tuple(f"{piece}  {float(chance):.4f}" for piece, chance in best))

    return Matrix(
        "what each layer would say next",
        tuple(tuple(lens.pieces[at][column][0] for column in range(len(lens.rows))) for at in order),
        tuple(str(lens.layers[at]) for at in order),
        tuple(lens.tokens.pieces[row] for row in lens.rows),
        "layer", "after",
        shaded=True, marks=marks, explain=explain,
        shades=tuple(tuple(float(lens.chances[at, column, 0]) for column in range(len(lens.rows))) for at in order),
    )  # fmt: skip
