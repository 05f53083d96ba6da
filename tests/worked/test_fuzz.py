"""Fuzz tests: any example gives a valid result or one clear error."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peasy.commands.explain import explain
from peasy.errors import PeasyError
from peasy.worked.arithmetic import arithmetic

NUMBER = st.one_of(
    st.integers(-3, 3),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0, 1e308, -1e-320, True, "1", None, "-inf", 10**400]),
)
CALM = st.floats(-5, 5).map(lambda number: round(number, 2))


def matrices(numbers):
    return st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1, max_size=3)
    )


WILD = st.one_of(matrices(NUMBER), st.lists(st.lists(NUMBER, max_size=3), max_size=3), NUMBER, st.text(max_size=5))
FIELDS = {
    "tokens": st.one_of(st.lists(st.text(max_size=4), max_size=3), NUMBER),
    **dict.fromkeys(("x", "source_x", "w_q", "w_k", "w_v", "w_o", "q", "k", "v", "weights", "mask", "bias"), WILD),
    "source_tokens": st.lists(st.text(max_size=4), max_size=3),
    "heads": st.one_of(st.integers(-1, 4), NUMBER),
    "scoring": st.sampled_from(
        ["dot", "cosine", "scaled-dot", "additive", {"kind": "additive", "w": [[1]], "u": [[1]], "v": [1]}]
    ),
    "scale": NUMBER,
    "window": st.one_of(NUMBER, st.lists(NUMBER, max_size=3)),
    "causal": st.one_of(st.booleans(), NUMBER),
    "normalise": st.sampled_from(["softmax", "sum", "none", "max"]),
    "last_step": st.sampled_from(["", "scores", "value", "nothing"]),
    "plot_features": st.lists(st.text(max_size=2), max_size=2),
    "project": st.lists(st.text(max_size=2), max_size=2),
    "row_dim": st.sampled_from([0, 1, 7]),
}


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.fixed_dictionaries({"title": st.text(max_size=5)}, optional=FIELDS))
def test_arbitrary_examples_are_solved_or_rejected(example):
    try:
        shown = explain(example, contributions=True)
        shown.data()
        shown.text()
    except PeasyError:
        return
    assert shown.steps


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.data())
def test_valid_examples_are_always_solved(tokens, width, d_key, data):
    def draw(rows, columns):
        return data.draw(st.lists(st.lists(CALM, min_size=columns, max_size=columns), min_size=rows, max_size=rows))

    example = {"title": "t", "tokens": [f"t{i}" for i in range(tokens)], "x": draw(tokens, width)}
    example |= {"w_q": draw(width, d_key), "w_k": draw(width, d_key), "w_v": draw(width, width)}
    example |= {
        "causal": data.draw(st.booleans()),
        "scoring": data.draw(st.sampled_from(["dot", "cosine", "scaled-dot"])),
    }
    shown = explain(example)
    np.testing.assert_allclose(shown.weights.sum(axis=1), 1)
    value = shown.value
    assert (shown.context <= value.max(axis=0) + 1e-9).all()
    assert (shown.context >= value.min(axis=0) - 1e-9).all()
    assert arithmetic(shown.worked, "weights", tokens - 1, 0).lines[-1].value == shown.weights[-1, 0]
