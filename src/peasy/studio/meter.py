"""Prometheus metrics and the JSON access log; neither contains prompts or generated text."""

import json
import logging
import os
import secrets
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from peasy.studio.desk import Desk
    from peasy.studio.house import House

LOG = logging.getLogger("peasy.studio")

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

COUNTED = {
    "prompt_tokens": "prompt tokens processed",
    "written_tokens": "tokens generated",
    "reused_tokens": "prompt tokens taken from the prefix cache",
    "submitted": "requests accepted",
    "refused": "requests refused",
    "steps": "engine steps",
    "step_seconds": "seconds spent in engine steps",
}
NOW = {
    "running": "running sequences",
    "waiting": "queued requests",
    "waiting_tokens": "queued prompt tokens",
    "reserved_bytes": "KV cache bytes reserved for running sequences",
    "prefix_bytes": "bytes in the prefix cache",
    "heartbeat_age": "seconds since the last heartbeat",
}


class Meter:
    """Request counts and latencies by route and status, exported in the Prometheus text format."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self.sums: dict[str, float] = defaultdict(float)
        self.under_way = 0

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Record one finished request."""
        self.requests[route, method, status] += 1
        self.seconds[route][bisect_left(BUCKETS, seconds)] += 1
        self.sums[route] += seconds

    def tell(self, house: "House", desk: "Desk") -> str:
        """Return all metrics in the Prometheus text format; no label holds anything that a client sent."""
        lines = [*self._requests(), *_engines(house)]
        lines += _gauge("peasy_requests_under_way", "requests in flight", [("", self.under_way)])
        lines += _gauge("peasy_desk_waiting", "calls pending in the thread pool", [("", desk.waiting)])
        loaded = [(_labels(model=name), entry.bytes) for name, entry in house.kept.items()]
        lines += _gauge("peasy_model_bytes", "weight bytes of loaded models", loaded)
        lines += _gauge("process_resident_memory_bytes", "resident memory in bytes", [("", _resident())])
        lines += _gauge("process_open_fds", "open file descriptors", [("", _descriptors())])
        return "\n".join(lines) + "\n"

    def _requests(self) -> Iterator[str]:
        rows = [(_labels(route=r, method=m, status=s), count) for (r, m, s), count in sorted(self.requests.items())]
        yield from _family("peasy_requests_total", "counter", "requests", rows)
        yield "# HELP peasy_request_seconds request latency in seconds"
        yield "# TYPE peasy_request_seconds histogram"
        for route, counts in sorted(self.seconds.items()):
            total = 0
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                yield f"peasy_request_seconds_bucket{_labels(route=route, le=bound)} {total}"
            yield f"peasy_request_seconds_sum{_labels(route=route)} {self.sums[route]:.6f}"
            yield f"peasy_request_seconds_count{_labels(route=route)} {total}"


def _engines(house: "House") -> Iterator[str]:
    stats = {name: entry.runner.engine.snapshot() for name, entry in house.kept.items() if entry.runner is not None}
    for key, help_text in COUNTED.items():
        rows = [(_labels(model=name), snapshot[key]) for name, snapshot in stats.items()]
        yield from _family(f"peasy_engine_{key}_total", "counter", help_text, rows)
    for key, help_text in NOW.items():
        rows = [(_labels(model=name), snapshot[key]) for name, snapshot in stats.items()]
        yield from _gauge(f"peasy_engine_{key}", help_text, rows)
    rows = [
        (_labels(model=name, reason=reason), count)
        for name, snapshot in stats.items()
        for reason, count in sorted(snapshot["ended"].items())
    ]
    yield from _family("peasy_engine_ended_total", "counter", "finished sequences by finish reason", rows)


def _family(name: str, kind: str, says: str, rows: Sequence[tuple[str, float]]) -> list[str]:
    return [f"# HELP {name} {says}", f"# TYPE {name} {kind}", *(f"{name}{labels} {value}" for labels, value in rows)]


def _gauge(name: str, says: str, rows: Sequence[tuple[str, float]]) -> list[str]:
    return _family(name, "gauge", says, rows)


def _labels(**labels: Any) -> str:
    escaped = {
        key: str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


class Metered:
    """ASGI middleware: counts each request and logs it as one line of JSON, without its content."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self.app, self.meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, request_id = time.perf_counter(), 499, secrets.token_hex(8)
        scope.setdefault("state", {})["request"] = request_id
        self.meter.under_way += 1

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self.meter.under_way -= 1
            self._note(scope, request_id, status, time.perf_counter() - start)

    def _note(self, scope: Scope, name: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.meter.count(route, method, status, seconds)
        if not LOG.isEnabledFor(logging.INFO):
            return
        log_fields: Callable[[], dict[str, Any]] = scope["state"].get("log_fields", dict)
        fields = {"id": name, "method": method, "route": route, "status": status, "ms": round(1000 * seconds, 1)}
        LOG.info("request", extra={"fields": fields | log_fields()})


class AsJson(logging.Formatter):
    """Log formatter: one line of JSON per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record with its time and the fields of `extra={"fields": ...}`."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}), ensure_ascii=False)


def write_log(level: int = logging.INFO) -> None:
    """Write the access log and uvicorn's errors to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(AsJson())
    for name, log_level in (("peasy.studio", level), ("uvicorn.error", logging.ERROR)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(log_level)
