"""Reading examples: valid ones are kept, invalid ones raise one clear error."""

import json

import numpy as np
import pytest

from peasy.errors import InvalidInput, NotFound, PeasyError
from peasy.worked import example_names, load_example, read_example, solve

TINY = {"title": "tiny", "tokens": ["a", "b"], "x": [[1, 0], [0, 1]]}


def test_arrays_and_lists_are_the_same_example():
    assert read_example(TINY | {"x": np.eye(2)}) == read_example(TINY)


def test_a_file_is_read_as_toml_or_json(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(TINY))
    (tmp_path / "a.toml").write_text('title = "tiny"\ntokens = ["a", "b"]\nx = [[1, 0], [0, 1]]\n')
    assert read_example(tmp_path / "a.json") == read_example(tmp_path / "a.toml") == read_example(TINY)


def test_the_library_is_complete():
    wanted = {
        "i-love-ai", "i-love-ai-causal", "i-love-ai-two-heads", "i-love-ai-source-target", "apple-orange",
        "apple-phone", "apple-similarity", "journey", "journey-learned", "easy-peasy", "pizza-projection", "pizza",
        "pizza-masked", "self-attention",
    }  # fmt: skip
    assert wanted <= set(example_names())


def test_an_unknown_name_suggests_the_closest():
    with pytest.raises(NotFound) as caught:
        load_example("jurney")
    assert "Did you mean journey?" in caught.value.hint


WRONG = {
    "unknown key": ({"heds": 2}, "heds: unknown key"),
    "a number as text": ({"x": [["1", 0], [0, 1]]}, r"x\[0\]\[0\] should be a number"),
    "truth as a number": ({"x": [[True, 0], [0, 1]]}, r"x\[0\]\[0\] should be a number"),
    "not a number": ({"x": [[float("nan"), 0], [0, 1]]}, "should be a finite number"),
    "infinity": ({"x": [[float("inf"), 0], [0, 1]]}, "should be a finite number"),
    "minus infinity outside a bias": ({"x": [[-float("inf"), 0], [0, 1]]}, "should be a number"),
    "ragged": ({"x": [[1, 0], [0]]}, "x has rows of different lengths: row 0 has 2, row 1 has 1"),
    "no rows": ({"x": []}, "x is empty"),
    "no columns": ({"x": [[], []]}, "x is empty"),
    "a row too many": ({"x": [[1], [2], [3]]}, "x has 3 rows for 2 tokens"),
    "no tokens": ({"tokens": []}, "tokens is empty"),
    "tokens that are numbers": ({"tokens": [1, 2]}, r"tokens\[0\] should be text"),
    "one long text": ({"tokens": "ab"}, "tokens should be a list"),
    "no heads": ({"heads": 0}, "heads should be 1 or more"),
    "half a head": ({"heads": 1.5}, "heads should be a whole number"),
    "unknown scoring": ({"scoring": "dott"}, "scoring should be "),
    "a mask of numbers": ({"mask": [[1, 0], [0, 1]]}, "should be true or false"),
    "a narrow mask": ({"mask": [[True], [True]]}, "mask has 1 columns for 2 keys"),
    "a bias of words": ({"bias": [["much", 0], [0, 0]]}, "should be a number"),
    "wide weights": ({"weights": [[1, 0, 0], [0, 1, 0]]}, "weights has 3 columns for 2 keys"),
    "source without names": ({"source_x": [[1, 2]]}, "source_x is given without source_tokens"),
    "half a character": ({"tokens": ["\ud800", "b"]}, "lone surrogate"),
    "features that do not fit": ({"features": ["one"]}, "1 features for 2 columns"),
    "additive that does not fit": (
        {"scoring": {"kind": "additive", "w": [[1]], "u": [[1, 2]], "v": [1]}},
        "share one hidden width",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_fields_are_reported(case):
    change, message = WRONG[case]
    with pytest.raises(InvalidInput, match=message):
        read_example(TINY | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, "cannot be split into 3 heads"),
        ({"normalise": "sum", "scoring": "dot", "x": [[1, 0], [-1, 0]]}, "sum to 0"),
        ({"last_step": "wieghts"}, "is not one of the steps"),
        ({"weights": [[1, 0], [0, 1]], "heads": 2}, "belong to one head"),
        ({"weights": [[0.5, 0.5], [0, 1]], "causal": True}, "for a masked key"),
    ],
)
def test_errors_that_appear_only_when_solving(change, message):
    with pytest.raises(InvalidInput, match=message):
        solve(read_example(TINY | change))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"   \n",
        b"\xff\xfe\x00",
        b"title = ",
        b"[[[",
        b"title = 1",
        b"x = [[1, 0]]",
        b"x" * 10_000,
        b"a = " + b"[" * 3000,
    ],
)
def test_broken_files_raise_one_error(tmp_path, text):
    for suffix in (".toml", ".json"):
        path = tmp_path / f"broken{suffix}"
        path.write_bytes(text)
        with pytest.raises(InvalidInput):
            read_example(path)


def test_missing_file(tmp_path):
    with pytest.raises(NotFound, match="no file"):
        read_example(tmp_path / "none.toml")
    with pytest.raises(PeasyError):
        read_example(tmp_path)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = "t"\ntokens = ["a"]\nx = [[1], [2]]\n')
    with pytest.raises(InvalidInput, match=r"mine\.toml: x has 2 rows"):
        read_example(path)


def test_title_defaults_to_file_name_or_tokens(tmp_path):
    path = tmp_path / "my-cats.toml"
    path.write_text('tokens = ["the", "cat"]\nx = [[1, 0], [0, 1]]\n')
    assert read_example(path).title == "my-cats"
    assert read_example({"tokens": ["the", "cat"], "x": [[1, 0], [0, 1]]}).title == "the cat"
