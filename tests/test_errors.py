"""User-facing errors."""

import pickle

import pytest

from peasy import errors
from peasy.errors import InvalidInput, PeasyError, did_you_mean, lookup


def test_every_error_has_its_own_code_and_exit_code():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PeasyError)]
    codes = {(kind.exit_code, kind.code) for kind in kinds}
    assert sorted(exit_code for exit_code, _ in codes) == [1, 2, 3, 4, 5, 6, 7]
    assert len({code for _, code in codes}) == len(codes)
    assert [kind for kind in kinds if "code" not in vars(kind)] == [errors.UnknownKeyword], "a kind of UsageError"


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


def test_lookup():
    known = {"journey": 1, "pizza": 2}
    assert lookup("pizza", known, "example") == 2
    assert lookup(7, known, "example") == 7
    with pytest.raises(InvalidInput, match='There is no example "pizzza"') as error:
        lookup("pizzza", known, "example")
    assert error.value.hint == "Did you mean pizza?"
    with pytest.raises(InvalidInput) as error:
        lookup("xylophone", known, "example")
    assert error.value.hint == "Known: journey, pizza."


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("max_new_tokens", ["max_tokens", "min_p"], "max_tokens"),
        ("--num-return-sequences", ["-n", "--seed"], "-n"),
        ("--learning-rate", ["--lr", "--steps"], "--lr"),
        ("epochs", ["steps", "minutes"], "steps or minutes"),
        ("num_epochs", ["steps", "seed"], "steps"),
        ("do_sample", ["temperature", "top_p"], "temperature"),
        ("beam_size", ["batch_size", "num_beams"], "num_beams"),
        ("context_length", ["length", "seq_len"], "seq_len"),
        ("prompt_lookup_num_tokens", ["max_tokens", "speculative"], "speculative"),
    ],
)
def test_names_of_other_tools_are_known(word, known, meant):
    assert did_you_mean(word, known) == f"Did you mean {meant}?"


def test_synonyms_are_not_parameters_of_peasy():
    ours = {name for meant in errors.synonyms().values() for name in meant.split(" or ")}
    assert not ours & errors.synonyms().keys()


def test_dashes_make_no_flag_similar():
    assert did_you_mean("--edit", ["--seed", "--json"]) is None
    assert did_you_mean("--edit", ["--ablate", "--seed", "--cut"]) == "Did you mean --ablate or --cut?"
    assert did_you_mean("--jsno", ["--seed", "--json"]) == "Did you mean --json?"


@pytest.mark.parametrize(("theirs", "ours"), [("transformer", "gpt"), ("bert", "encoder"), ("lstm", "rnn")])
def test_kinds_are_suggested_by_meaning(theirs, ours):
    assert did_you_mean(theirs, ["gpt", "encoder", "translator", "rnn", "cnn"]) == f"Did you mean {ours}?"
