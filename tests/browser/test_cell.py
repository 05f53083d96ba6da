"""Arithmetic of a cell of an interactive map, by pointer and keys."""

import re

import numpy as np
import pytest
from tests.browser.test_maps import WORDS, point_at

from peasy import attend, render
from peasy.views.document import Document, Maps, Vectors

pytestmark = pytest.mark.browser

COUNT, WIDTH = len(WORDS), 12


def heads(carried: bool = True, softcap: float | None = None, bias: float = 0.0) -> Maps:
    draw = np.random.default_rng(3)
    query, key = (draw.normal(size=(1, 2, COUNT, WIDTH)) * 2 for _ in "qk")
    added = -bias * np.abs(np.arange(COUNT)[:, None] - np.arange(COUNT))
    steps = attend(query, key, key, causal=True, softcap=softcap, bias=added if bias else None)
    weights = np.where(np.tril(np.ones((COUNT, COUNT), bool)), steps.weights, np.nan)
    vectors = Vectors(query, key, WIDTH**-0.5, softcap) if carried else None
    return Maps("Weights", weights, WORDS, WORDS, ("0",), ("0", "1"), vectors=vectors, command="peasy look m 'The'")


def arithmetic_text(page) -> str:
    return " ".join(page.locator("peasy-maps .sum").inner_text().split())


def weight_of(text: str) -> float:
    return float(re.search(r"weight = [\d.]+ / [\d.]+ = ([\d.]+)", text)[1])


@pytest.fixture
def show(opened, tmp_path):
    def show(maps: Maps):
        return opened(render.save(Document("Heads", (maps,)), tmp_path / "page.html"), "peasy-maps")

    return show


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_click_shows_the_models_calculation(show, softcap):
    maps = heads(softcap=softcap)
    recorded = show(maps)
    page = recorded.page
    assert page.locator("peasy-maps .sum").is_hidden()
    point_at(page, 3, 1)
    page.mouse.down()
    page.mouse.up()
    text = arithmetic_text(page)
    score = maps.vectors.query[0, 0, 3] @ maps.vectors.key[0, 0, 1]
    assert "head 0: ·out → ·pizza" in text
    assert f"= {score:.4f} scaled = {score:.4f} / √12 = {score / 12**0.5:.4f}" in text
    assert "by the sum over 4 keys" in text
    assert weight_of(text) == pytest.approx(maps.values[0, 0, 3, 1], abs=6e-5)
    assert ("tanh" in text) is (softcap is not None)
    assert "does not contain" not in text
    recorded.assert_quiet()


def test_enter_arrows_and_escape(show):
    maps = heads()
    page = show(maps).page
    page.locator("peasy-maps .large canvas").focus()
    page.evaluate("document.querySelector('peasy-maps').selectCell(4, 4)")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowLeft")
    assert weight_of(arithmetic_text(page)) == pytest.approx(maps.values[0, 0, 4, 3], abs=6e-5)
    page.keyboard.press(".")
    assert weight_of(arithmetic_text(page)) == pytest.approx(maps.values[0, 1, 4, 3], abs=6e-5)
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    assert "may not attend" in arithmetic_text(page)
    page.keyboard.press("Escape")
    assert page.locator("peasy-maps .sum").is_hidden()


def test_missing_vectors_and_bias_are_mentioned(show):
    page = show(heads(bias=3.0)).page
    page.locator("peasy-maps .large canvas").focus()
    page.keyboard.press("Enter")
    assert "also adds a position bias" in arithmetic_text(page), "a bias is no part of q · k"
    assert "weight =" not in arithmetic_text(page), "no other number than the weight"
    page = show(heads(carried=False)).page
    page.locator("peasy-maps .large canvas").focus()
    page.evaluate("document.querySelector('peasy-maps').selectCell(2, 1)")
    page.keyboard.press("Enter")
    assert "peasy look m 'The' --layer 0 --head 0 --query 'came' --step-by-step" in arithmetic_text(page)
