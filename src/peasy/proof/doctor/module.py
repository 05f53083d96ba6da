"""Instantiates the nn.Module under test and infers its numbers of heads."""

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
"""Constructor arguments by role: pairwise different sizes, and dropout, which must have no effect in eval mode."""


def make_module(
    patient: Patient, description: Description, call: Way | None, seed: int
) -> tuple[Description, dict[str, np.ndarray]]:
    """Return the module's description and its weights by name."""
    kwargs = _settings(description, call) if description.kind == "class" else {}
    made = patient.make(kwargs, seed)
    if isinstance(made, Fault):
        arguments = ", ".join(
            f"{name}={'...' if isinstance(value, Named) else value}" for name, value in kwargs.items()
        )
        raise InvalidInput(
            f"{description.name}({arguments}) could not be created: {made.says()}",
            hint=f'Give the constructor call: --call "{description.name}({sizes.MODEL}, {sizes.HEADS})(x)"',
        )
    return made


def _settings(description: Description, call: Way | None) -> dict[str, Any]:
    if call is not None and call.made is not None:
        args, kwargs = call.made
        return dict(zip((parameter.name for parameter in description.parameters), args, strict=False)) | dict(kwargs)
    roles = roles_of(description, making=True)
    arguments: dict[str, Any] = {}
    for parameter in description.parameters:
        role = roles.get(parameter.name)
        if role == "config":
            arguments[parameter.name] = Named(_named())
        elif (
            role == "dropout" or (role is not None and parameter.required) or role in ("d_model", "heads", "key_heads")
        ):
            arguments[parameter.name] = SETTINGS.get(role or "")
    return arguments


def _named() -> dict[str, Any]:
    """Return the config values under every common name."""
    known = {name: SETTINGS[role] for role, names in NAMES.items() if role in SETTINGS for name in names.split()}
    return known | {"bias": True, "attention_bias": True, "use_bias": True, "qkv_bias": True, "vocab_size": 50}


def read_heads(description: Description, projection: Projection) -> Iterator[tuple[int, int]]:
    """Yield possible (query heads, kv heads): from the module's attributes, else the divisors of its width."""
    width, kv_width = projection.query.weight.shape[1], projection.key.weight.shape[1]
    declared = [value for name, value in description.numbers.items() if ROLES.get(name.strip("_").lower()) == "heads"]
    declared = [heads for heads in dict.fromkeys(declared) if heads > 0 and width % heads == 0]
    divisors = [1, *(n for n in range(2, min(width, 33)) if width % n == 0)]
    if not declared and "," in projection.says:  # comma-separated names: one projection per head
        declared = [projection.says.partition(";")[0].count(",") + 1]
    for heads in declared or divisors:
        if kv_width * heads % width == 0 and kv_width * heads // width > 0 and heads % (kv_width * heads // width) == 0:
            yield heads, kv_width * heads // width
