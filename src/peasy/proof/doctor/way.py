"""Call binding: which roles (query, key, mask, ...) go to which parameters of the target; `--call` parser."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peasy.errors import UsageError, did_you_mean
from peasy.proof.doctor.role import SAYABLE, roles_of
from peasy.proof.doctor.subject import Description

WORDS = {"q": "query", "k": "key", "v": "value", "past_k": "past_key", "past_v": "past_value"}
"""Short words of `--call` for longer roles; the other words are role names."""


@dataclass(frozen=True)
class Slot:
    """One argument: a role or a literal value; `name` None = positional."""

    name: str | None
    role: str | None
    plain: Any = None
    required: bool = True


@dataclass(frozen=True)
class Way:
    """All arguments of a call. `made` are the constructor arguments given by `--call`."""

    name: str
    slots: tuple[Slot, ...]
    made: tuple[Sequence[Any], Mapping[str, Any]] | None = None

    def has(self, *roles: str) -> bool:
        """Return whether all these roles are bound."""
        return set(roles) <= {slot.role for slot in self.slots}

    def needs(self, role: str) -> bool:
        """Return whether this role is required."""
        return any(slot.role == role and slot.required for slot in self.slots)

    def called(self, role: str) -> list[str]:
        """Return the target's parameter names for this role."""
        return [slot.name for slot in self.slots if slot.role == role and slot.name]

    def bind(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
        """Return (args, kwargs) for these values by role; None if a required role has no value."""
        args, kwargs = [], {}
        for slot in self.slots:
            if slot.role is None:
                value = slot.plain
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

    def says(self) -> str:
        """Return the call as source text."""
        words = {role: word for word, role in WORDS.items()}
        parts = []
        for slot in self.slots:
            text = repr(slot.plain) if slot.role is None else words.get(slot.role, slot.role)
            if slot.role is None or slot.required or slot.role in ("mask", "padding", "causal", "cache", "heads"):
                parts.append(text if slot.name in (None, text) else f"{slot.name}={text}")
        return f"{self.name}({', '.join(parts)})"


def way_of(description: Description) -> Way:
    """Infer the binding from the target's signature."""
    roles = roles_of(description)
    slots = [
        Slot(parameter.name, roles[parameter.name], required=parameter.required)
        for parameter in description.parameters
        if parameter.name in roles
    ]
    return Way(description.name, tuple(slots))


def parse_call(text: str) -> Way:
    """Parse a call given by the user: `attention(q, k, v, mask)` or `Attention(24, 4)(x, mask=mask)`.

    >>> parse_call("attention(q, k, v, n_heads=2)").says()
    'attention(q, k, v, n_heads=2)'
    """
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise UsageError(f'"{text}" cannot be parsed as a call: {error.msg}.', hint=_HINT) from None
    if not isinstance(call, ast.Call):
        raise UsageError(f'"{text}" is not a call.', hint=_HINT)
    constructor_args, function = None, call.func
    if isinstance(function, ast.Call):
        args = [_plain(node) for node in function.args]
        constructor_args = args, {str(keyword.arg): _plain(keyword.value) for keyword in function.keywords}
        function = function.func
    slots = [_slot(None, node) for node in call.args]
    slots += [_slot(keyword.arg, keyword.value) for keyword in call.keywords]
    return Way(ast.unparse(function), tuple(slots), constructor_args)


_HINT = 'For example: --call "attention(q, k, v, mask)"'


def _slot(name: str | None, node: ast.expr) -> Slot:
    if isinstance(node, ast.Name) and node.id not in ("None", "True", "False"):
        role = WORDS.get(node.id, node.id)
        if role not in {WORDS.get(word, word) for word in SAYABLE}:
            hint = did_you_mean(node.id, SAYABLE) or f"Known words: {', '.join(SAYABLE)}."
            raise UsageError(f'"{node.id}" in --call is unknown.', hint=hint)
        return Slot(name, role)
    return Slot(name, None, _plain(node))


def _plain(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        message = f'"{ast.unparse(node)}" in --call is neither a known word nor a literal value.'
        raise UsageError(message, hint=_HINT) from None
