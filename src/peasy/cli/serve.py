"""`peasy serve`: OpenAI-compatible API server."""

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
    """Serve models over HTTP, with an OpenAI-compatible API and peasy's own API.

    For example:

        peasy serve stories
        peasy serve stories ./my-model --port 8080 --api-key SECRET
        peasy serve --host 0.0.0.0 --api-key SECRET --max-queue 64
        PEASY_API_KEY=SECRET peasy serve stories

    Then, in another terminal:

        curl localhost:8000/v1/models
        curl localhost:8000/v1/completions -H "content-type: application/json"
            -d '{"model": "stories", "prompt": "The pizza", "max_tokens": 20}'

    Without a model, all available models are served. Ctrl-C or SIGTERM shuts down after running requests have finished;
    a second Ctrl-C shuts down at once. Each request is logged as a line of JSON on stderr, without its prompt.

    Args:
        models: Run names, folders, built-in models or cached hub ids; loaded before the first request.
        host: Address to listen on; any address other than localhost needs an API key.
        port: Port to listen on; 0 picks a free port.
        api_key: API key that clients must send: Authorization: Bearer KEY. Better set as PEASY_API_KEY.
        allow_host: Host name that requests may use besides localhost; can be repeated.
        max_queue: Maximum number of queued requests per model; more get HTTP 429 with Retry-After.
        max_batch: Maximum batch size.
        memory: Memory limit for the weights of all loaded models; the least recently used one is unloaded.
        weights: Weight format for inference; float32 is exact, int8 is smaller and faster.
        drain: Seconds that running requests have to finish at shutdown.
        log_prompts: Include prompts in the log.
    """
    need("torch")
    hosts = tuple(allow_host or ())
    settings = _Door(host, port, api_key, hosts, max_queue, max_batch, memory, weights, drain, log_prompts)
    return settings.open(models, flags)


@dataclass(frozen=True)
class _Door:
    """Server settings from the command line."""

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
        """Run the server until it is shut down."""
        from peasy.generation.limit import Limits
        from peasy.looking.budget import read_bytes
        from peasy.studio.door import address_of, bind, hold_memory, run
        from peasy.studio.guard import is_loopback
        from peasy.studio.house import House
        from peasy.studio.meter import write_log

        public = not is_loopback(self.host)
        if public and not self.key:
            hint = "Give --api-key, or leave out --host."
            raise UsageError(
                f"Listening on {self.host} without an API key would let anyone use this server.", hint=hint
            )
        limits, memory = Limits(queue=self.queue, rows=self.batch), read_bytes(self.memory)
        hold_memory()
        registry = House(models, memory=memory, limits=limits, weights=self.weights, device=flags.device)
        listening = bind(self.host, self.port)
        app = self._application(registry, public)
        registry.warm()
        if not flags.quiet:
            write_log()
        address, served = address_of(listening, "/v1"), ", ".join(registry.names) or "no models"
        run(app, listening, self.drain, lambda: _say(f"Serving {served} at {address} (press Ctrl-C to stop)", flags))
        return _closed(address, list(registry.names), sum(app.state.meter.requests.values()), flags)

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
    document = Document("Serve", (Paragraph(f"Server stopped after {requests:,} requests."),))
    return Answer(Page(document, {"address": address, "models": models, "requests": requests}), told=not flags.json)
