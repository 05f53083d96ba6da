"""Command-line flags derived from the signature of a command: a parameter is declared once, in `commands/`."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from cyclopts import Group, Parameter

from peasy.cli.command import CommandOutput, Flags, confirm_callback
from peasy.errors import InvalidInput, UsageError
from peasy.parameters import REQUIRED, CommandParameter, check_bounds, command_parameters, field_parameters

P = ParamSpec("P")
T = TypeVar("T")

_OPTIONS_GROUP = Group("Sampling", sort_key=50)
_FROM_FLAGS = ("device", "offline", "confirm", "seed")
"""Parameters that every command takes from the global flags."""


def derive(
    command: Callable[..., T], *, hide: Collection[str] = (), options: type | None = None, group: Group | None = None
) -> Callable[[Callable[Concatenate[partial[T], P], CommandOutput]], Callable[P, CommandOutput]]:
    """Decorate a CLI function: it also gets a flag for each parameter of `command` that it does not declare itself.

    Its first argument is the command with the values of these flags, which are within their bounds. A parameter that it
    declares without explaining it is explained by the command. Parameters in `hide` and those of the global flags get
    no flag; `options` is the dataclass whose fields are the `**keywords` of the command. `group` is the heading of the
    other flags in the help.
    """

    def decorate(function: Callable[Concatenate[partial[T], P], CommandOutput]) -> Callable[P, CommandOutput]:
        known, documented = command_parameters(command, options), command_parameters(function)
        _, *declared = inspect.signature(function).parameters.values()
        own = {parameter.name: _explained(parameter, known, documented) for parameter in declared}
        hidden = {*own, *hide, *_FROM_FLAGS}
        derived = {name: parameter for name, parameter in known.items() if name not in hidden}
        annotations = {name: parameter.annotation for name, parameter in known.items()}
        sampling = {} if options is None else field_parameters(options)

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> CommandOutput:
            values = {name: kwargs.pop(name) for name in derived if name in kwargs}
            given: dict[str, object] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in values.items()
                if value is not None or derived[name].default is not None
            }
            flags = kwargs.get("flags")
            flags = flags if isinstance(flags, Flags) else Flags()
            common: dict[str, object] = {
                "device": flags.device,
                "offline": flags.offline,
                "confirm": confirm_callback(flags),
            }
            common |= {} if flags.seed is None else {"seed": flags.seed}
            given |= {name: value for name, value in common.items() if name in known}
            try:
                check_bounds(annotations, kwargs | given, flag_name)
            except InvalidInput as error:
                raise UsageError(error.message, hint=error.hint) from None
            return function(partial(command, **given), *args, **kwargs)

        groups = {name: _OPTIONS_GROUP if name in sampling else group for name in derived}
        parameters = [*own.values(), *(_flag(parameter, groups[name]) for name, parameter in derived.items())]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            sorted(parameters, key=lambda p: p.kind), return_annotation=CommandOutput
        )
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


_SECOND_NAMES = {"run": "--run-name"}
"""Second spelling of flags: torchrun takes --run for an abbreviation of its own --run-path."""


def flag_name(parameter: str) -> str:
    """Return the flag of a parameter; one that is a word of Python ends in an underscore.

    >>> flag_name("max_tokens"), flag_name("n"), flag_name("as_")
    ('--max-tokens', '-n', '--as')
    """
    return "-n" if parameter == "n" else f"--{parameter.rstrip('_').replace('_', '-')}"


def _explained(
    parameter: inspect.Parameter, known: Mapping[str, CommandParameter], documented: Mapping[str, CommandParameter]
) -> inspect.Parameter:
    """Return a parameter with its explanation from the command, unless the CLI function has one."""
    name = parameter.name
    if name not in known or documented[name].help:
        return parameter
    return parameter.replace(annotation=Annotated[parameter.annotation, Parameter(help=known[name].help)])


def _flag(parameter: CommandParameter, group: Group | None) -> inspect.Parameter:
    """Return a parameter as a keyword-only flag: a sequence can be repeated, a truth value takes no argument."""
    kind = _without_bounds(parameter.annotation)
    shown = kind is not bool and parameter.default not in (None, ())
    negative = f"--no-{parameter.name.removeprefix('add_').replace('_', '-')}" if parameter.default is True else ""
    spec = Parameter(help=parameter.help, negative=negative, show_default=shown)
    if (other := _SECOND_NAMES.get(parameter.name)) is not None:
        spec = Parameter.combine(spec, Parameter(name=(flag_name(parameter.name), other)))
    spec = Parameter.combine(spec, Parameter(group=group)) if group else spec
    required = parameter.default is REQUIRED
    where = inspect.Parameter.POSITIONAL_OR_KEYWORD if required else inspect.Parameter.KEYWORD_ONLY
    default = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
    return inspect.Parameter(parameter.name, where, default=default, annotation=Annotated[kind, spec])


def _without_bounds(annotation: typing.Any) -> typing.Any:
    """Return the type that cyclopts parses: no bounds (the command checks them), a list for any sequence."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _without_bounds(inner[0])
    if origin in (typing.Union, types.UnionType):
        kinds = [_without_bounds(kind) for kind in inner if kind is not Path or str not in inner]
        return functools.reduce(lambda left, right: left | right, kinds)
    if isinstance(origin, type) and origin is not dict and issubclass(origin, Sequence):
        return list[_without_bounds(inner[0])]  # type: ignore[misc]
    return annotation
