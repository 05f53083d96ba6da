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
    from peasy.server.model_registry import ModelRegistry
    from peasy.server.worker_pool import WorkerPool

LOG = logging.getLogger("peasy.server")

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
KNOWN_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

COUNTERS = {
    "prompt_tokens": "prompt tokens processed",
    "generated_tokens": "tokens generated",
    "prefix_cache_hit_tokens": "prompt tokens taken from the prefix cache",
    "submitted": "requests accepted",
    "refused": "requests refused",
    "steps": "engine steps",
    "step_seconds": "seconds spent in engine steps",
}
GAUGES = {
    "running_sequences": "running sequences",
    "queued_requests": "queued requests",
    "queued_tokens": "queued prompt tokens",
    "reserved_bytes": "KV cache bytes reserved for running sequences",
    "prefix_cache_bytes": "bytes in the prefix cache",
    "heartbeat_age": "seconds since the last heartbeat",
}


class RequestMetrics:
    """Request counts and latencies by route and status, exported in the Prometheus text format."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.latency_counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self.latency_sums: dict[str, float] = defaultdict(float)
        self.in_flight = 0

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Record one finished request."""
        self.requests[route, method, status] += 1
        self.latency_counts[route][bisect_left(BUCKETS, seconds)] += 1
        self.latency_sums[route] += seconds

    def prometheus_text(self, registry: "ModelRegistry", worker_pool: "WorkerPool") -> str:
        """Return all metrics in the Prometheus text format; no label holds anything that a client sent."""
        lines = [*self._request_lines(), *_engine_lines(registry)]
        lines += _gauge_lines("peasy_requests_in_flight", "requests in flight", [("", self.in_flight)])
        pending = [("", worker_pool.num_pending)]
        lines += _gauge_lines("peasy_worker_pool_pending", "calls pending in the thread pool", pending)
        loaded = [(_labels(model=name), entry.weight_bytes) for name, entry in registry.loaded.items()]
        lines += _gauge_lines("peasy_model_bytes", "weight bytes of loaded models", loaded)
        lines += _gauge_lines("process_resident_memory_bytes", "resident memory in bytes", [("", _resident_bytes())])
        lines += _gauge_lines("process_open_fds", "open file descriptors", [("", _num_open_files())])
        return "\n".join(lines) + "\n"

    def _request_lines(self) -> Iterator[str]:
        rows = [(_labels(route=r, method=m, status=s), count) for (r, m, s), count in sorted(self.requests.items())]
        yield from _metric_lines("peasy_requests_total", "counter", "requests", rows)
        yield "# HELP peasy_request_seconds request latency in seconds"
        yield "# TYPE peasy_request_seconds histogram"
        for route, counts in sorted(self.latency_counts.items()):
            total = 0
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                yield f"peasy_request_seconds_bucket{_labels(route=route, le=bound)} {total}"
            yield f"peasy_request_seconds_sum{_labels(route=route)} {self.latency_sums[route]:.6f}"
            yield f"peasy_request_seconds_count{_labels(route=route)} {total}"


def _engine_lines(registry: "ModelRegistry") -> Iterator[str]:
    stats = {
        name: entry.engine_thread.engine.snapshot()
        for name, entry in registry.loaded.items()
        if entry.engine_thread is not None
    }
    for key, help_text in COUNTERS.items():
        rows = [(_labels(model=name), snapshot[key]) for name, snapshot in stats.items()]
        yield from _metric_lines(f"peasy_engine_{key}_total", "counter", help_text, rows)
    for key, help_text in GAUGES.items():
        rows = [(_labels(model=name), snapshot[key]) for name, snapshot in stats.items()]
        yield from _gauge_lines(f"peasy_engine_{key}", help_text, rows)
    rows = [
        (_labels(model=name, reason=reason), count)
        for name, snapshot in stats.items()
        for reason, count in sorted(snapshot["finished"].items())
    ]
    yield from _metric_lines("peasy_engine_finished_total", "counter", "finished sequences by finish reason", rows)


def _metric_lines(name: str, kind: str, help_text: str, rows: Sequence[tuple[str, float]]) -> list[str]:
    return [
        f"# HELP {name} {help_text}",
        f"# TYPE {name} {kind}",
        *(f"{name}{labels} {value}" for labels, value in rows),
    ]


def _gauge_lines(name: str, help_text: str, rows: Sequence[tuple[str, float]]) -> list[str]:
    return _metric_lines(name, "gauge", help_text, rows)


def _labels(**labels: Any) -> str:
    escaped = {
        key: str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _num_open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


class MetricsMiddleware:
    """ASGI middleware: counts each request and logs it as one line of JSON, without its content."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, request_id = time.perf_counter(), 499, secrets.token_hex(8)
        scope.setdefault("state", {})["request"] = request_id
        self.metrics.in_flight += 1

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self.metrics.in_flight -= 1
            self._log_request(scope, request_id, status, time.perf_counter() - start)

    def _log_request(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
        self.metrics.observe(route, method, status, seconds)
        if not LOG.isEnabledFor(logging.INFO):
            return
        log_fields: Callable[[], dict[str, Any]] = scope["state"].get("log_fields", dict)
        fields = {"id": request_id, "method": method, "route": route, "status": status, "ms": round(1000 * seconds, 1)}
        LOG.info("request", extra={"fields": fields | log_fields()})


class JsonFormatter(logging.Formatter):
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


def configure_logging(level: int = logging.INFO) -> None:
    """Write the access log and uvicorn's errors to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    for name, log_level in (("peasy.server", level), ("uvicorn.error", logging.ERROR)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(log_level)
