"""HTTP bodies and routes derived from the signature of a command: a parameter is declared once, in `commands/`."""

from collections.abc import Callable, Collection, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from annotated_types import BaseMetadata
from fastapi import APIRouter, Request, Response
from pydantic import Field, create_model
from starlette.datastructures import State

from peasy.commands.result import Result
from peasy.parameters import REQUIRED, command_parameters
from peasy.server.responses import CommandBody, Name, respond

HIDDEN = ("device", "offline", "confirm", "on_progress")
"""Parameters that a client does not set."""


def derive_body(
    name: str,
    command: Callable[..., object],
    *,
    hide: Collection[str] = (),
    options: type | None = None,
    base: type[CommandBody] = CommandBody,
    changes: Mapping[str, object] = MappingProxyType({}),
) -> type[CommandBody]:
    """Return the body of a command: a field for each parameter, with its bounds, default and explanation.

    A change is the type of a field, or a bound that a server adds: `{"max_tokens": Le(1024)}`. `options` is the
    dataclass whose fields are the `**keywords` of the command.
    """
    fields: dict[str, Any] = {}
    for parameter in command_parameters(command, options).values():
        if parameter.name in (*HIDDEN, *hide):
            continue
        kind: Any = Name if parameter.name == "model" else parameter.annotation
        change = changes.get(parameter.name)
        if isinstance(change, BaseMetadata):
            kind = Annotated[kind, change]
        elif change is not None:
            kind = change
        default: Any = ... if parameter.default is REQUIRED else parameter.default
        fields[parameter.name] = (kind, Field(default, description=parameter.help or None))
    unknown = [change for change in changes if change not in fields]
    assert not unknown, f"{name} changes parameters that the command does not have: {', '.join(unknown)}"
    return create_model(name, __base__=base, __doc__=command.__doc__, **fields)


Work = TypeVar("Work", bound=Callable[[State, Any], Result])


def command_route(router: APIRouter, path: str, command: str = "") -> Callable[[Work], Work]:
    """Decorate a function of the server's state and a body: it responds to `POST path`, in the worker pool."""

    def decorate(work: Work) -> Work:
        async def post(request: Request, body: Any) -> Response:
            name = command or path.strip("/")
            return await respond(request, name, body, lambda: work(request.app.state, body))

        post.__annotations__["body"] = signature(work, eval_str=True).parameters["body"].annotation
        post.__doc__, post.__name__ = work.__doc__, work.__name__
        router.post(path)(post)
        return work

    return decorate


def add_command_route(
    router: APIRouter,
    path: str,
    command: Callable[..., Result],
    *,
    hide: Collection[str] = (),
    options: type | None = None,
    check: Callable[[Any], None] | None = None,
    changes: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Add `POST path`: it runs the command with the fields of the body, and with the loaded model if it takes one.

    `check` may refuse a body that is valid for the command but too expensive for a server.
    """
    name = path.strip("/").replace("-", "_").title().replace("_", "")
    body_type = derive_body(f"{name}Body", command, hide=hide, options=options, changes=changes)
    takes_model = "model" in body_type.model_fields

    def run(request: Request, body: Any) -> Result:
        arguments = {key: value for key, value in body.arguments().items() if value is not None}
        if not takes_model:
            return command(**arguments)
        with request.app.state.registry.use(body.model) as loaded:
            return command(loaded, **arguments)

    async def post(request: Request, body: Any) -> Response:
        if check is not None:
            check(body)
        return await respond(request, path.strip("/"), body, lambda: run(request, body))

    post.__annotations__["body"] = body_type
    post.__doc__ = (command.__doc__ or "").partition("\n")[0]
    post.__name__ = f"post_{path.strip('/').replace('-', '_')}"
    router.post(path)(post)
