"""Worksheets: deterministic for a seed, and small enough to solve by hand."""

import numpy as np
import pytest

import peasy
from peasy import render
from peasy.commands.check import check
from peasy.errors import UsageError
from peasy.views.worked import worksheet_document
from peasy.worked.example import library_files
from peasy.worked.exercise import TOPICS, make_exercise, read_size
from peasy.worked.tables import read_text


def numbers(exercise):
    return [(step.name, step.values.tolist()) for step in exercise.given]


@pytest.mark.parametrize("topic", TOPICS)
def test_worksheets_are_deterministic(topic):
    assert numbers(make_exercise("4x2", 7, topic)) == numbers(make_exercise("4x2", 7, topic))
    assert numbers(make_exercise("4x2", 7, topic)) != numbers(make_exercise("4x2", 8, topic))


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("seed", range(20))
def test_every_worksheet_has_small_numbers(topic, seed):
    exercise = make_exercise("3x2", seed, topic)
    assert exercise.solution
    assert all(np.abs(step.values).max() <= 3 for step in exercise.given)
    assert exercise.worked.example.tokens == tuple(dict.fromkeys(exercise.worked.example.tokens))


def test_steps_of_each_topic():
    solution = {topic: [step.name for step in make_exercise(topic=topic).solution] for topic in TOPICS}
    assert solution["plain"] == ["query", "key", "value", "scores", "scaled", "weights", "context"]
    assert "masked" in solution["masked"]
    assert solution["cosine"] == ["scores", "weights", "context"]
    assert "head-2.weights" in solution["two-heads"]
    assert solution["contexts"] == ["context"]
    assert make_exercise(topic="masked").settings == ("causal: true",)
    assert make_exercise(topic="cosine").settings == ("scoring: cosine",)
    assert make_exercise(topic="two-heads").settings == ("heads: 2",)


@pytest.mark.parametrize("size", ["", "3", "x", "0x2", "1x2", "3x0", "9x2", "3x2x1", "-3x2", "999999x2"])
def test_invalid_sizes(size):
    with pytest.raises(UsageError, match="not a valid"):
        read_size(size)


def test_misspelt_topic_and_odd_width():
    with pytest.raises(UsageError, match="no topic") as caught:
        make_exercise(topic="maksed")
    assert caught.value.hint == "Did you mean masked?"
    with pytest.raises(UsageError, match="cannot be split"):
        make_exercise("3x3", topic="two-heads")


NETWORKS = tuple(library_files("transformer"))


@pytest.mark.parametrize("topic", NETWORKS)
def test_check_accepts_the_key_of_a_network_and_finds_a_seeded_mistake(topic, tmp_path):
    sheet = peasy.exercise(topic=topic, seed=3, decimals=4)
    key = sheet.save_key(tmp_path / "key.md")
    checked = peasy.check(key)
    assert checked.passed, checked.verdict
    assert not checked.data()["unverified"]
    blank = peasy.check(sheet.save(tmp_path / "sheet.md"))
    assert "blank" in blank.verdict
    table, row, column = mistaken_cell(sheet.exercise, np.random.default_rng(len(topic)))
    key.write_text(with_mistake(key.read_text(encoding="utf-8"), table, row, column), encoding="utf-8")
    wrong = [cell for cell in peasy.check(key).parts[0].cells if cell.verdict == "wrong"]
    assert [(cell.table, cell.row) for cell in wrong] == [(table, sheet.exercise.worked.step(table).rows[row])]


def mistaken_cell(exercise, rng):
    """Choose a cell of a table of the forward pass."""
    steps = [
        step for step in exercise.solution if exercise.worked.kind(step.name) == "forward" and step.base != "masked"
    ]
    step = steps[rng.integers(len(steps))]
    return step.name, int(rng.integers(len(step.rows))), int(rng.integers(len(step.columns)))


def with_mistake(text, table, row, column):
    """Return a Markdown text with a number of a table changed by more than rounding."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.replace("\\", "") == f"**{table}**")
    first = next(i for i in range(start, len(lines)) if lines[i].startswith("| ---")) + 1
    cells = lines[first + row].split(" | ")
    cells[column + 1] = f"{float(cells[column + 1].strip(' |')) + 7.31:.4f}" + (
        " |" if column + 2 == len(cells) else ""
    )
    lines[first + row] = " | ".join(cells)
    return "\n".join(lines)


@pytest.mark.parametrize("topic", NETWORKS)
def test_networks_are_deterministic_and_small(topic):
    exercise = make_exercise(seed=7, topic=topic)
    assert numbers(exercise) == numbers(make_exercise(seed=7, topic=topic))
    assert all(np.abs(rows).max() <= 10 for rows in exercise.worked.example.given_nodes.values())
    assert exercise.solution
    assert exercise.settings == (f"example: {topic}",)


@pytest.mark.parametrize("suffix", ["md", "csv", "tex"])
def test_the_answers_of_a_large_network_are_right_in_every_format(suffix):
    """With more than 24 tables a CSV file is read like the output of a program, but not if it names its example."""
    answers = worksheet_document(make_exercise(topic="kv-cache", seed=1), 6, with_answers=True)
    assert check(read_text(render.draw(answers, suffix), f".{suffix}")).passed
