"""Slips of networks: a table that was calculated in a known wrong way is named, also if an earlier step was wrong."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from peasy.worked import load_example, solve
from peasy.worked.checking.checker import check
from peasy.worked.checking.step_slips import STEP_SLIPS, StepPlace
from peasy.worked.example import WrittenTable

NETWORKS = ("layer-norm", "feed-forward", "cross-entropy", "softmax-backward", "adamw", "positions", "rnn-step")


def step_slips(worked, name):
    """Return the slips of one step of a network, by description."""
    route = worked.graph.route(name, worked.values)
    place = StepPlace(name, route.step, tuple(worked.values[i] for i in route.inputs), route.inputs, worked.values)
    return [(slip.description, slip.values) for slip in place.slips()]


@cache
def solved(name):
    return solve(load_example(name))


def slipped_tables():
    """Return one table for each slip: (example, node, name of the slip, wrong values)."""
    found = {}
    for example in NETWORKS:
        worked = solved(example)
        for node in worked.graph.nodes.values():
            if not node.listed or (route := worked.graph.route(node.name, worked.values)) is None:
                continue
            with np.errstate(all="ignore"):
                slips = step_slips(worked, node.name)
            for name, values in slips:
                kind = type(route.step).__name__, name
                if np.isfinite(values).all() and kind not in found:
                    found[kind] = example, node.name, name, values
    return list(found.values())


def written(example, node, values, decimals=4):
    cells = tuple(tuple(f"{number:.{decimals}f}" for number in row) for row in values)
    return replace(load_example(example), written=(WrittenTable(node, cells),))


def test_every_slip_of_a_step_is_named():
    tables, unnamed, named = slipped_tables(), [], 0
    for example, node, name, values in tables:
        right = solved(example).values[node]
        if np.array_equal(values.round(4), right.round(4)):
            continue
        reasons = {cell.reason for cell in check(written(example, node, values)).cells if cell.verdict == "wrong"}
        named += all(name in reason for reason in reasons)
        if any(reason.count(": ") == 0 for reason in reasons):
            unnamed.append((example, node, name, reasons))
    assert not unnamed
    assert named > 0.8 * len(tables) > 40  # another slip may give the same numbers


@pytest.mark.parametrize(
    ("example", "node", "changed", "slip"),
    [
        ("layer-norm", "norm.output", "norm.variance", "it was divided by n - 1 instead of n"),
        ("cross-entropy", "loss.loss", "loss.token_loss", "the logarithm to base 2 was taken"),
    ],
)
def test_a_slip_in_an_earlier_step_is_named(example, node, changed, slip):
    worked = solved(example)
    values = dict(step_slips(worked, changed))[slip]
    given = {name: worked.values[name] for name, own in worked.graph.nodes.items() if not own.routes}
    wrong = worked.graph.evaluate(given | {changed: values})[node]
    reasons = [cell.reason for cell in check(written(example, node, wrong)).cells if cell.verdict == "wrong"]
    assert reasons
    assert all(f"in {changed}, {slip}" in reason for reason in reasons)


def test_slips_are_tables_of_the_right_shape_that_differ():
    for _, _, name, values in slipped_tables():
        assert name
        assert values.ndim == 2
    assert all(ways for ways in STEP_SLIPS.values())
