"""Tap: selection of activations, and invalid selections."""

import pytest
import torch

from peasy.errors import InvalidInput
from peasy.nn.tap import ModulePath, Tap, record_step

PATH = ModulePath("decoder", 2, "attention")


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, True),
        ({"layers": [2]}, True),
        ({"layers": [1]}, False),
        ({"layers": []}, False),
        ({"parts": ["feedforward"]}, False),
        ({"stacks": ["encoder"]}, False),
        ({"layers": [2], "parts": ["attention"], "stacks": ["decoder"]}, True),
    ],
)
def test_module_paths(selection, expected):
    assert Tap(print, **selection).wants(PATH) is expected


def test_steps():
    tap = Tap(print, steps=["scores"])
    assert tap.wants(PATH, "scores")
    assert not tap.wants(PATH, "weights")


def test_unknown_step_is_refused():
    with pytest.raises(InvalidInput, match='Unknown step "wights"') as caught:
        Tap(print, steps=["wights"])
    assert caught.value.hint == "Did you mean weights?"


def test_negative_rows_and_heads():
    tap = Tap(print, rows=[-1, 0], heads=[3])
    assert tap.resolve_rows(5) == (4, 0)
    assert tap.resolve_heads(4) == (3,)
    with pytest.raises(InvalidInput, match="no head 3"):
        tap.resolve_heads(3)
    with pytest.raises(InvalidInput, match="no row -1"):
        tap.resolve_rows(0)


def test_residual_steps_are_captured_by_row():
    captured, residual = [], torch.arange(12.0).reshape(1, 4, 3)
    record_step(Tap(captured.append, steps=["output"], rows=[-1]), PATH, "output", residual)
    record_step(Tap(captured.append, steps=["output"]), PATH, "output", residual)
    record_step(Tap(captured.append), PATH, "output", residual)
    record_step(None, PATH, "output", residual)
    assert [tuple(activation.array.shape) for activation in captured] == [(1, 1, 3), (1, 4, 3)]
    assert captured[0].rows == (3,)
