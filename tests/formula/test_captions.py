"""Captions: every TeX formula renders, and matches the computation."""

import numpy as np
import pytest

from peasy import Additive, attend, attend_with_weights
from peasy.formula import alibi, layer_norm, rms_norm, rotary, rotary_angles, sinusoidal
from peasy.render.tex import mathml, to_plain_text

X = np.ones((3, 4))
W = np.ones((4, 4))
CALCULATIONS = {
    "plain": lambda: attend(X, X, X),
    "capped": lambda: attend(X, X, X, causal=True, softcap=3.0, scale=0.2),
    "by sum": lambda: attend(X, X, X, scoring="cosine", normalise="sum"),
    "unnormalised": lambda: attend(X, X, X, scoring="dot", normalise="none", causal=True),
    "additive": lambda: attend(X, X, X, scoring=Additive(W, W, np.ones(4))),
    "heads": lambda: attend_with_weights(X, W, W, W, W, heads=2, source=X),
    "sinusoidal": lambda: sinusoidal(3, 4),
    "rotary": lambda: rotary(X),
    "rotary angles": lambda: rotary_angles(3, 4),
    "alibi": lambda: alibi(2, 3),
    "layer norm": lambda: layer_norm(X, X[0], X[0]),
    "rms norm": lambda: rms_norm(X),
}


@pytest.mark.parametrize("name", CALCULATIONS)
def test_every_caption_renders(name):
    steps = CALCULATIONS[name]()
    captions = [step for step, _ in steps.step_arrays()]
    if "weights" in steps:
        captions.append(steps.step("contributions"))
    for step in captions:
        assert mathml(step.tex)
        assert to_plain_text(step.tex)
        assert step.description[0].isupper()


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("plain", "softmax(QKᵀ / √d_k) V"),
        ("capped", "softmax(3 tanh((0.2 · QKᵀ) / 3) + M) V"),
        ("unnormalised", "(QKᵀ + M) V"),
        ("additive", "softmax(vᵀ tanh(W q_i + U k_j)) V"),
    ],
)
def test_last_caption_is_the_whole_formula(name, context):
    assert to_plain_text(CALCULATIONS[name]().step("context").tex) == context
