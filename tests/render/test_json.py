"""JSON output: complete and exact."""

import json

from tests.render.conftest import HOSTILE, matrix

from peasy.render import json as drawn_json
from peasy.views.document import Document


def test_all_parts_are_included(everything):
    data = json.loads(drawn_json.draw(everything))
    assert data["title"] == "Everything"
    assert [part["kind"] for part in data["parts"]] == [
        drawn_json.KINDS.get(type(part).__name__, type(part).__name__.lower()) for part in everything.parts
    ]


def test_numbers_are_exact_and_non_finite_ones_are_strings():
    text = drawn_json.draw(Document("t", (matrix(values=((1 / 3, float("nan"), float("-inf")),)),)))
    data = json.loads(text, parse_constant=lambda name: AssertionError(name))
    assert data["parts"][0]["values"] == [[1 / 3, "nan", "-inf"]]
    assert data["parts"][0]["marks"] == [[1, 2]]
    assert "explain" not in data["parts"][0]


def test_hostile_strings_round_trip_or_are_sanitised():
    data = json.loads(drawn_json.dump({"words": HOSTILE}))
    for word, back in zip(HOSTILE, data["words"], strict=True):
        if any(0xD800 <= ord(character) < 0xE000 for character in word):
            assert "⟨U+D" in back
        else:
            assert back == word
    drawn_json.dump({"words": HOSTILE}).encode("utf-8")
