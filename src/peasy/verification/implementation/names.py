"""Names that attention code gives to parameters and layers, and their roles: hints, where experiment cannot decide."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from peasy import config

_Names = dict[str, str]


@dataclass(frozen=True)
class _KnownNames:
    """Names, separated by spaces, of parameters (by role) and weights (by part)."""

    parameters: _Names
    weights: _Names
    ignored: str


_NAMES = config.read_file(_KnownNames, Path(__file__).with_name("names.toml"))
_ROLE_BY_NAME = {name: role for role, names in reversed(_NAMES.parameters.items()) for name in names.split()}
_PART_BY_NAME = {name: part for part, names in _NAMES.weights.items() for name in names.split()}
_IGNORED = frozenset(_NAMES.ignored.split())
_CONSTRUCTOR_ROLES = {
    "bias": "flag", "attention_bias": "flag", "kernel_size": "kernel", "mask": "causal", "use_mask": "causal",
    "context": "length", "window": "length", "state": "d_model",
    "rope": "flag", "rotary": "flag", "scale": "scale", "rotary_emb": "flag", "group": "key_heads", "target": "",
    "source": "", "hidden": "d_model", "features": "d_model", "embedding": "d_model", "emb": "d_model",
    "input": "d_model",
    "tgt": "", "src": "", "data": "", "tokens": "length", "past": "", "start": "", "offset": "", "pos": "", "m": "",
}  # fmt: skip
"""Roles of constructor parameters that mean something else in a call."""


def snake_case(name: str) -> str:
    """Return a name in lower case with underscores.

    >>> snake_case("headDim_")
    'head_dim'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("_").lower()


def role_of(name: str, constructor: bool = False) -> str:
    """Return the role of a parameter, "" if its name is not known; `constructor`: where q is a width, not an array.

    >>> role_of("n_embd"), role_of("mask", constructor=True)
    ('d_model', 'causal')
    """
    plain, snake = name.strip("_").lower(), snake_case(name)
    if constructor and plain in _CONSTRUCTOR_ROLES:
        return _CONSTRUCTOR_ROLES[plain]
    role = _ROLE_BY_NAME.get(plain) or _ROLE_BY_NAME.get(snake, "")
    words = set(snake.split("_"))
    if constructor and role in ("key", "value", "query"):
        return "d_head"
    if constructor and not role:
        config = snake.endswith(("_config", "_cfg", "_args", "_params")) or snake.startswith(("config_", "cfg_"))
        return "config" if config else _role_by_words(words)
    if not role and "mask" in words:
        other = words & {"q", "query", "queries", "head", "heads"}  # it hides queries or heads, not keys
        return "padding" if words & {"pad", "padding"} else "" if other else "mask"
    if not role and not constructor:
        return _call_role_by_words(words)
    return role if constructor or plain not in ("d", "c", "t", "b", "h") else ""


_SIZE_WORDS = frozenset((
    "dim", "dims", "dimension", "size", "width", "embed", "embedding", "embd", "hidden", "hiddens", "channels",
    "features", "units",
))  # fmt: skip


def _call_role_by_words(words: set[str]) -> str:
    """Return the role of an argument of a call from single words of its name."""
    keys, values = words & {"key", "keys", "kv"}, words & {"value", "values", "kv"}
    if words & {"head", "heads"}:
        return "key_heads" if keys else ""
    if words & {"lengths", "lens"}:
        return "valid_lengths"
    if words & {"n", "num", "len", *_SIZE_WORDS}:
        return ""
    both = "source" if keys and values else "key" if "keys" in keys else "value" if "values" in values else ""
    return both or ("query" if words & {"query", "queries"} else "source" if "memory" in words else "")


def _role_by_words(words: set[str]) -> str:
    """Return the role of a constructor parameter from single words of its name."""
    if words & {"head", "heads", "nhead"}:
        return "d_head" if words & _SIZE_WORDS else "heads"
    if words & {"drop", "dropout"}:
        return "dropout"
    if "kernel" in words:
        return "kernel"
    if words & {"len", "length", "seq", "ctx", "block", "window", "context", "positions"}:
        return "length"
    other = words & {"vocab", "kernel", "patch", "mlp", "ff", "ffn", "batch", "world"}
    return "d_model" if words & {"model", *_SIZE_WORDS} and not other else ""


def projection_role(names: Iterable[str]) -> str:
    """Return whether the parameters of a layer are for queries, keys or values; "" if their names do not say.

    >>> projection_role(["attn.w_q.weight", "attn.w_q.bias"]), projection_role(["c_attn.weight"])
    ('query', '')
    """
    roles = {_projection_role(name) for name in names}
    return roles.pop() if len(roles) == 1 else ""


def is_unspecific(part: str) -> bool:
    """Return whether the name of a layer says nothing about its part, as in `proj` or `fc`."""
    return {*snake_case(part).split("_")} <= _IGNORED


def _projection_role(name: str) -> str:
    parts = [part for part in name.split(".") if part not in ("weight", "bias") and not part.isdigit()]
    for part in reversed(parts):
        words = [word for word in snake_case(part).split("_") if word not in _IGNORED]
        known = (_PART_BY_NAME.get(name, "") for name in (snake_case(part), "".join(words), "_".join(words)))
        if role := next(filter(None, known), ""):
            return "" if role == "fused" else role
    return ""
