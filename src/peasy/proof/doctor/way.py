"""How a patient is called: which word of ours goes to which of its parameters."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peasy.errors import UsageError, did_you_mean
from peasy.proof.doctor.role import SAYABLE, roles_of
from peasy.proof.doctor.subject import Description

WORDS = {"q": "query", "k": "key", "v": "value", "past_k": "past_key", "past_v": "past_value"}
"""Short words of `--call` for longer roles; others are roles themselves."""


@dataclass(frozen=True)
class Slot:
    """One argument: a role to be filled, or a plain value; `name` None = by its place."""

    name: str | None
    role: str | None
    plain: Any = None
    required: bool = True


@dataclass(frozen=True)
class Way:
    """All arguments of a call. `made` are those of the constructor, where `--call` gave them."""

    name: str
    slots: tuple[Slot, ...]
    made: tuple[Sequence[Any], Mapping[str, Any]] | None = None

    def has(self, *roles: str) -> bool:
        """Whether all these roles are in it."""
        return set(roles) <= {slot.role for slot in self.slots}

    def needs(self, role: str) -> bool:
        """Whether this role must be given."""
        return any(slot.role == role and slot.required for slot in self.slots)

    def called(self, role: str) -> list[str]:
        """What the patient calls this role."""
        return [slot.name for slot in self.slots if slot.role == role and slot.name]

    def bind(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
        """Arguments for these values by role; None where a required one has no value. Optional ones stay away."""
        args, kwargs = [], {}
        for slot in self.slots:
            if slot.role is None:
                given = slot.plain
            elif slot.role in values:
                given = values[slot.role]
            elif slot.required:
                return None
            else:
                continue
            if slot.name is None:
                args.append(given)
            else:
                kwargs[slot.name] = given
        return args, kwargs

    def says(self) -> str:
        """The call as one would write it."""
        words = {role: word for word, role in WORDS.items()}
        parts = []
        for slot in self.slots:
            said = repr(slot.plain) if slot.role is None else words.get(slot.role, slot.role)
            if slot.role is None or slot.required or slot.role in ("mask", "padding", "causal", "cache", "heads"):
                parts.append(said if slot.name in (None, said) else f"{slot.name}={said}")
        return f"{self.name}({', '.join(parts)})"


def way_of(description: Description) -> Way:
    """How to call it, from its signature."""
    roles = roles_of(description)
    slots = [
        Slot(parameter.name, roles[parameter.name], required=parameter.required)
        for parameter in description.parameters
        if parameter.name in roles
    ]
    return Way(description.name, tuple(slots))


def parse_call(text: str) -> Way:
    """How to call it, as a person says: `attention(q, k, v, mask)` or `Attention(24, 4)(x, mask=mask)`.

    >>> parse_call("attention(q, k, v, n_heads=2)").says()
    'attention(q, k, v, n_heads=2)'
    """
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise UsageError(f'"{text}" cannot be read as a call: {error.msg}.', hint=_HINT) from None
    if not isinstance(call, ast.Call):
        raise UsageError(f'"{text}" is not a call.', hint=_HINT)
    made, called = None, call.func
    if isinstance(called, ast.Call):
        made = [_plain(each) for each in called.args], {str(each.arg): _plain(each.value) for each in called.keywords}
        called = called.func
    slots = [_slot(None, each) for each in call.args] + [_slot(each.arg, each.value) for each in call.keywords]
    return Way(ast.unparse(called), tuple(slots), made)


_HINT = 'For example: --call "attention(q, k, v, mask)"'


def _slot(name: str | None, node: ast.expr) -> Slot:
    if isinstance(node, ast.Name) and node.id not in ("None", "True", "False"):
        role = WORDS.get(node.id, node.id)
        if role not in {WORDS.get(word, word) for word in SAYABLE}:
            hint = did_you_mean(node.id, SAYABLE) or f"Known words: {', '.join(SAYABLE)}."
            raise UsageError(f'"{node.id}" in --call is no word that the doctor knows.', hint=hint)
        return Slot(name, role)
    return Slot(name, None, _plain(node))


def _plain(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise UsageError(f'"{ast.unparse(node)}" in --call is neither a word nor a plain value.', hint=_HINT) from None
