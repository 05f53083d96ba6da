import json

from tests.render.conftest import HOSTILE, matrix

from peasy.render import json as drawn_json
from peasy.views import Document


def test_everything_in_a_document_is_there(everything):
    data = json.loads(drawn_json.draw(everything))
    assert data["title"] == "Everything"
    assert [part["kind"] for part in data["parts"]] == [type(part).__name__.lower() for part in everything.parts]


def test_numbers_come_back_exactly_and_what_json_has_no_number_for_is_a_word():
    text = drawn_json.draw(Document("t", (matrix(values=((1 / 3, float("nan"), float("-inf")),)),)))
    data = json.loads(text, parse_constant=lambda name: AssertionError(name))
    assert data["parts"][0]["values"] == [[1 / 3, "nan", "-inf"]]
    assert data["parts"][0]["marks"] == [[1, 2]]
    assert "explain" not in data["parts"][0]


def test_hostile_strings_come_back_as_they_were_or_tamed_where_they_cannot_be_written():
    data = json.loads(drawn_json.dump({"words": HOSTILE}))
    for word, back in zip(HOSTILE, data["words"], strict=True):
        if any(0xD800 <= ord(each) < 0xE000 for each in word):
            assert "⟨U+D" in back
        else:
            assert back == word
    drawn_json.dump({"words": HOSTILE}).encode("utf-8")
