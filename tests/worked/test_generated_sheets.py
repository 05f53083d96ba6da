"""Generated sheets: right ones in many forms have no wrong cell, and one wrong number is the first that is found."""

import math
import random

import numpy as np
import pytest

from peasy.commands.check import check
from peasy.worked.tables import read_text

CALCULATED = ("Scores", "Scaled scores", "Attention weights", "Context")


def _markdown(name, rows):
    head = ["| |" + " d |" * len(rows[0]), "|---" * (len(rows[0]) + 1) + "|"]
    return ["", f"**{name}**", "", *head, *(f"| t{index} | {' | '.join(row)} |" for index, row in enumerate(rows))]


FORMS = {
    ".md table": _markdown,
    ".md comma": lambda name, rows: _markdown(name, [[cell.replace(".", ",") for cell in row] for row in rows]),
    ".tex": lambda name, rows: [
        rf"\[ \text{{{name}}} = \begin{{bmatrix}}", r" \\ ".join(map(" & ".join, rows)), r"\end{bmatrix} \]",
    ],
    ".md list": lambda name, rows: ["```", f"{name} = [[{'], ['.join(map(', '.join, rows))}]]", "```"],
    ".md rows": lambda name, rows: ["```", f"{name}:", *(f"[{'  '.join(row)}]   # remark" for row in rows), "```"],
    ".md labels": lambda name, rows: [
        f"{name}:", "```", *(f"word{index}: [{', '.join(row)}]" for index, row in enumerate(rows)), "```",
    ],
    ".md grid": lambda name, rows: [
        "```", f"{name}:", *(f"word{index}   {'  '.join(row)}" for index, row in enumerate(rows)), "```",
    ],
    ".html": lambda name, rows: [
        f"<p><b>{name}</b></p><table>", *(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows), "</table>",
    ],
}  # fmt: skip


def sheet(seed, form, mistake=False):
    """Return a worked example in one form, and the number that was made wrong."""
    draw = random.Random(seed)
    tokens, width, decimals, given = draw.randint(2, 4), draw.randint(2, 3), draw.randint(1, 4), draw.choice((0, 1, 2))
    rounds, causal = draw.random() < 0.5, draw.random() < 0.3
    step = (lambda numbers: np.round(numbers, decimals)) if rounds else (lambda numbers: numbers)
    drawn = [draw.uniform(-2, 3) for _ in range(3 * tokens * width)]
    query, key, value = np.round(drawn, given).reshape(3, tokens, width)
    scores = step(query @ key.T)
    scaled = step(scores / math.sqrt(width))
    powers = np.exp(np.where(np.tri(tokens) > 0, scaled, -np.inf) if causal else scaled)
    weights = step(powers / powers.sum(axis=1, keepdims=True))
    names = "Q", "K", "V", *CALCULATED
    tables = dict(zip(names, (query, key, value, scores, scaled, weights, weights @ value), strict=True))
    texts = {
        name: [[f"{number + 0.0:.{given if len(name) == 1 else decimals}f}" for number in row] for row in numbers]
        for name, numbers in tables.items()
    }
    wrong = ""
    if mistake:
        row = texts[draw.choice(CALCULATED)][draw.randrange(tokens)]
        wrong = row[0] = f"{float(row[0]) + draw.choice((-1, 1)) * (1 + abs(float(row[0]))):.{decimals}f}"
    lines = [
        f"<p>The scores are divided by √{width}.</p>",
        "",
        "causal: true" if causal and form != ".html" else "",
        "",
    ]
    return "\n".join(
        [*lines, *(line for name, rows in texts.items() for line in (*FORMS[form](name, rows), ""))]
    ), wrong


@pytest.mark.parametrize("form", FORMS)
def test_right_sheets_have_no_wrong_cell_and_a_wrong_number_is_the_first_that_is_found(form):
    suffix = form.partition(" ")[0]
    for seed in range(8):
        assert check(read_text(sheet(seed, form)[0], suffix)).passed is True, seed
        text, wrong = sheet(seed, form, mistake=True)
        cells = [cell for part in check(read_text(text, suffix)).parts for cell in part.cells]
        first = next((cell.written for cell in cells if cell.verdict == "wrong"), "none")
        assert first.replace(",", ".") == wrong, seed


SHEET = "**Q**\n\n|1|0|\n|-|-|\n|0|2|\n\n**K**\n\n|1|1|\n|-|-|\n|0|1|\n\n**Scores**\n\n|1|0|\n|-|-|\n|2|2|\n"


def test_a_table_of_another_shape_is_not_read_and_a_row_that_is_too_long_is_found():
    other = check(read_text(SHEET.replace("|1|0|\n|-|-|\n|2|2|", "|1|0|4|\n|-|-|-|\n|2|2|4|")))
    assert other.passed is None
    assert [unread.reason for part in other.parts for unread in part.unread] == ["2 × 3 cells instead of 2 × 2."]
    longer = check(read_text(SHEET.replace("|2|2|", "|2|2|4|")))
    assert longer.passed is False


def test_a_causal_mask_is_found_beside_a_weight_that_rounds_to_zero():
    scores = (
        "**Q**\n\n|9|\n|-|\n|9|\n\n**K**\n\n|1|\n|-|\n|3|\n\n**Attention weights**\n\n|1.00|0.00|\n|-|-|\n|0.00|1.00|\n"
    )
    assert check(read_text(scores)).passed is True
    assert check(read_text(scores.replace("|0.00|1.00|", "|0.20|0.80|"))).passed is False
