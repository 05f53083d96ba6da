"""`peasy serve`: OpenAI-compatible API server."""

import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, DocumentResult, Flags, StrList, Switch
from peasy.errors import UsageError
from peasy.extras import require_extra
from peasy.views.document import Document, Paragraph

if TYPE_CHECKING:
    from peasy.server.model_registry import ModelRegistry


def serve(
    *models: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: Annotated[str | None, Parameter(show_default=False)] = None,
    allow_host: StrList = None,
    max_queue: int = 256,
    max_num_seqs: int = 32,
    max_memory: str = "8GB",
    weights: Literal["auto", "float32", "bfloat16", "int8"] = "auto",
    shutdown_timeout: float = 30.0,
    log_prompts: Switch = False,
    flags: Flags = Flags(),
) -> CommandOutput:
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
        max_num_seqs: Maximum number of sequences in a batch.
        max_memory: Memory limit for the weights of all loaded models; the least recently used one is unloaded.
        weights: Weight format for inference; float32 is exact, int8 is smaller and faster.
        shutdown_timeout: Seconds that running requests have to finish at shutdown.
        log_prompts: Include prompts in the log.
    """
    require_extra("torch")
    hosts = tuple(allow_host or ())
    settings = _ServerSettings(
        host, port, api_key, hosts, max_queue, max_num_seqs, max_memory, weights, shutdown_timeout, log_prompts
    )
    return settings.run_server(models, flags)


@dataclass(frozen=True)
class _ServerSettings:
    """Server settings from the command line."""

    host: str
    port: int
    api_key: str | None
    allowed_hosts: tuple[str, ...]
    max_queue: int
    max_num_seqs: int
    max_memory: str
    weights: str
    shutdown_timeout: float
    log_prompts: bool

    def run_server(self, models: tuple[str, ...], flags: Flags) -> CommandOutput:
        """Run the server until it is shut down."""
        from peasy.generation.limits import EngineLimits
        from peasy.inspection.capture import parse_bytes
        from peasy.server.guard import is_loopback
        from peasy.server.metrics import configure_logging
        from peasy.server.model_registry import ModelRegistry
        from peasy.server.server import bind, limit_memory_growth, run_server, url_of

        public = not is_loopback(self.host)
        if public and not self.api_key:
            hint = "Give --api-key, or leave out --host."
            raise UsageError(
                f"Listening on {self.host} without an API key would let anyone use this server.", hint=hint
            )
        limits, memory = (
            EngineLimits(max_queued_requests=self.max_queue, max_num_seqs=self.max_num_seqs),
            parse_bytes(self.max_memory),
        )
        limit_memory_growth()
        registry = ModelRegistry(models, memory_bytes=memory, limits=limits, weights=self.weights, device=flags.device)
        listening = bind(self.host, self.port)
        app = self._build_app(registry, public)
        registry.preload()
        if not flags.quiet:
            configure_logging()
        address, served = url_of(listening, "/v1"), ", ".join(registry.names) or "no models"
        run_server(
            app,
            listening,
            self.shutdown_timeout,
            lambda: _print_status(f"Serving {served} at {address} (press Ctrl-C to stop)", flags),
        )
        return _stopped(address, list(registry.names), app.state.metrics.num_requests, flags)

    def _build_app(self, registry: "ModelRegistry", public: bool) -> Any:
        from peasy.server.app import build_app
        from peasy.server.guard import LOOPBACK

        hosts = (*LOOPBACK, self.host, *self.allowed_hosts, *([socket.gethostname()] if public else ()))
        return build_app(
            registry, pages=False, api_key=self.api_key, allowed_hosts=hosts, allow_ip_hosts=public,
            max_pending=self.max_queue, log_prompts=self.log_prompts,
        )  # fmt: skip


def _print_status(line: str, flags: Flags) -> None:
    if not flags.quiet:
        print(line, file=sys.stderr)


def _stopped(address: str, models: list[str], requests: int, flags: Flags) -> CommandOutput:
    document = Document("Serve", (Paragraph(f"Server stopped after {requests:,} requests."),))
    return CommandOutput(
        DocumentResult(document, {"address": address, "models": models, "requests": requests}),
        already_printed=not flags.json,
    )
