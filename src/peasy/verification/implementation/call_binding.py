"""Call binding: roles (query, key, mask, ...) of parameters, guessed from their names or given by `--call`."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peasy import config
from peasy.errors import InvalidInput, UsageError, did_you_mean
from peasy.verification.implementation.target import Arg, SignatureParameter, TargetDescription

_Names = dict[str, str]


@dataclass(frozen=True)
class _KnownNames:
    """Names, separated by spaces, that attention code gives its parameters (by role) and weights (by part)."""

    parameters: _Names
    weights: _Names
    whole_weights: _Names
    ignored: str


NAMES = config.read_file(_KnownNames, Path(__file__).with_name("names.toml"))
ROLE_BY_NAME = {name: role for role, names in NAMES.parameters.items() for name in names.split()}
_CALL_WORDS = (
    "q", "k", "v", "x", "source", "mask", "w_q", "w_k", "w_v", "w_o", "heads", "past_k", "past_v", "cache", "offset",
)  # fmt: skip
"""Words allowed in `--call`."""

_ROLE_OF_WORD = {"q": "query", "k": "key", "v": "value", "past_k": "past_key", "past_v": "past_value"}
"""Short words of `--call` for longer roles; the other words are role names."""


@dataclass(frozen=True)
class _ArgumentSlot:
    """One argument: a role or a literal value; `name` None = positional."""

    name: str | None
    role: str | None
    literal: Arg = None
    required: bool = True


@dataclass(frozen=True)
class CallBinding:
    """All arguments of a call. `constructor_args` are the constructor arguments given by `--call`."""

    name: str
    slots: tuple[_ArgumentSlot, ...]
    constructor_args: tuple[Sequence[Arg], Mapping[str, Arg]] | None = None

    def has_roles(self, *roles: str) -> bool:
        """Return whether all these roles are bound."""
        return set(roles) <= {slot.role for slot in self.slots}

    def requires(self, role: str) -> bool:
        """Return whether this role is required."""
        return any(slot.role == role and slot.required for slot in self.slots)

    def parameter_names(self, role: str) -> list[str]:
        """Return the target's parameter names for this role."""
        return [slot.name for slot in self.slots if slot.role == role and slot.name]

    def bind(self, values: Mapping[str, Arg]) -> tuple[list[Arg], dict[str, Arg]] | None:
        """Return (args, kwargs) for these values by role; None if a required role has no value."""
        if any(slot.required and slot.role is not None and slot.role not in values for slot in self.slots):
            return None
        bound = [
            (slot.name, slot.literal if slot.role is None else values[slot.role])
            for slot in self.slots
            if slot.role is None or slot.role in values
        ]
        args = [value for name, value in bound if name is None]
        return args, {name: value for name, value in bound if name is not None}

    def summary(self) -> str:
        """Return the call as source text."""
        words = {role: word for word, role in _ROLE_OF_WORD.items()}
        parts = []
        for slot in self.slots:
            text = repr(slot.literal) if slot.role is None else words.get(slot.role, slot.role)
            if slot.role is None or slot.required or slot.role in ("mask", "padding", "causal", "cache", "heads"):
                parts.append(text if slot.name in (None, text) else f"{slot.name}={text}")
        return f"{self.name}({', '.join(parts)})"


def infer_binding(description: TargetDescription) -> CallBinding:
    """Infer the binding from the target's signature."""
    required = {parameter.name: parameter.required for parameter in description.parameters}
    slots = (_ArgumentSlot(name, role, None, required[name]) for name, role in roles_of(description).items())
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


def _parse_slot(name: str | None, node: ast.expr) -> _ArgumentSlot:
    if isinstance(node, ast.Name) and node.id not in ("None", "True", "False"):
        role = _ROLE_OF_WORD.get(node.id, node.id)
        if role not in {_ROLE_OF_WORD.get(word, word) for word in _CALL_WORDS}:
            hint = did_you_mean(node.id, _CALL_WORDS) or f"Known words: {', '.join(_CALL_WORDS)}."
            raise UsageError(f'"{node.id}" in --call is unknown.', hint=hint)
        return _ArgumentSlot(name, role)
    return _ArgumentSlot(name, None, _parse_literal(node))


def _parse_literal(node: ast.expr) -> Arg:
    try:
        return ast.literal_eval(node)
    except ValueError:
        message = f'"{ast.unparse(node)}" in --call is neither a known word nor a literal value.'
        raise UsageError(message, hint=_CALL_HINT) from None


def _role_of(parameter: SignatureParameter, in_constructor: bool = False) -> str | None:
    """Return the role of a parameter; `in_constructor`: of a constructor, where `bias` is a flag and `d` is a size."""
    name = parameter.name.strip("_").lower()
    snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", parameter.name).strip("_").lower()
    role = ROLE_BY_NAME.get(name) or ROLE_BY_NAME.get(snake_case)
    if in_constructor:
        special = {"bias": "flag", "mask": "causal", "use_mask": "causal", "context": "length", "window": "length"}
        return special.get(name) or ("d_head" if role in ("key", "value", "query") else role)
    return None if name == "d" else role


def roles_of(description: TargetDescription, in_constructor: bool = False) -> dict[str, str]:
    """Return roles by parameter name; a required parameter without a known role is an error."""
    roles = {}
    for parameter in description.parameters:
        role = _role_of(parameter, in_constructor)
        if role is None and parameter.required:
            names = (p.name if _role_of(p) else "..." for p in description.parameters if p.required)
            call = f"{description.name}({', '.join(names)})"
            raise InvalidInput(
                f'{description.name} needs "{parameter.name}", and its role cannot be guessed from its name.',
                hint=f'Give the call, with the words {", ".join(_CALL_WORDS)}: --call "{call}"',
            )
        if role is not None:
            roles[parameter.name] = role
    return roles


def declared_mask_meaning(description: TargetDescription, names: Iterable[str]) -> str | None:
    """Return the documented meaning of True in a boolean mask: "attend" or "masked"; None if not documented."""
    docstring = description.docstring.lower()
    true = r"(?:true|1|ones?)\b[^.\n]{0,40}?"
    attends = r"(?:may|can|allow|attend|visible|keep|look|see|real|valid|participat)"
    masked = r"(?:hide|hidden|mask(?:ed)? out|ignore|block|not (?:attend|look|see|allowed)|forbid|pad)"
    if re.search(true + masked, docstring):
        return "masked"
    if re.search(true + attends, docstring):
        return "attend"
    words = dict.fromkeys(("visible", "allowed", "may_look", "keep", "valid"), "attend")
    words |= {"hide": "masked", "hidden_mask": "masked"}
    return next((words[name.lower()] for name in names if name.lower() in words), None)
