"""`peasy serve`."""

import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags, Page
from peasy.errors import UsageError
from peasy.parts import need
from peasy.views.document import Document, Paragraph

if TYPE_CHECKING:
    from peasy.studio.house import House

Switch = Annotated[bool, Parameter(negative="", show_default=False)]
Some = Annotated[list[str] | None, Parameter(negative="")]


def serve(
    *models: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: Annotated[str | None, Parameter(show_default=False)] = None,
    allow_host: Some = None,
    max_queue: int = 256,
    max_batch: int = 32,
    memory: str = "8GB",
    weights: Literal["auto", "float32", "bfloat16", "int8"] = "auto",
    drain: float = 30.0,
    log_prompts: Switch = False,
    flags: Flags = Flags(),
) -> Answer:
    """Serve models over HTTP: the API that the openai client speaks, and peasy's own verbs.

    For example:

        peasy serve stories
        peasy serve stories ./my-model --port 8080 --api-key SECRET
        peasy serve --host 0.0.0.0 --api-key SECRET --max-queue 64
        PEASY_API_KEY=SECRET peasy serve stories

    Then, in another terminal:

        curl localhost:8000/v1/models
        curl localhost:8000/v1/completions -H "content-type: application/json"
            -d '{"model": "stories", "prompt": "The pizza", "max_tokens": 20}'

    Without a model, all that are here are served. Ctrl-C, or SIGTERM, lets everybody finish first; a second Ctrl-C does
    not. Each request is a line of JSON on stderr; what was said in it is not.

    Args:
        models: Runs, folders, built-ins or ids in the hub's cache; each is loaded before the first request.
        host: Where to listen. Any other address than this machine's own needs a key.
        port: Where to listen; 0 takes any that is free.
        api_key: What callers have to send: Authorization: Bearer KEY. Better set in PEASY_API_KEY.
        allow_host: A name that the server may be called by, besides localhost; may be given several times.
        max_queue: So many requests wait at most for each model; more are told when to come back.
        max_batch: So many texts are written side by side.
        memory: For the weights of all loaded models; the one not used for the longest time makes room.
        weights: How weights are held while writing; float32 is exact, int8 is smaller and faster.
        drain: Seconds that requests have to end when the server is told to.
        log_prompts: Write prompts to the log, too.
    """
    need("torch")
    names = tuple(allow_host or ())
    door = _Door(host, port, api_key, names, max_queue, max_batch, memory, weights, drain, log_prompts)
    return door.open(models, flags)


@dataclass(frozen=True)
class _Door:
    """What was asked for."""

    host: str
    port: int
    key: str | None
    names: tuple[str, ...]
    queue: int
    batch: int
    memory: str
    weights: str
    drain: float
    log_prompts: bool

    def open(self, models: tuple[str, ...], flags: Flags) -> Answer:
        """Serve until somebody ends it."""
        from peasy.generation.limit import Limits
        from peasy.looking.budget import read_bytes
        from peasy.studio.door import address_of, bind, hold_memory, run
        from peasy.studio.guard import is_loopback
        from peasy.studio.house import House
        from peasy.studio.meter import write_log

        outside = not is_loopback(self.host)
        if outside and not self.key:
            hint = "Give --api-key, or leave out --host."
            raise UsageError(f"Whoever reaches {self.host} could use this server.", hint=hint)
        limits, memory = Limits(queue=self.queue, rows=self.batch), read_bytes(self.memory)
        hold_memory()
        house = House(models, memory=memory, limits=limits, weights=self.weights, device=flags.device)
        listening = bind(self.host, self.port)
        app = self._application(house, outside)
        house.warm()
        if not flags.quiet:
            write_log()
        address, served = address_of(listening, "/v1"), ", ".join(house.names) or "no models yet"
        run(app, listening, self.drain, lambda: _say(f"Serving {served} at {address} (Ctrl-C ends it)", flags))
        return _closed(address, list(house.names), sum(app.state.meter.requests.values()), flags)

    def _application(self, house: "House", outside: bool) -> Any:
        from peasy.studio.app import build
        from peasy.studio.guard import LOOPBACK

        hosts = (*LOOPBACK, self.host, *self.names, *([socket.gethostname()] if outside else ()))
        return build(
            house, pages=False, key=self.key, hosts=hosts, by_number=outside, queue=self.queue,
            log_prompts=self.log_prompts,
        )  # fmt: skip


def _say(line: str, flags: Flags) -> None:
    if not flags.quiet:
        print(line, file=sys.stderr)


def _closed(address: str, models: list[str], requests: int, flags: Flags) -> Answer:
    page = Document("Serve", (Paragraph(f"Closed after {requests:,} requests."),))
    return Answer(Page(page, {"address": address, "models": models, "requests": requests}), told=not flags.json)
