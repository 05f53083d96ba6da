"""Instantiates the nn.Module under test and infers its numbers of heads."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.verification.implementation import layout as sizes
from peasy.verification.implementation.call_binding import CallBinding
from peasy.verification.implementation.parameter_roles import NAMES_BY_ROLE, ROLE_BY_NAME, roles_of
from peasy.verification.implementation.target import NamespaceArgument, Target, TargetDescription, TargetFault
from peasy.verification.implementation.weights import QKVProjections

CONSTRUCTOR_VALUES: dict[str, Any] = {
    "d_model": sizes.D_MODEL, "heads": sizes.NUM_HEADS, "key_heads": sizes.NUM_KV_HEADS, "d_head": sizes.D_HEAD,
    "length": sizes.MAX_SEQ_LEN, "dropout": 0.1, "causal": True, "flag": True, "batch_first": True,
    "repeats": sizes.NUM_HEADS // sizes.NUM_KV_HEADS,
}  # fmt: skip
"""Constructor arguments by role: pairwise different sizes, and dropout, which must have no effect in eval mode."""


def instantiate_module(
    target: Target, description: TargetDescription, binding: CallBinding | None, seed: int
) -> tuple[TargetDescription, dict[str, np.ndarray]]:
    """Return the module's description and its weights by name."""
    kwargs = _constructor_arguments(description, binding) if description.kind == "class" else {}
    made = target.instantiate(kwargs, seed)
    if isinstance(made, TargetFault):
        arguments = ", ".join(
            f"{name}={'...' if isinstance(value, NamespaceArgument) else value}" for name, value in kwargs.items()
        )
        raise InvalidInput(
            f"{description.name}({arguments}) could not be created: {made.summary()}",
            hint=f'Give the constructor call: --call "{description.name}({sizes.D_MODEL}, {sizes.NUM_HEADS})(x)"',
        )
    return made


def _constructor_arguments(description: TargetDescription, binding: CallBinding | None) -> dict[str, Any]:
    if binding is not None and binding.constructor_args is not None:
        args, kwargs = binding.constructor_args
        return dict(zip((parameter.name for parameter in description.parameters), args, strict=False)) | dict(kwargs)
    roles = roles_of(description, in_constructor=True)
    arguments: dict[str, Any] = {}
    for parameter in description.parameters:
        role = roles.get(parameter.name)
        if role == "config":
            arguments[parameter.name] = NamespaceArgument(_config_values())
        elif (
            role == "dropout" or (role is not None and parameter.required) or role in ("d_model", "heads", "key_heads")
        ):
            arguments[parameter.name] = CONSTRUCTOR_VALUES.get(role or "")
    return arguments


def _config_values() -> dict[str, Any]:
    """Return the config values under every common name."""
    known = {
        name: CONSTRUCTOR_VALUES[role]
        for role, names in NAMES_BY_ROLE.items()
        if role in CONSTRUCTOR_VALUES
        for name in names.split()
    }
    return known | {"bias": True, "attention_bias": True, "use_bias": True, "qkv_bias": True, "vocab_size": 50}


def infer_num_heads(description: TargetDescription, projections: QKVProjections) -> Iterator[tuple[int, int]]:
    """Yield possible (query heads, kv heads): from the module's attributes, else the divisors of its width."""
    width, kv_width = projections.query.weight.shape[1], projections.key.weight.shape[1]
    declared = [
        value
        for name, value in description.int_attributes.items()
        if ROLE_BY_NAME.get(name.strip("_").lower()) == "heads"
    ]
    declared = [heads for heads in dict.fromkeys(declared) if heads > 0 and width % heads == 0]
    divisors = [1, *(n for n in range(2, min(width, 33)) if width % n == 0)]
    if not declared and "," in projections.description:  # comma-separated names: one projection per head
        declared = [projections.description.partition(";")[0].count(",") + 1]
    for heads in declared or divisors:
        if kv_width * heads % width == 0 and kv_width * heads // width > 0 and heads % (kv_width * heads // width) == 0:
            yield heads, kv_width * heads // width
