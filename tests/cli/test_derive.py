"""Flags of the command line, derived from the signature of a command."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import pytest
from annotated_types import Ge
from cyclopts import App

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.derive import derive
from peasy.errors import UsageError

calls = []


@dataclass
class Oven:
    """Options of baking."""

    heat: Annotated[float, Ge(0)] = 1.0
    "How hot."


def bake(
    pizza: str,
    *,
    size: Literal["small", "large"] = "small",
    toppings: Sequence[str] = (),
    minutes: Annotated[int, Ge(1)] | None = None,
    crisp: bool = False,
    secret: int = 0,
    device: str = "auto",
    seed: int = 0,
    **oven: float,
) -> str:
    """Bake.

    Args:
        toppings: What is on it.
    """
    calls.append({"pizza": pizza, "size": size, "toppings": toppings, "minutes": minutes, "crisp": crisp, **oven})
    calls[-1] |= {"secret": secret, "device": device, "seed": seed}
    return pizza


@derive(bake, hide=("secret",), options=Oven)
def command(call: partial[str], pizza: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Bake a pizza."""
    return call(pizza)


@pytest.fixture
def run(capsys):
    app = App("test", help_format="plaintext", result_action="return_value")
    app.command(command, name="bake")

    def with_words(*words):
        calls.clear()
        app(["bake", *words], exit_on_error=False)
        return calls[0] if calls else capsys.readouterr().out

    return with_words


def test_flags_become_arguments(run):
    given = run("margherita", "--size", "large", "--toppings", "basil", "--toppings", "oil", "--crisp", "--heat", "2")
    assert given["toppings"] == ("basil", "oil")
    assert (given["size"], given["crisp"], given["heat"], given["minutes"]) == ("large", True, 2.0, None)


def test_global_flags_are_passed_where_the_command_takes_them(run):
    given = run("margherita", "--device", "cpu", "--seed", "3")
    assert (given["device"], given["seed"]) == ("cpu", 3)


def test_help_has_the_explanations_and_not_what_is_hidden(run):
    page = run("--help")
    assert "What is on it." in page
    assert "How hot." in page
    assert "Sampling" in page
    assert "secret" not in page


def test_bounds_of_the_command_hold_on_the_command_line(run):
    with pytest.raises(UsageError, match="--heat is -1"):
        run("margherita", "--heat", "-1")
