"""Test documents: a small real one, one with every kind of part, and five hundred hostile strings."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from peasy.formula import attend_with_weights
from peasy.views.document import (
    Arithmetic,
    CacheFigure,
    Curves,
    Diagram,
    Document,
    DocumentPart,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Node,
    Paragraph,
    Plane,
    Rows,
    Table,
)

TOKENS = ("I", "love", "AI")

NASTY = (
    "<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "</script><script>alert(1)</script>", "<!--", "-->",
    "<![CDATA[", "]]>", "<svg onload=alert(1)>", "javascript:alert(1)", '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "{{7*7}}", "${alert(1)}", "<%= 1 %>", "\\end{document}", "\\input{/etc/passwd}", "\\write18{ls}", "$x$", "%",
    "\\", "\\\\",
    "_", "^", "~", "#", "&", "&lt;", "&#60;", "{", "}", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "\r",
    "\n", "\t",
    "\x00", "\x07", "\x08\x08\x08", "\x7f", "|", "| a | b |", "---", "```", "`x`", "**bold**", "[a](http://a.example)",
    "![a](http://a.example/x.png)", "<http://a.example>", "=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1",
    "=1",
    "\u202eevil\u202c", "\u2066x\u2069", "\u200b", "\u200f", "\ufeff", "\u2028", "\u2029", "\ud800", "\udfff",
    "\ufffe", "\uffff",
    "中文", "日本語", "한국어", "😀", "👩‍👩‍👧", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "שלום", "مرحبا", "e\u0301", "Z͑ͫ̓ͪ̂ͫ̽", "ß", "é", "Ł",
    "", " ", "  x  ",
    "[", "]", "[0.5ex]", "--", "---", "``", "''", "?`", "<<", ">>", ",,", "@", "!", "1.", "1)", "- x", "+ x", "> x",
    "#1",
    "a" * 500, "W" * 90, "\\textbackslash", "]]>]]&gt;", "\u0600", "\u00ad", "\U000e0001", "\U0010ffff",
)  # fmt: skip


def _hostile() -> tuple[str, ...]:
    rng = random.Random(20)
    mixed = ["".join(rng.sample(NASTY, rng.randint(2, 4))) for _ in range(500 - len(NASTY))]
    return (*NASTY, *mixed)


HOSTILE = _hostile()
assert len(HOSTILE) == 500


def matrix(name: str = "weights", **changes) -> Matrix:
    """Return a 3x3 matrix that uses every option."""
    given = dict(  # noqa: C408
        values=((0.1978, 0.4011, 0.4011), (0.2483, 0.2483, 0.5035), (0.14, 0.284, 0.576)),
        rows=TOKENS,
        columns=TOKENS,
        row_axis="query",
        column_axis="key",
        tex=r"\operatorname{softmax}\left(\frac{Q K^{\top}}{\sqrt{d_k}}\right)",
        description="Each row becomes shares of 1.",
        shaded=True,
        marks=frozenset({(1, 2)}),
        explain=lambda row, column: Arithmetic(f"row {row}, column {column}", ("e^0 / 5.06", "= 0.1978")),
    )
    return Matrix(name, **(given | changes))


def every_part(word: str = "love") -> tuple[DocumentPart, ...]:
    """Return one part of every kind, with `word` as every text."""
    return (
        Heading(word, 1),
        Heading(word),
        *(Paragraph(f"a {word} b", tone) for tone in ("plain", "note", "good", "bad")),
        Formula(r"\frac{Q K^{\top}}{\sqrt{d_k}}"),
        Arithmetic(word, (word, "= 1")),
        matrix(
            name=word,
            rows=(word, "love", "AI"),
            columns=("I", word, "AI"),
            row_axis=word,
            column_axis=word,
            description=word,
            values=((0.5, word, None), (-1.5, float("nan"), float("-inf")), (0.0, -0.0, float("inf"))),
            explain=lambda row, column: Arithmetic(word, (word, word)),
        ),
        Table((word, "number"), ((word, 1.5), ("x", None)), title=word),
        Plane(word, ((word, 1.0, 2.0), ("b", -1.0, 0.5)), word, word, arrows=True, lines=((0.0, 0.0, 1.0, 1.0),)),
        Plane(word, ((word, 1.0, 2.0),)),
        Curves(word, ((word, ((0.0, 1.0), (1.0, 0.5))), ("b", ((0.0, 2.0),))), word, word),
        Diagram(word, ((Node(word, word, word, (Node(word, word), Node("b", word, word, (Node(word),), 2))),), ())),
        *looking(word),
    )


def looking(word: str = "love") -> tuple[DocumentPart, ...]:
    """Return the attention figures, with `word` as every text."""
    words, weights = (word, "love", word), np.array([[1.0, np.nan, np.nan], [0.25, 0.75, np.nan], [0.2, 0.3, 0.5]])
    near = ((1, 2), (0, 2), (0, 1))
    points = ((word, 1.0, 2.0), ("b", -1.0, 0.5), (word, 0.0, 0.0))
    return (
        Maps(word, np.stack([weights, weights**2])[None], words, words, (word,), (word, "1"), *[word] * 5),
        Maps(word, weights[None, None], words * 2, words * 2, tile_size=2, reduction=word,
             exact_rows=Rows((1, 4), np.full((1, 1, 2, 6), 0.125))),
        Links(word, words, words, weights, word, word, word),
        Links(word, words, words, weights, word, word, word, ribbons=True, gold=((0, 0), (2, 1))),
        CacheFigure(word, words, ((0, 2), (2, 1)), word),
        Plane(word, points, word, word, groups=(word, "b", word), neighbours=near),
        Matrix(word, ((word, "x"),), (word,), (word, "y"), shaded=True, shades=((0.1, 0.9),)),
    )  # fmt: skip


@pytest.fixture(scope="session")
def worked() -> Document:
    """Worked example of three words, one matrix per step."""
    steps = attend_with_weights(
        [[1, 0], [0, 1], [1, 1]], [[1, 0], [1, 1]], [[0, 1], [1, 0]], [[1, 2], [0, 1]], causal=True
    )
    parts: list[DocumentPart] = [Paragraph("Three words, step by step.")]
    for count, (step, array) in enumerate(steps.step_arrays(), start=1):
        values = tuple(tuple(map(float, row)) for row in np.asarray(array))
        columns = TOKENS if len(values[0]) == 3 else ("1", "2")
        parts += [
            Heading(step.name.capitalize(), count),
            Matrix(
                step.name, values, TOKENS, columns, *step.axes[-2:], step.tex, step.description,
                shaded=step.name in {"scores", "weights"}, explain=_explainer(step.name, values),
            ),
        ]  # fmt: skip
    return Document("I love AI", tuple(parts))


def _explainer(name: str, values: tuple[tuple[float, ...], ...]) -> Callable[[int, int], Arithmetic]:
    return lambda row, column: Arithmetic(
        f"{name} of {TOKENS[row]}", (f"so it comes to {name}", f"= {values[row][column]:.4f}")
    )


@pytest.fixture(scope="session")
def everything() -> Document:
    return Document("Everything", every_part())


@pytest.fixture(scope="session")
def hostile() -> Document:
    """Document with all hostile strings as labels, cells, names, sentences, titles and arithmetic."""
    labels = tuple(HOSTILE)
    long = Matrix("hostile", tuple((word, 1.0) for word in labels), labels, ("a", "b"))
    few = [part for word in HOSTILE[:100] for part in every_part(word)]
    return Document("</title><script>alert(1)</script>", (long, *few))
