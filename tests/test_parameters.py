"""Parameters of a command: names, defaults, bounds and explanations from signature and docstring."""

from collections.abc import Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import Annotated

import pytest
from annotated_types import Ge, Gt, Le, Lt

from peasy.errors import InvalidInput, UsageError, lookup
from peasy.parameters import (
    REQUIRED,
    FrozenSettings,
    TypedSettings,
    check_bounds,
    command_parameters,
    with_checked_arguments,
)


@dataclass
class Oven:
    """Options."""

    heat: Annotated[float, Ge(0)] = 1.0
    "How hot,\n    in parts."
    fan: bool = False


def bake(pizza: str, *, minutes: Annotated[int, Ge(1), Le(9)] = 3, words: Sequence[str] = (), **oven: object) -> None:
    """Bake.

    Args:
        pizza: Kind: with a colon.
        minutes: Time in
            the oven.

    >>> bake("x")
    """


def test_signature_and_docstring_give_the_parameters():
    found = command_parameters(bake, Oven)
    assert list(found) == ["pizza", "minutes", "words", "heat", "fan"]
    assert found["pizza"].default is REQUIRED
    assert found["pizza"].help == "Kind: with a colon."
    assert (found["minutes"].default, found["minutes"].help) == (3, "Time in the oven.")
    assert (found["heat"].default, found["heat"].help) == (1.0, "How hot, in parts.")
    assert found["fan"].help == ""


@pytest.mark.parametrize(("bound", "good", "bad"), [(Ge(1), 1, 0), (Gt(0), 0.1, 0), (Le(5), 5, 6), (Lt(5), 4, 5)])
def test_bounds_are_checked_and_explained(bound, good, bad):
    annotations = {"n": Annotated[float, bound] | None}
    check_bounds(annotations, {"n": good, "other": bad})
    with pytest.raises(InvalidInput, match=f"n is {bad}") as caught:
        check_bounds(annotations, {"n": bad})
    assert "n must be" in caught.value.hint


def test_what_is_not_a_number_has_no_bounds():
    check_bounds({"n": Annotated[float, Ge(1)]}, {"n": None})


def test_settings_are_frozen_dataclasses_by_their_base_class():
    class Sized(FrozenSettings):
        size: int = 1

    class ByIdentity(FrozenSettings, eq=False):
        size: int = 1

    class TypedByIdentity(TypedSettings, eq=False):
        size: int = 1

    assert Sized(2) == Sized(2) != Sized(3)
    assert ByIdentity(2) != ByIdentity(2)
    assert TypedByIdentity(2) != TypedByIdentity(3)
    with pytest.raises(FrozenInstanceError):
        Sized().size = 3


def test_unknown_and_missing_arguments_are_rejected():
    checked = with_checked_arguments(lookup)
    assert checked("pizza", known={"pizza": 2}, kind="example") == 2
    with pytest.raises(UsageError, match=r"^lookup needs known\.$"):
        checked("pizza", knwon={}, kind="example")
    with pytest.raises(TypeError, match=r"^lookup has no parameter knwon\. Did you mean known\?$"):
        checked("pizza", {}, "example", knwon={})
    with pytest.raises(UsageError, match=r"has no parameter zebra\. It has name, known, kind\.$"):
        checked("pizza", {}, "example", zebra=1)


def test_any_keyword_is_left_to_the_function_that_takes_them():
    assert with_checked_arguments(lambda **options: options)(zebra=1) == {"zebra": 1}
