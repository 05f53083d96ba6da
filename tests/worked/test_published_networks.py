"""Published worked examples beyond attention: what is right agrees to its last decimal, what is wrong does not."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from peasy.worked import read_example, solve

EXAMPLES = tomllib.loads(Path(__file__).with_name("published_networks.toml").read_text(encoding="utf-8"))["examples"]


def agrees(values: np.ndarray, written: list[list[str]]) -> np.ndarray:
    """True where a number is the written one, rounded to its decimals (with a hair for numbers on the edge)."""
    numbers = np.asarray([[float(cell) for cell in row] for row in written])
    half = np.asarray([[0.5 * 10.0 ** -len(cell.partition(".")[2]) for cell in row] for row in written])
    assert numbers.shape == values.shape
    return abs(values - numbers) <= half * (1 + 1e-6)


def test_there_are_ten_with_sources():
    assert len({example["source"] for example in EXAMPLES}) >= 10


@pytest.mark.parametrize("example", EXAMPLES, ids=[example["title"] for example in EXAMPLES])
def test_published_numbers(example):
    worked = solve(read_example({"title": example["title"]} | example["example"]))
    for node, written in example["expected"].items():
        assert agrees(worked.values[node], written).all(), (node, worked.values[node])
    for node, written in example.get("wrong", {}).items():
        assert not agrees(worked.values[node], written).all(), (node, worked.values[node])
