"""A patient with weights: how it is made, and how many heads it has."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.proof.doctor import frame as sizes
from peasy.proof.doctor.role import NAMES, ROLES, roles_of
from peasy.proof.doctor.subject import Description, Fault, Named, Patient
from peasy.proof.doctor.way import Way
from peasy.proof.doctor.weights import Projection

SETTINGS: dict[str, Any] = {
    "d_model": sizes.MODEL, "heads": sizes.HEADS, "key_heads": sizes.KEY_HEADS, "d_head": sizes.WIDTH,
    "length": sizes.LENGTH, "dropout": 0.1, "causal": True, "flag": True, "batch_first": True,
    "repeats": sizes.HEADS // sizes.KEY_HEADS,
}  # fmt: skip
"""What constructors are given: sizes that cannot be taken for one another, and dropout, which must not matter."""


def make_module(
    patient: Patient, description: Description, call: Way | None, seed: int
) -> tuple[Description, dict[str, np.ndarray]]:
    """The module with its weights by name."""
    kwargs = _settings(description, call) if description.kind == "class" else {}
    made = patient.make(kwargs, seed)
    if isinstance(made, Fault):
        given = ", ".join(f"{name}={'...' if isinstance(value, Named) else value}" for name, value in kwargs.items())
        raise InvalidInput(
            f"{description.name}({given}) could not be made: {made.says()}",
            hint=f'Say how: --call "{description.name}({sizes.MODEL}, {sizes.HEADS})(x)"',
        )
    return made


def _settings(description: Description, call: Way | None) -> dict[str, Any]:
    if call is not None and call.made is not None:
        args, kwargs = call.made
        return dict(zip((each.name for each in description.parameters), args, strict=False)) | dict(kwargs)
    roles = roles_of(description, making=True)
    found: dict[str, Any] = {}
    for parameter in description.parameters:
        role = roles.get(parameter.name)
        if role == "config":
            found[parameter.name] = Named(_named())
        elif (
            role == "dropout" or (role is not None and parameter.required) or role in ("d_model", "heads", "key_heads")
        ):
            found[parameter.name] = SETTINGS.get(role or "")
    return found


def _named() -> dict[str, Any]:
    """Settings under every name that people give them."""
    known = {name: SETTINGS[role] for role, names in NAMES.items() if role in SETTINGS for name in names.split()}
    return known | {"bias": True, "attention_bias": True, "use_bias": True, "qkv_bias": True, "vocab_size": 50}


def read_heads(description: Description, projection: Projection) -> Iterator[tuple[int, int]]:
    """How many heads and key heads it may have: as it says, else what divides its width."""
    width, keys = projection.query.weight.shape[1], projection.key.weight.shape[1]
    said = [value for name, value in description.numbers.items() if ROLES.get(name.strip("_").lower()) == "heads"]
    said = [heads for heads in dict.fromkeys(said) if heads > 0 and width % heads == 0]
    listed = [1, *(n for n in range(2, min(width, 33)) if width % n == 0)]
    if not said and "," in projection.says:  # one map for each head
        said = [projection.says.partition(";")[0].count(",") + 1]
    for heads in said or listed:
        if keys * heads % width == 0 and keys * heads // width > 0 and heads % (keys * heads // width) == 0:
            yield heads, keys * heads // width
