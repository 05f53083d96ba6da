"""HTTP bodies and routes derived from the signature of a function: a parameter is declared once.

A command of `commands/` becomes a route by `add_command_route`, a function of the server's state by `command_route`.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from annotated_types import BaseMetadata
from fastapi import APIRouter, Request, Response
from pydantic import Field, create_model

from peasy.commands.result import Result
from peasy.config import JsonDict
from peasy.parameters import REQUIRED, command_parameters
from peasy.server.responses import CommandBody, Name, make_response

HIDDEN = ("device", "offline", "confirm", "on_progress", "state")
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
    fields: JsonDict = {}
    for parameter in command_parameters(command, options).values():
        if parameter.name in (*HIDDEN, *hide):
            continue
        kind: object = Name if parameter.name == "model" else parameter.annotation
        change = changes.get(parameter.name)
        if isinstance(change, BaseMetadata):
            kind = Annotated[kind, change]
        elif change is not None:
            kind = change
        default: object = ... if parameter.default is REQUIRED else parameter.default
        fields[parameter.name] = (kind, Field(default, description=parameter.help or None))
    unknown = [change for change in changes if change not in fields]
    assert not unknown, f"{name} changes parameters that the command does not have: {', '.join(unknown)}"
    return create_model(name, __base__=base, __doc__=command.__doc__, **fields)


Work = TypeVar("Work", bound=Callable[..., Result])


def command_route(router: APIRouter, path: str, command: str = "") -> Callable[[Work], Work]:
    """Decorate a function of the server's state: it responds to `POST path`; its other parameters are the body.

    A parameter `body`, if it has one, is a whole body instead.
    """

    def decorate(work: Work) -> Work:
        whole = command_parameters(work).get("body")
        body_type: Any = derive_body(_body_name(path), work) if whole is None else whole.annotation
        names = () if whole is not None else body_type.model_fields.keys() - CommandBody.model_fields.keys()

        def run(request: Request, body: CommandBody) -> Result:
            fields = {"body": body} if whole is not None else {name: getattr(body, name) for name in names}
            return work(request.app.state, **fields)

        _add_route(router, path, command, work, body_type, run)
        return work

    return decorate


def add_command_route(
    router: APIRouter, path: str, command: Callable[..., Result], *,
    prepare: Callable[[JsonDict], None] | None = None,
    respond: Callable[[str, Any, Result], Response] = make_response, **body_options: Any,
) -> None:  # fmt: skip
    """Add `POST path`: it runs the command with the fields of the body, and with the loaded model if it takes one.

    `prepare` may change the arguments, or refuse what is too expensive for a server; `respond` makes the response of a
    result. `body_options` are those of `derive_body`.
    """
    body_type = derive_body(_body_name(path), command, **body_options)

    def run(request: Request, body: Any) -> Result:
        arguments = {key: value for key, value in body.arguments().items() if value is not None}
        if prepare is not None:
            prepare(arguments)
        if "model" not in body_type.model_fields:
            return command(**arguments)
        with request.app.state.registry.use(body.model) as loaded:
            return command(loaded, **arguments)

    _add_route(router, path, "", command, body_type, run, respond)


def _body_name(path: str) -> str:
    return path.translate(str.maketrans("/-", "  ")).title().replace(" ", "") + "Body"


def _add_route(
    router: APIRouter, path: str, command: str, function: Callable[..., Result], body_type: type[CommandBody],
    run: Callable[[Request, Any], Result], respond: Callable[[str, Any, Result], Response] = make_response,
) -> None:  # fmt: skip
    name = command or path.strip("/")

    async def post(request: Request, body: Any) -> Response:
        response: Response = await request.app.state.worker_pool.run(lambda: respond(name, body, run(request, body)))
        return response

    post.__annotations__["body"] = body_type
    post.__doc__ = (function.__doc__ or "").partition("\n")[0]
    post.__name__ = f"post_{path.strip('/').replace('-', '_').replace('/', '_')}"
    router.post(path)(post)
