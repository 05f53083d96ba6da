"""Command-line flags derived from the signature of a command: a parameter is declared once, in `commands/`."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from cyclopts import Group, Parameter

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback
from peasy.parameters import REQUIRED, CommandParameter, check_bounds, command_parameters, field_parameters

P = ParamSpec("P")
T = TypeVar("T")

OPTIONS_GROUP = Group("Sampling", sort_key=50)
FROM_FLAGS = ("device", "offline", "confirm", "seed")
"""Parameters that every command takes from the global flags."""


class Call(typing.Generic[T]):
    """Command with the arguments that were given as flags; the rest is given when it is called."""

    def __init__(self, command: Callable[..., T], options: type | None, arguments: dict[str, object]) -> None:
        self._command, self._parameters, self.arguments = command, command_parameters(command, options), arguments

    def __call__(self, *args: object, **kwargs: object) -> T:
        """Run the command with the given arguments added; bounds are checked first."""
        arguments = self.arguments | kwargs
        check_bounds(self._parameters, arguments)
        return self._command(*args, **arguments)


def derive(
    command: Callable[..., T], *, hide: Collection[str] = (), options: type | None = None
) -> Callable[[Callable[Concatenate[Call[T], P], CommandOutput]], Callable[P, CommandOutput]]:
    """Decorate a CLI function: it also gets a flag for each parameter of `command` that it does not declare itself.

    Its first argument is the `Call` with the values of these flags. Parameters in `hide` and those of the global flags
    get no flag; `options` is the dataclass whose fields are the `**keywords` of the command.
    """

    def decorate(function: Callable[Concatenate[Call[T], P], CommandOutput]) -> Callable[P, CommandOutput]:
        _, *own = inspect.signature(function).parameters.values()
        declared = {parameter.name for parameter in own}
        known = command_parameters(command, options)
        derived = {
            name: parameter
            for name, parameter in known.items()
            if name not in declared and name not in hide and name not in FROM_FLAGS
        }
        grouped = {} if options is None else field_parameters(options)

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> CommandOutput:
            values = {name: kwargs.pop(name) for name in derived if name in kwargs}
            given: dict[str, object] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in values.items()
                if value is not None or derived[name].default is not None
            }
            flags = kwargs.get("flags")
            from_flags = _from_flags(flags if isinstance(flags, Flags) else Flags())
            given |= {name: value for name, value in from_flags if name in known}
            return function(Call(command, options, given), *args, **kwargs)

        parameters = [*own, *(_flag(parameter, name in grouped) for name, parameter in derived.items())]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            sorted(parameters, key=lambda p: p.kind), return_annotation=CommandOutput
        )
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _from_flags(flags: Flags) -> Iterator[tuple[str, object]]:
    yield from (("device", flags.device), ("offline", flags.offline), ("confirm", confirm_callback(flags)))
    if flags.seed is not None:
        yield "seed", flags.seed


def _flag(parameter: CommandParameter, in_group: bool) -> inspect.Parameter:
    """Return a parameter as a keyword-only flag: a sequence can be repeated, a truth value takes no argument."""
    kind = _without_bounds(parameter.annotation)
    shown = kind is not bool and parameter.default not in (None, ())
    spec = Parameter(help=parameter.help, negative="", show_default=shown)
    spec = Parameter.combine(spec, Parameter(group=OPTIONS_GROUP)) if in_group else spec
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
        kinds = [_without_bounds(kind) for kind in inner]
        return functools.reduce(lambda left, right: left | right, kinds)
    if isinstance(origin, type) and origin is not dict and issubclass(origin, Sequence):
        return list[_without_bounds(inner[0])]  # type: ignore[misc]
    return annotation
