"""Sanitising of untrusted text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peasy.render import sanitize

INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}
ANYTHING = st.text(st.characters(codec=None, categories=None))


@given(st.one_of(st.text(), st.text(alphabet="\x00\x1b\x9b\u202e\u2066\ud800\ufeff\u2028 a")))
def test_no_dangerous_character_is_left(text):
    for drawn in (sanitize.escape_control(text), sanitize.token_label(text), sanitize.one_line(text)):
        assert not [character for character in drawn if unicodedata.category(character) in INVISIBLE]
        assert not [c for c in drawn if unicodedata.bidirectional(c) in {"LRO", "RLO", "LRE", "RLE", "PDF"}]
        drawn.encode("utf-8")


@pytest.mark.parametrize(
    ("token", "shown"),
    [(" the", "·the"), ("\n", "⏎"), ("\n\n", "⏎⏎"), ("a b", "a b"), ("  ", "··"), ("<eos>", "<eos>"), ("\t", "⇥"),
     ("x ", "x·"),
     ("\x1b[0m", "␛[0m"), ("\u202e", "⟨U+202E⟩"), ("\ud800", "⟨U+D800⟩"), ("", ""), ("日本", "日本"), ("👩‍👩‍👧",
     "👩‍👩‍👧")],
)  # fmt: skip
def test_whitespace_and_special_tokens_are_visible(token, shown):
    assert sanitize.token_label(token) == shown


def test_long_labels_are_cut_with_an_ellipsis():
    assert len(sanitize.token_label("a" * 10_000)) == sanitize.MAX_LABEL_LENGTH
    assert sanitize.token_label("a" * 10_000).endswith("…")


def test_plain_text_is_unchanged():
    text = "Ça va? Größe, naïve, Łódź, Ελληνικά, русский, שלום, 日本語"
    assert sanitize.escape_control(text) == text
