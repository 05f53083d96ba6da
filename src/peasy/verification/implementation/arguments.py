"""Arguments of code that is not known: guessed from names, defaults and annotations, and tried."""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from peasy.verification.implementation.core import Array
from peasy.verification.implementation.names import projection_role, role_of, snake_case


@dataclass(frozen=True)
class Sizes:
    """Sizes of a call, pairwise different, so that axes cannot be confused; √d_head is no whole number."""

    batch: int = 2
    heads: int = 4
    kv_heads: int = 2
    d_head: int = 12
    time: int = 5
    keys: int = 7
    length: int = 16
    side: int = 4
    grouped: bool = False
    causal: bool = False
    """Whether a constructor's causal flag is set that is off by default."""
    narrow: bool = False
    """Whether all widths of a constructor but the first are half as large."""

    @property
    def d_model(self) -> int:
        """Width of the model."""
        return self.heads * self.d_head

    def constructor_value(self, role: str) -> Any:
        """Return a constructor argument by role; `_UNKNOWN` if there is none."""
        values: dict[str, Any] = {
            "d_model": self.d_model, "d_head": self.d_head, "heads": self.heads,
            "key_heads": self.kv_heads if self.grouped else self.heads,
            "length": self.length, "dropout": 0.1, "causal": True, "batch_first": True, "flag": True, "layer": 1,
            "batch": self.batch, "scale": self.d_head**-0.5, "temperature": self.d_head**0.5, "device": "cpu",
            "eps": 1e-5, "kernel": 3, "theta": 10000.0, "vocab": 50, "rotary_fraction": 1.0,
            "weights": False, "training": False, "use_cache": False,
            "repeats": self.heads // self.kv_heads if self.grouped else 1, "dtype": None,
        }  # fmt: skip
        return values.get(role, _UNKNOWN)

    def size_of(self, name: str) -> Any:
        """Return the value of a name that nothing defines, by its role or its words; None if it is no size."""
        role = role_of(name, True)
        if role in (*_SIZE_ROLES, "batch", "dropout", "device", "vocab", "layer"):
            return self.constructor_value(role)
        return self.d_model if not role and _COUNT_WORDS & {*snake_case(name).split("_")} else None


_COUNT_WORDS = frozenset(("n", "num", "d", "dim", "size", "max", "min"))
SIZES = (Sizes(), Sizes(batch=3, heads=2, d_head=20, time=6, keys=8, kv_heads=1))
_UNKNOWN = object()


class ConfigGuess(dict[str, Any]):
    """Configuration object that answers every known name: as attribute, as key, and by `get`.

    With `guess` it also answers names that are not known, and keeps these `guesses`: they decide no verdict.
    """

    def __init__(self, sizes: Sizes, given: Mapping[str, object] | None = None, guess: bool = False) -> None:
        super().__init__(given or {})
        object.__setattr__(self, "_sizes", sizes)
        object.__setattr__(self, "_guess", guess)
        object.__setattr__(self, "guesses", dict(given or {}) if guess else {})

    def __repr__(self) -> str:
        return f"settings({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def __missing__(self, name: str) -> Any:
        value = _config_value(self._sizes, name)
        if value is not _UNKNOWN:
            return value
        if not self._guess:
            raise KeyError(name)
        words = set(snake_case(name).split("_"))
        size = words & _COUNT_WORDS
        value = self._sizes.d_model if size else name.startswith("scale_") and "inverse" not in words
        self[name] = self.guesses[name] = value
        return value

    def changed(self, values: Mapping[str, object]) -> "ConfigGuess":
        """Return a copy that guesses, with other values of settings that are not known."""
        other = ConfigGuess(self._sizes, {**self, **values}, guess=True)
        other.guesses.update({**self.guesses, **values})
        return other

    def get(self, name: str, default: object = None) -> Any:
        """Return a value; a default of the caller counts more than a guess, but not for sizes."""
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        value = _config_value(self._sizes, name)
        return default if value is _UNKNOWN or role_of(name, True) not in _SIZE_ROLES else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or _config_value(self._sizes, str(name)) is not _UNKNOWN


_CONFIG_GROUPS = ("transformer", "model", "attention", "attn", "encoder", "decoder", "text_config", "network", "arch")
_SIZE_ROLES = ("d_model", "heads", "d_head", "length", "key_heads")
_SET_ROLES = (*_SIZE_ROLES, "dropout", "rotary_fraction")


def _config_value(sizes: Sizes, name: str) -> Any:
    """Return the value of a setting by its name: sizes, and false or zero for options."""
    role = role_of(name, constructor=True)
    if role == "dropout":
        return 0.1
    lower = name.lower()
    if role == "config" or lower in _CONFIG_GROUPS:
        return ConfigGuess(sizes)
    if role:
        return sizes.constructor_value(role)
    if lower.startswith(
        ("use_", "is_", "has_", "do_", "enable", "return_", "output_", "gradient", "fuse", "flash", "lora")
    ):
        return False
    if lower.endswith(("_bias", "bias", "_norm", "layernorm", "_enabled")):
        return False
    if "softcap" in lower or lower.startswith("_") or "window" in lower or "pruned" in lower or "type" in lower:
        return None
    if lower == "query_pre_attn_scalar":
        return sizes.d_head
    return _UNKNOWN


def signature_of(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the named parameters of a callable, without self."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
        bases = function.__mro__[1:] if inspect.isclass(function) else ()
        for base in bases:  # what a constructor passes on, as **kwargs
            if not any(p.kind is p.VAR_KEYWORD for p in parameters) or "__init__" not in vars(base):
                break
            named = {p.name for p in parameters}
            parameters = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
            parameters += [p for p in inspect.signature(base).parameters.values() if p.name not in named]
    except Exception:  # a signature may run code of the examined class
        return _docstring_parameters(function)
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "self"]


def roles_of(parameters: list[inspect.Parameter]) -> dict[str, str]:
    """Return roles by parameter name; if none is known, the first required ones are q, k, v, or x."""
    roles = {p.name: role_of(p.name) for p in parameters}
    roles |= {p.name: "causal" for p in parameters if roles[p.name] == "mask" and isinstance(p.default, bool)}
    if set(roles.values()) & {"query", "key", "value", "x"}:
        if "x" in roles.values() and "query" not in roles.values() and {"key", "value"} <= set(roles.values()):
            roles = {name: "query" if role == "x" else role for name, role in roles.items()}
        return roles
    required = [p.name for p in parameters if p.default is p.empty and roles[p.name] in ("", "source")]
    first = ("source", "query") if [roles[name] for name in required] == ["source", ""] else ("query", "source")
    guessed = {1: ("x",), 2: first, 3: ("query", "key", "value"), 4: ("query", "key", "value", "mask")}
    return roles | dict(zip(required, guessed.get(len(required), ()), strict=False))


def _docstring_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the parameters of a C function, whose docstring begins with its signature."""
    first = re.match(r"\s*\w+\(([^)]*)\)", inspect.getdoc(function) or "")
    parts = [part.strip() for part in first[1].split(",")] if first else []
    named = (part.partition("=") for part in parts if part not in ("", "*", "/"))
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(name.strip(), kind, default=None if equals else inspect.Parameter.empty)
        for name, equals, _ in named if name.strip().isidentifier()
    ]  # fmt: skip


_SIDES = frozenset((
    "window_size", "input_size", "input_resolution", "img_size", "image_size", "fmap_size", "feature_size", "feat_size",
    "resolution", "patch_size", "ws", "spacial_dim", "spatial_dim",
))  # fmt: skip
"""Sizes that may be pairs or sides: of a picture, or of a window with 16 tokens."""


def _is_side(name: str) -> bool:
    return snake_case(name) in _SIDES or snake_case(name).endswith(("_height", "_width"))


def constructor_attempts(cls: type, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield keyword arguments for a class, most likely first: with small sizes, then only what is required."""
    source = source_of(cls)
    asserted = set(re.findall(r"\bassert (\w+) is not None", source))
    parameters = [p.replace(default=p.empty) if p.name in asserted else p for p in signature_of(cls)]
    named, hints = {p.name for p in parameters}, _type_hints(cls)
    own = _own_config(cls)
    arrays = any(role_of(p.name, True).startswith("w_") and p.default is p.empty for p in parameters)
    choices = itertools.product(
        ("numpy", "torch") if arrays else ("torch",), (None, own) if own else (None,), range(3),
        (None, (sizes.side, sizes.side), sizes.side) if any(_is_side(p.name) for p in parameters) else (None,),
        (False, True), (None, False, True),
    )  # fmt: skip
    for library, config, number, side, required_only, flag in choices:
        arguments: dict[str, Any] = {"self_attention": True} if flag and "self_attention" in named else {}
        for parameter in parameters:
            name, required = parameter.name, parameter.default is parameter.empty
            role = role_of(name, True)
            hint = config if config and role == "config" else hints.get(name)
            value: Any
            if side and _is_side(name):
                value = side
            elif required and (options := _string_options(cls, name)):
                value = options[number % len(options)]
            elif required and role.startswith("w_"):
                value = _weight_matrix(role, sizes, library)
            elif required and not role and (classes := _project_classes(hint, cls)):
                value = next(objects_of(classes[number % len(classes)], sizes), None)
            else:
                value = _constructor_argument(parameter, hint, sizes, required_only, number > 0, cls)
                if value is None and required:
                    value = False if number == 0 and name in asserted else (None, sizes.d_model, 0.1)[number]
                if role == "dropout" and not hasattr(cls, "eval"):
                    value = 0.0  # dropout that cannot be switched off
                if role == "scale" and isinstance(value, float) and re.search(rf"/=?\s*(self\.)?{name}\b", source):
                    value **= -1  # it is a divisor
                value = False if flag is False and value is True else value
            if value is not _UNKNOWN:
                arguments[name] = value
        if sizes.narrow:
            arguments |= dict.fromkeys(required_widths(cls)[1:], sizes.d_model // 2)
        yield arguments


def required_widths(cls: Any) -> list[str]:
    """Return the required parameters of a class that are widths."""
    parameters = signature_of(cls) if inspect.isclass(cls) else []
    return [p.name for p in parameters if role_of(p.name, True) == "d_model" and p.default is p.empty]


def objects_of(cls: Any, sizes: Sizes, trials: int = 1) -> Iterator[Any]:
    """Yield new objects of a class, made with guessed arguments, or with masks that hide nothing."""
    for arguments in itertools.islice(constructor_attempts(cls, sizes), trials):
        with contextlib.suppress(Exception):
            yield cls(**arguments)
            break
    masks = [p.name for p in signature_of(cls) if role_of(p.name) in ("mask", "padding") and p.default is p.empty]
    batch, tokens = sizes.batch, sizes.time
    for axes in ((batch, tokens), (batch, 1, tokens, tokens), (tokens, tokens)) if masks else ():
        import torch

        with contextlib.suppress(Exception):
            yield cls(**{name: torch.ones(axes, dtype=torch.bool) for name in masks})


def required_scale(code: object) -> bool:
    """Return whether a class is given its scale."""
    parameters = signature_of(code) if inspect.isclass(code) else []
    return any(role_of(p.name, True) == "scale" and p.default is p.empty for p in parameters)


def _project_classes(hint: object, cls: type) -> list[type]:
    """Return the classes of the project, not configurations, that an annotation allows."""
    package = cls.__module__.partition(".")[0]
    allowed = [each for each in typing.get_args(hint) or (hint,) if inspect.isclass(each) and each is not cls]
    return [each for each in allowed if each.__module__.partition(".")[0] == package and not _is_config_class(each)]


@functools.cache
def _string_options(cls: type, name: str) -> list[str]:
    """Return the strings that the code of a class compares a parameter with, in their order."""
    text = "".join(source_of(base) for base in cls.__mro__ if base.__module__.partition(".")[0] != "torch")
    found = re.findall(rf"\b{name}\s*(?:==|in)\s*[\[({{]?\s*[\"']([\w-]+)[\"']", text)
    return list(dict.fromkeys(found))


def _setting_options(cls: type) -> dict[str, str]:
    """Return the string that the code of a class has by default for a setting, or first compares it with."""
    found = re.findall(r"\b(?:config|cfg|args)\w*\.(\w+)\s*(?:==|in)\s*[\[({]?\s*[\"']([\w-]+)[\"']", source_of(cls))
    default = re.findall(r"getattr\(\w+, *[\"']([\w-]+)[\"'], *[\"']([\w-]+)[\"']\)", source_of(cls))
    return dict(reversed(found)) | dict(default)


def source_of(code: object) -> str:
    """Return the source of a class or function, "" if there is none."""
    plain: Any = code.__func__ if inspect.ismethod(code) else code
    return _source(plain) if inspect.isclass(code) or inspect.isroutine(code) else ""


@functools.cache
def _source(code: Any) -> str:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return ""


def _constructor_argument(
    parameter: inspect.Parameter, hint: Any, sizes: Sizes, required_only: bool, guess: bool, cls: type
) -> object:
    required = parameter.default is parameter.empty
    role = role_of(parameter.name, constructor=True)
    if role == "config" or _is_config_class(hint):
        given = required or (parameter.default is None and not required_only)
        return make_config(hint, sizes, guess, required_only, _setting_options(cls)) if given else _UNKNOWN
    if role == "key_heads" and (required or sizes.grouped):
        return sizes.constructor_value(role)
    if sizes.causal and parameter.name in causal_flags(cls):
        return True
    if {"scale", "scaled"} & {*snake_case(parameter.name).split("_")} and isinstance(parameter.default, bool):
        return True  # whether to scale
    if not required and (required_only or role not in (*_SIZE_ROLES, "dropout", "batch", "device")):
        return _UNKNOWN
    if not required and role != "device" and (parameter.default is None or isinstance(parameter.default, bool | str)):
        return _UNKNOWN
    if not required and role == "length" and isinstance(parameter.default, int) and parameter.default >= sizes.length:
        return _UNKNOWN
    if not required and role == "d_head" and isinstance(parameter.default, float):
        return _UNKNOWN
    value = sizes.constructor_value(role)
    if required and role == "norm":
        return _no_norm
    if required and (role == "module" or getattr(hint, "__module__", "").startswith("torch.nn")):
        return _linear(parameter.name, sizes)
    if value is _UNKNOWN and required:
        by_type = {bool: False, int: sizes.d_model, float: 0.0, str: ""}
        return by_type.get(hint)
    return value


def causal_flags(target: Any) -> list[str]:
    """Return the parameters of a constructor that switch a causal mask on, and are off by default."""
    off = [p.name for p in signature_of(target) if p.default is False] if inspect.isclass(target) else []
    return [name for name in off if re.search("causal|casual|autoregressive|mask_future|unidirectional", name.lower())]


def _no_norm(*sizes: object, **options: object) -> Callable[..., Any]:
    """Return a norm that changes nothing, for a constructor that takes the class of its norms."""
    return lambda x, *conditions: x


def _linear(name: str, sizes: Sizes) -> Any:
    """Return a layer for a constructor that takes its projections ready-made."""
    from torch import nn

    heads = sizes.constructor_value("key_heads") if projection_role([name]) in ("key", "value") else sizes.heads
    return nn.Linear(sizes.d_model, heads * sizes.d_head, bias=False)


def _weight_matrix(role: str, sizes: Sizes, library: str) -> object:
    """Return a weight for a constructor that takes arrays."""
    shape = (sizes.d_model, 3 * sizes.d_model if role == "w_qkv" else sizes.d_model)
    matrix = np.asarray(seeded_array(role, shape, 0) * sizes.d_model**-0.5, dtype=np.float32)
    if library == "numpy":
        return matrix
    import torch

    return torch.from_numpy(matrix)


def seeded_array(name: str, shape: tuple[int, ...], seed: int) -> Array:
    """Return normally distributed float32 values that depend on seed and name only."""
    rng = np.random.default_rng([seed, *name.encode()])
    return np.asarray(rng.normal(0, 1, shape), dtype=np.float32)


def _own_config(cls: type) -> type | None:
    """Return the configuration class in the file of a class: the only one, or the one with the same first letters."""
    scope = getattr(cls.__init__, "__globals__", {})  # type: ignore[misc]
    found = [value for value in scope.values() if _is_config_class(value)]
    similar = [each for each in found if cls.__name__.startswith(each.__name__.removesuffix("Config"))]
    return next(iter(similar or found)) if len(similar or found) == 1 else None


def _type_hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    except Exception:
        return {}


def _is_config_class(hint: object) -> bool:
    return inspect.isclass(hint) and (
        dataclasses.is_dataclass(hint) or hint.__name__.lower().endswith(("config", "args"))
    )


def make_config(
    hint: Any, sizes: Sizes, guess: bool = False, keep_length: bool = False, options: Mapping[str, str] | None = None
) -> object:
    """Make a configuration: of the annotated class with small sizes, or an object that answers every known name.

    With `guess`, required numbers whose names are not known are small.
    """
    if not _is_config_class(hint):
        return ConfigGuess(sizes, options, guess)
    small = {"int": 2, "float": 0.0, "bool": False, "str": ""} if guess else {}
    try:
        known = {p.name: p for p in signature_of(hint)}
        required = {
            name: getattr(p.annotation, "__name__", p.annotation) for name, p in known.items() if p.default is p.empty
        }
        arguments = {name: small[kind] for name, kind in required.items() if kind in small}
        arguments |= {
            name: value for name, p in known.items()
            if (value := _config_value(sizes, name)) is not _UNKNOWN
            and isinstance(p.default, str) <= isinstance(value, str)
            and (p.default is p.empty or role_of(name, True) == "key_heads"
                 or (role_of(name, True) in _SET_ROLES and p.default is not None)
                 or (guess and role_of(name, True) == "heads"))
            and not (keep_length and p.default is not p.empty and role_of(name, True) == "length")
        }  # fmt: skip
        made = hint(**arguments | {name: text for name, text in (options or {}).items() if name in required})
    except Exception:
        return ConfigGuess(sizes, options, guess)
    for name in set(getattr(made, "__dict__", {})) - set(known):  # classes that keep sizes as plain attributes
        value = _config_value(sizes, name)
        if role_of(name, True) in _SIZE_ROLES and type(vars(made)[name]) is int and value is not _UNKNOWN:
            with contextlib.suppress(Exception):  # it may be frozen
                setattr(made, name, value)
    return made


MASK_FORMS = (
    None, *itertools.product(("qk", "bqk", "b1qk", "bk", "b1k", "b11k", "qk1", "bb1", "bk1", "bhqk"), (True, False)),
)  # fmt: skip
"""Masks that hide nothing: none, or a shape filled with True or with False."""


def open_mask(form: tuple[str, bool] | None, sizes: Sizes) -> Array | None:
    """Return the mask of a form."""
    by_axis = {"b": sizes.batch, "h": sizes.heads, "q": sizes.time, "k": sizes.time, "1": 1}
    return None if form is None else np.full([by_axis[axis] for axis in form[0]], form[1])


ROTARY_ROLES = ("cos", "sin", "cos_sin", "freqs_cis")
ROTARY_FORMS = (0, 5, 2, 1, 4, 3, 6)
"""Forms of rotary tables, the most common ones first."""


def rotary_tables(sizes: Sizes, time: int, form: int) -> dict[str, Any]:
    """Return tables of rotary positions under the roles cos, sin, cos_sin and freqs_cis, in one of several forms."""
    import torch

    half = sizes.d_head // 2
    angle = torch.arange(time)[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    if form == 3:
        angle = angle.repeat_interleave(2, dim=-1)
    wide = torch.cat([angle, angle], dim=-1) if form in (0, 4, 5) else angle
    shape = {0: (1, time, -1), 1: (1, time, 1, half), 2: (time, half), 3: (time, -1), 4: (1, 1, time, -1)}
    cos, sin = (each.reshape(shape.get(form, (time, -1))) for each in (wide.cos(), wide.sin()))
    complex_table = torch.polar(torch.ones(time, half), angle[:, :half])
    pairs = torch.view_as_real(complex_table) if form % 2 else complex_table
    both = torch.view_as_real(complex_table) if form == 6 else (cos, sin)
    return {"cos": cos, "sin": sin, "cos_sin": both, "freqs_cis": pairs}
