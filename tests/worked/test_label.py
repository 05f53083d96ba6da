"""Token labels."""

import pytest

from peasy.worked.label import LONGEST, visible


@pytest.mark.parametrize(
    "token", ["\x1b[31mred", "\x9b31m", "a\x00b", "\u202eabc", "\u2066x", "line\nend", "\u2028", "\x7f"]
)
def test_control_characters_are_replaced(token):
    assert visible(token).isprintable()


@pytest.mark.parametrize("token", ["I", "<eos>", "é", "日本", "👩‍👩‍👧", "שלום", "[red]"])
def test_words_are_unchanged(token):
    assert visible(token) == token


def test_long_labels_are_cut():
    assert len(visible("a" * 10_000)) == LONGEST
    assert visible("a" * LONGEST) == "a" * LONGEST
