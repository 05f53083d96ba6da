"""The arithmetic board in a real browser: its last line is the weight of the model, in every kind of attention."""

import copy
import re

import numpy as np
import pytest
from tests.models.tiny_models import RECURRENT_TRANSLATORS, TRANSFORMERS, make
from tests.server.browser_window import browser_windows
from tests.server.tiny_server import running_server

from peasy.commands.forward_pass import forward_pass
from peasy.commands.load import LoadedModel, load
from peasy.commands.model_input import make_input
from peasy.inspection.edit import zero
from peasy.inspection.forward import forward_logits
from peasy.nn.tap import Tap
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry
from peasy.tokenization import train_tokenizer

pytestmark = pytest.mark.browser

SENTENCE = "the cat sat on the mat and"
BUILT_IN = {
    "stories": "The pizza came out of the oven and it",
    "repeats": "q w e r t y u i o p q w e",
    "locales-fr": "3 days ago",
    "locales-fr-2015": "3 days ago",
    "sentences": "My phone broke, great.",
}

BOARD = """async ({ heads, cells }) => {
    const { Board } = await import("/web/render/board.js");
    const shown = [];
    for (const { steps, ...formula } of heads) {
        const rows = steps.weights.map((_, row) => `q${row}`), columns = steps.weights[0].map((_, key) => `k${key}`);
        const board = new Board(() => {}, () => {});
        for (const [row, key] of cells ?? steps.weights.flatMap((row, at) => row.map((_, key) => [at, key]))) {
            board.show({ ...formula, ...steps, queries: rows, keys: columns, title: ["model"] }, row, key, 3);
            const lines = [...board.element.querySelectorAll(".zoom-steps pre")].map((line) => line.textContent);
            shown.push(lines.join("\\n") || board.element.querySelector(".zoom-steps").textContent);
        }
    }
    return shown;
}"""


@pytest.fixture(scope="module")
def page(browser):
    with (
        running_server(build_app(ModelRegistry(["stories"], weights="float32"), pages=True)) as port,
        browser_windows(browser, port) as open_one,
    ):
        yield open_one("/glossary").page


def random_model(name):
    tokenizer = train_tokenizer([SENTENCE] * 9, "words")
    return LoadedModel(name, make((TRANSFORMERS | RECURRENT_TRANSLATORS)[name], seed=2), tokenizer, tokenizer)


def captured_weights(loaded, text):
    """Weights of every attention, `[head, query, key]`, as the model reports them to a tap."""
    found = {}
    inputs = make_input(loaded, text, SENTENCE if loaded.model.is_encoder_decoder else None)
    forward_logits(loaded.model, inputs.model_input, Tap(lambda one: found.update({one.path: one.array[0].float()})))
    return {tuple(path): array.numpy() for path, array in found.items()}


def last_weight(text):
    """The number that the lines of the softmax end in."""
    return float(re.search(r"weight = (?:.* = )?([\d.]+)", text)[1])


def assert_board_reaches_the_weights(page, loaded, text, most):
    target = SENTENCE if loaded.model.is_encoder_decoder else None
    shown = forward_pass(loaded, text, target, story=False, ablations=False).data()
    weights = captured_weights(loaded, text)
    assert len(shown["head_numbers"]) == sum(map(len, weights.values()))
    for head in shown["head_numbers"][:most]:
        expected = weights[head["stack"], head["layer"], head["part"]][head["head"]]
        texts = page.evaluate(BOARD, {"heads": [head]})
        assert not any("− −" in text for text in texts), "a negative number is in parentheses"
        shown_weights = list(map(last_weight, texts))
        np.testing.assert_allclose(shown_weights, expected.ravel(), atol=1.01e-4, err_msg=str(head)[:80])


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_last_line_is_the_weight_of_a_built_in_model(page, name):
    assert_board_reaches_the_weights(page, load(name), BUILT_IN[name], most=3)


@pytest.mark.parametrize("name", [*TRANSFORMERS, *RECURRENT_TRANSLATORS])
def test_the_last_line_is_the_weight_of_a_model_with_random_weights(page, name):
    assert_board_reaches_the_weights(page, random_model(name), SENTENCE, most=2)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [("alibi", "bias"), ("sinks", "sink"), ("softcap", "softcap"), ("recurrent-translator", "additive")],
)
def test_no_other_number_is_shown_if_the_formula_is_not_known(page, name, left_out):
    """Each part of the formula is needed; without it, the board shows no calculation instead of another weight."""
    loaded = random_model(name)
    target = SENTENCE if loaded.model.is_encoder_decoder else None
    head = copy.deepcopy(forward_pass(loaded, SENTENCE, target, story=False, ablations=False).data()["head_numbers"][0])
    head["steps"].pop(left_out, None)
    head.pop(left_out, None)
    texts = page.evaluate(BOARD, {"heads": [head]})
    refused = [text for text in texts if "cannot be shown step by step" in text]
    assert refused
    assert not any("weight =" in text for text in refused)


def test_a_weight_that_an_intervention_made_is_not_calculated(page):
    shown = forward_pass("stories", BUILT_IN["stories"], edit=[zero(1, 0, step="weights")], story=False)
    (head,) = (one for one in shown.data()["head_numbers"] if (one["layer"], one["head"]) == (1, 0))
    (text,) = page.evaluate(BOARD, {"heads": [head], "cells": [[9, 2]]})
    assert "cannot be shown step by step" in text


def test_all_products_are_drawn_and_the_sum_is_that_of_the_line_below(page):
    (head,) = forward_pass("locales-fr-2015", "3 days ago", story=False).data()["head_numbers"]
    shown = page.evaluate(
        """async (head) => {
            const { Board } = await import("/web/render/board.js");
            const board = new Board(() => {}, () => {});
            const { steps, ...formula } = head;
            const names = steps.weights[0].map((_, key) => `k${key}`);
            const queries = steps.weights.map((_, row) => `q${row}`);
            board.show({ ...formula, ...steps, queries, keys: names, title: [] }, 1, 0, 0);
            const [products, line] = ["p", "pre"].map((tag) => board.element.querySelector(`.zoom-steps ${tag}`));
            return [board.element.querySelectorAll(".products rect").length, products.textContent, line.textContent];
        }""",
        head,
    )
    assert shown[0] == 192
    score = shown[2].split(" = ")[-1]
    assert shown[1] == f"Sum of all 192 products: {score}"
    assert "tanh" in shown[2]
