"""`examples`: the library of worked examples, one line each."""

import peasy
from peasy.worked import example_names


def test_every_example_is_listed_with_its_description():
    result = peasy.examples()
    assert [example["name"] for example in result.data()["examples"]] == list(example_names())
    text = " ".join(result.text().split())
    for example in result.data()["examples"]:
        assert example["name"] in text
        assert example["description"]
