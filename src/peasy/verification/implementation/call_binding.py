"""Call binding: which roles (query, key, mask, ...) go to which parameters of the target; `--call` parser."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peasy.errors import UsageError, did_you_mean
from peasy.verification.implementation.parameter_roles import CALL_WORDS, roles_of
from peasy.verification.implementation.target import TargetDescription

ROLE_OF_WORD = {"q": "query", "k": "key", "v": "value", "past_k": "past_key", "past_v": "past_value"}
"""Short words of `--call` for longer roles; the other words are role names."""


@dataclass(frozen=True)
class ArgumentSlot:
    """One argument: a role or a literal value; `name` None = positional."""

    name: str | None
    role: str | None
    literal: Any = None
    required: bool = True


@dataclass(frozen=True)
class CallBinding:
    """All arguments of a call. `constructor_args` are the constructor arguments given by `--call`."""

    name: str
    slots: tuple[ArgumentSlot, ...]
    constructor_args: tuple[Sequence[Any], Mapping[str, Any]] | None = None

    def has_roles(self, *roles: str) -> bool:
        """Return whether all these roles are bound."""
        return set(roles) <= {slot.role for slot in self.slots}

    def requires(self, role: str) -> bool:
        """Return whether this role is required."""
        return any(slot.role == role and slot.required for slot in self.slots)

    def parameter_names(self, role: str) -> list[str]:
        """Return the target's parameter names for this role."""
        return [slot.name for slot in self.slots if slot.role == role and slot.name]

    def bind(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
        """Return (args, kwargs) for these values by role; None if a required role has no value."""
        args, kwargs = [], {}
        for slot in self.slots:
            if slot.role is None:
                value = slot.literal
            elif slot.role in values:
                value = values[slot.role]
            elif slot.required:
                return None
            else:
                continue
            if slot.name is None:
                args.append(value)
            else:
                kwargs[slot.name] = value
        return args, kwargs

    def summary(self) -> str:
        """Return the call as source text."""
        words = {role: word for word, role in ROLE_OF_WORD.items()}
        parts = []
        for slot in self.slots:
            text = repr(slot.literal) if slot.role is None else words.get(slot.role, slot.role)
            if slot.role is None or slot.required or slot.role in ("mask", "padding", "causal", "cache", "heads"):
                parts.append(text if slot.name in (None, text) else f"{slot.name}={text}")
        return f"{self.name}({', '.join(parts)})"


def infer_binding(description: TargetDescription) -> CallBinding:
    """Infer the binding from the target's signature."""
    roles = roles_of(description)
    slots = [
        ArgumentSlot(parameter.name, roles[parameter.name], required=parameter.required)
        for parameter in description.parameters
        if parameter.name in roles
    ]
    return CallBinding(description.name, tuple(slots))


def parse_call(text: str) -> CallBinding:
    """Parse a call given by the user: `attention(q, k, v, mask)` or `Attention(24, 4)(x, mask=mask)`.

    >>> parse_call("attention(q, k, v, n_heads=2)").summary()
    'attention(q, k, v, n_heads=2)'
    """
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise UsageError(f'"{text}" cannot be parsed as a call: {error.msg}.', hint=_CALL_HINT) from None
    if not isinstance(call, ast.Call):
        raise UsageError(f'"{text}" is not a call.', hint=_CALL_HINT)
    constructor_args, function = None, call.func
    if isinstance(function, ast.Call):
        args = [_parse_literal(node) for node in function.args]
        constructor_args = args, {str(keyword.arg): _parse_literal(keyword.value) for keyword in function.keywords}
        function = function.func
    slots = [_parse_slot(None, node) for node in call.args]
    slots += [_parse_slot(keyword.arg, keyword.value) for keyword in call.keywords]
    return CallBinding(ast.unparse(function), tuple(slots), constructor_args)


_CALL_HINT = 'For example: --call "attention(q, k, v, mask)"'


def _parse_slot(name: str | None, node: ast.expr) -> ArgumentSlot:
    if isinstance(node, ast.Name) and node.id not in ("None", "True", "False"):
        role = ROLE_OF_WORD.get(node.id, node.id)
        if role not in {ROLE_OF_WORD.get(word, word) for word in CALL_WORDS}:
            hint = did_you_mean(node.id, CALL_WORDS) or f"Known words: {', '.join(CALL_WORDS)}."
            raise UsageError(f'"{node.id}" in --call is unknown.', hint=hint)
        return ArgumentSlot(name, role)
    return ArgumentSlot(name, None, _parse_literal(node))


def _parse_literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        message = f'"{ast.unparse(node)}" in --call is neither a known word nor a literal value.'
        raise UsageError(message, hint=_CALL_HINT) from None
