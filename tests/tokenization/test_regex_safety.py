"""Regex safety: hostile patterns are rejected, known ones run in linear time."""

import time

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from peasy.errors import InvalidInput
from peasy.tokenization.regex_safety import KNOWN_PATTERNS, MAX_TEXT_CHARS, max_text_chars

HOSTILE = [
    "(a+)+b", "(a*)*", "(a|a)*b", "(a|aa)+$", "(.*)*x", "a*a*b", r"\s*\s*\s*x", "(a?){30}a{30}", "a?" * 30 + "a" * 30,
    "(a{1,100}){1,100}", "a{1,99999}", "((a{100}){100}){100}", "(?:(?:a+)b?)+c", r"(a)\1", r"\k<x>", r"(?<x>a\g<x>?b)",
    "(?R)", "(?~abc)", "(?(1)a|b)", "(?x: a )", "(?#c)", "a**", "a{2}{30}", "(" * 30 + "a" + ")" * 30, "x" * 3000,
]  # fmt: skip
BROKEN = ["(a", "a)", "[a", "[[a]", "\\", "(?", "(?<"]
HARMLESS = [r"\d", "[^\\]]", "[]a]", "(?:ab|cd)", "(?<=a)b(?!c)", "a{3}", "[[:alpha:]]", r"\p{Lu}", "", "a{2,4}"]
LOOPED = ["x+y", "[a-z]*!", r"\p{L}+|\d{1,3}", "(?i:abc)+", "a+?", "a++", r"[[a-z]&&[aeiou]]+b"]


@pytest.mark.parametrize("pattern", HOSTILE + BROKEN)
def test_unsafe_patterns_are_rejected(pattern):
    start = time.process_time()
    with pytest.raises(InvalidInput, match="rejected"):
        max_text_chars(pattern)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("pattern", HARMLESS)
def test_no_text_limit_without_unbounded_repeats(pattern):
    assert max_text_chars(pattern) is None


@pytest.mark.parametrize("pattern", LOOPED)
def test_text_limit_with_one_unbounded_repeat(pattern):
    assert max_text_chars(pattern) == MAX_TEXT_CHARS


def seconds(pattern, text):
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    start = time.process_time()
    tokenizer.encode_batch_fast([text])
    return time.process_time() - start


BAITS = ["a", " ", "1", "!", "aB", " \n", "x'", "Aa!1 \n/日"]


@pytest.mark.parametrize("pattern", sorted(KNOWN_PATTERNS))
def test_known_patterns_are_linear(pattern):
    """Eight times the text takes about eight times as long, not sixty-four."""
    for bait in BAITS:
        small = min(seconds(pattern, bait * (20_000 // len(bait))) for _ in range(3))
        large = min(seconds(pattern, bait * (160_000 // len(bait))) for _ in range(2))
        assert large < 32 * max(small, 0.01), bait


@pytest.mark.parametrize("pattern", LOOPED)
def test_worst_case_within_the_limit_is_fast(pattern):
    assert max(seconds(pattern, bait * (MAX_TEXT_CHARS // len(bait))) for bait in BAITS) < 2


def test_rejected_pattern_is_slow():
    """Inverse: without the check, a hostile pattern takes long on a short line."""
    assert seconds("(a+)+b", ("a" * 18 + "c") * 6) > 20 * seconds("[ac]", ("a" * 18 + "c") * 6)
