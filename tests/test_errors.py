"""User-facing errors."""

import pickle

import pytest

from peasy import errors
from peasy.errors import InvalidInput, PeasyError, did_you_mean, lookup


def test_every_error_has_its_own_code_and_exit_code():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PeasyError)]
    assert sorted(kind.exit_code for kind in kinds) == [1, 2, 3, 4, 5, 6, 7]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_an_error_has_a_message_and_a_hint():
    error = InvalidInput("This is wrong.", hint="Do that.")
    assert (str(error), error.message, error.hint) == ("This is wrong.", "This is wrong.", "Do that.")
    assert InvalidInput("This is wrong.").hint is None


def test_errors_can_be_pickled():
    back = pickle.loads(pickle.dumps(InvalidInput("This is wrong.", hint="Do that.")))
    assert (type(back), back.message, back.hint) == (InvalidInput, "This is wrong.", "Do that.")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("jurney", "journey"), ("JOURNEY", "journey"), ("pizzas", "pizza"), ("xylophone", None), ("", None)],
)
def test_did_you_mean(word, meant):
    assert did_you_mean(word, ["journey", "pizza"]) == (meant and f"Did you mean {meant}?")
    assert did_you_mean(word, []) is None


def test_named():
    known = {"journey": 1, "pizza": 2}
    assert lookup("pizza", known, "example") == 2
    assert lookup(7, known, "example") == 7
    with pytest.raises(InvalidInput, match='There is no example "pizzza"') as error:
        lookup("pizzza", known, "example")
    assert error.value.hint == "Did you mean pizza?"
    with pytest.raises(InvalidInput) as error:
        lookup("xylophone", known, "example")
    assert error.value.hint == "Known: journey, pizza."
