"""`examples`: the library, one line each."""

import peasy
from peasy.worked import example_names


def test_every_example_is_listed_with_what_it_shows():
    shown = peasy.examples()
    assert [each["name"] for each in shown.data()["examples"]] == list(example_names())
    text = " ".join(shown.text().split())
    for each in shown.data()["examples"]:
        assert each["name"] in text
        assert each["says"]
