"""Prometheus metrics and the JSON access log; neither contains prompts or generated text."""

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peasy.server.model_registry import ModelRegistry
from peasy.server.worker_pool import WorkerPool

LOG = logging.getLogger("peasy.server")

prometheus.disable_created_metrics()  # the creation time of each counter, which few read

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_KNOWN_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_COUNTERS = {
    "prompt_tokens": "prompt tokens processed",
    "generated_tokens": "tokens generated",
    "prefix_cache_hit_tokens": "prompt tokens taken from the prefix cache",
    "submitted": "requests accepted",
    "refused": "requests refused",
    "steps": "engine steps",
    "step_seconds": "seconds spent in engine steps",
}
_GAUGES = {
    "running_sequences": "running sequences",
    "queued_requests": "queued requests",
    "queued_tokens": "queued prompt tokens",
    "reserved_bytes": "KV cache bytes reserved for running sequences",
    "prefix_cache_bytes": "bytes in the prefix cache",
    "heartbeat_age": "seconds since the last heartbeat",
}


class RequestMetrics(Collector):
    """Prometheus metrics of one server: requests, engines, process; no label holds anything that a client sent."""

    def __init__(self, models: ModelRegistry, worker_pool: WorkerPool) -> None:
        self._models, self._collectors = models, (collectors := prometheus.CollectorRegistry())
        labels = ("route", "method", "status")
        self.requests = prometheus.Counter("peasy_requests", "requests", labels, registry=collectors)
        self.latency = prometheus.Histogram(
            "peasy_request_seconds", "request latency in seconds", ("route",), buckets=_BUCKETS, registry=collectors
        )
        self.in_flight = prometheus.Gauge("peasy_requests_in_flight", "requests in flight", registry=collectors)
        pending = prometheus.Gauge("peasy_worker_pool_pending", "calls pending in the thread pool", registry=collectors)
        pending.set_function(lambda: worker_pool.num_pending)
        prometheus.ProcessCollector(registry=collectors)
        collectors.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the loaded models and their engines, as they are now."""
        loaded = dict(self._models.loaded)
        sizes = [([name], entry.weight_bytes) for name, entry in loaded.items()]
        yield _family(GaugeMetricFamily, "peasy_model_bytes", "weight bytes of loaded models", ["model"], sizes)
        engines = {name: entry.engine_thread.engine for name, entry in loaded.items() if entry.engine_thread}
        stats = {name: engine.snapshot() for name, engine in engines.items()}
        for kind, metrics in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for key, help_text in metrics.items():
                numbers = [(name, snapshot[key]) for name, snapshot in stats.items()]
                values = [([name], number) for name, number in numbers if isinstance(number, int | float)]
                yield _family(kind, f"peasy_engine_{key}", help_text, ["model"], values)
        counts = ((name, dict(engine.stats.finished)) for name, engine in engines.items())
        finished = [([name, reason], count) for name, reasons in counts for reason, count in reasons.items()]
        help_text = "finished sequences by finish reason"
        yield _family(CounterMetricFamily, "peasy_engine_finished", help_text, ["model", "reason"], finished)

    def prometheus_text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return prometheus.generate_latest(self._collectors)

    @property
    def num_requests(self) -> int:
        """Number of finished requests."""
        return int(sum(sample.value for metric in self.requests.collect() for sample in metric.samples))


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, help_text: str, labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], float]],
) -> Metric:  # fmt: skip
    metric = kind(name, help_text, labels=labels)
    for label_values, value in values:
        metric.add_metric(label_values, value)
    return metric


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
        self.metrics.in_flight.inc()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self.metrics.in_flight.dec()
            self._log_request(scope, request_id, status, time.perf_counter() - start)

    def _log_request(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        method = scope["method"] if scope["method"] in _KNOWN_METHODS else "other"
        self.metrics.requests.labels(route, method, status).inc()
        self.metrics.latency.labels(route).observe(seconds)
        if not LOG.isEnabledFor(logging.INFO):
            return
        log_fields: Callable[[], dict[str, object]] = scope["state"].get("log_fields", dict)
        fields = {"id": request_id, "method": method, "route": route, "status": status, "ms": round(1000 * seconds, 1)}
        LOG.info("request", extra={"fields": fields | log_fields()})


class JsonFormatter(logging.Formatter):
    """Log formatter: one line of JSON per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record with its time and the fields of `extra={"fields": ...}`."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{at}.{int(record.msecs):03d}Z", "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}))  # ASCII: no name controls a terminal


def configure_logging() -> None:
    """Write the access log and uvicorn's errors to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    for name, log_level in (("peasy.server", logging.INFO), ("uvicorn.error", logging.ERROR)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(log_level)
