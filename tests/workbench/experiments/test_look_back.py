"""A leak makes the loss too good and the writing worse; without one the verdict is another."""

import pytest

from peasy.workbench.experiments import look_back


def test_triangle_hides_what_comes_after():
    matrix = look_back.triangle()
    assert matrix.values[0] == (1.0, *[None] * (len(matrix.columns) - 1))
    assert None not in matrix.values[-1]


@pytest.mark.slow
def test_the_leak_shows():
    found = look_back.run()
    assert found.holds, found.verdict


def test_without_a_leak_the_verdict_is_another():
    found = look_back.run(steps=2, leak=False, texts=2)
    assert not found.holds
