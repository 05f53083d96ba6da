"""What was asked and how long it took: counted for a meter, and written down without what was said."""

import json
import logging
import os
import secrets
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("peasy.studio")

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

COUNTED = {
    "prompt_tokens": "tokens of prompts that were read",
    "written_tokens": "tokens that were written",
    "reused_tokens": "tokens of prompts that had been read before",
    "submitted": "requests taken",
    "refused": "requests refused",
    "steps": "steps",
    "step_seconds": "seconds in steps",
}
NOW = {
    "running": "texts being written",
    "waiting": "requests that wait",
    "waiting_tokens": "tokens that wait",
    "reserved_bytes": "bytes held for texts being written",
    "prefix_bytes": "bytes held for beginnings that prompts share",
    "heartbeat_age": "seconds since the last heartbeat",
}


class Meter:
    """Counts requests by route and status; `tell` gives it all as Prometheus reads it."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self.sums: dict[str, float] = defaultdict(float)
        self.under_way = 0

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """One more request has ended."""
        self.requests[route, method, status] += 1
        self.seconds[route][bisect_left(BUCKETS, seconds)] += 1
        self.sums[route] += seconds

    def tell(self, house: Any, desk: Any) -> str:
        """All of it, one line for each number; no label holds anything a caller said."""
        lines = [*self._requests(), *_engines(house)]
        lines += _gauge("peasy_requests_under_way", "requests under way", [("", self.under_way)])
        lines += _gauge("peasy_desk_waiting", "pieces of work at the desk", [("", desk.waiting)])
        loaded = [(_labels(model=name), kept.bytes) for name, kept in house.kept.items()]
        lines += _gauge("peasy_model_bytes", "bytes of the weights of loaded models", loaded)
        lines += _gauge("process_resident_memory_bytes", "bytes of memory", [("", _resident())])
        lines += _gauge("process_open_fds", "open descriptors", [("", _descriptors())])
        return "\n".join(lines) + "\n"

    def _requests(self) -> Iterator[str]:
        rows = [(_labels(route=r, method=m, status=s), count) for (r, m, s), count in sorted(self.requests.items())]
        yield from _family("peasy_requests_total", "counter", "requests", rows)
        yield "# HELP peasy_request_seconds how long requests took"
        yield "# TYPE peasy_request_seconds histogram"
        for route, counts in sorted(self.seconds.items()):
            total = 0
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                yield f"peasy_request_seconds_bucket{_labels(route=route, le=bound)} {total}"
            yield f"peasy_request_seconds_sum{_labels(route=route)} {self.sums[route]:.6f}"
            yield f"peasy_request_seconds_count{_labels(route=route)} {total}"


def _engines(house: Any) -> Iterator[str]:
    found = {name: kept.runner.engine.snapshot() for name, kept in house.kept.items() if kept.runner is not None}
    for key, says in COUNTED.items():
        rows = [(_labels(model=name), told[key]) for name, told in found.items()]
        yield from _family(f"peasy_engine_{key}_total", "counter", says, rows)
    for key, says in NOW.items():
        yield from _gauge(
            f"peasy_engine_{key}", says, [(_labels(model=name), told[key]) for name, told in found.items()]
        )
    rows = [
        (_labels(model=name, reason=reason), count)
        for name, told in found.items()
        for reason, count in sorted(told["ended"].items())
    ]
    yield from _family("peasy_engine_ended_total", "counter", "texts that ended, by reason", rows)


def _family(name: str, kind: str, says: str, rows: Sequence[tuple[str, float]]) -> list[str]:
    return [f"# HELP {name} {says}", f"# TYPE {name} {kind}", *(f"{name}{labels} {value}" for labels, value in rows)]


def _gauge(name: str, says: str, rows: Sequence[tuple[str, float]]) -> list[str]:
    return _family(name, "gauge", says, rows)


def _labels(**labels: Any) -> str:
    told = {
        key: str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in told.items()) + "}"


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
    """The application with its meter and its log: one line of JSON for each request, without what was said in it."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self.app, self.meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, name = time.perf_counter(), 499, secrets.token_hex(8)
        scope.setdefault("state", {})["request"] = name
        self.meter.under_way += 1

        async def heard(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
            await send(message)

        try:
            await self.app(scope, receive, heard)
        finally:
            self.meter.under_way -= 1
            self._note(scope, name, status, time.perf_counter() - began)

    def _note(self, scope: Scope, name: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.meter.count(route, method, status, seconds)
        if not LOG.isEnabledFor(logging.INFO):
            return
        told: Callable[[], dict[str, Any]] = scope["state"].get("told", dict)
        facts = {"id": name, "method": method, "route": route, "status": status, "ms": round(1000 * seconds, 1)}
        LOG.info("request", extra={"facts": facts | told()})


class AsJson(logging.Formatter):
    """One line of JSON for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with its time, and what it was told in `extra={"facts": ...}`."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "facts", {}), ensure_ascii=False)


def write_log(level: int = logging.INFO) -> None:
    """Let the log be written to stderr, and uvicorn's own warnings with it."""
    handler = logging.StreamHandler()
    handler.setFormatter(AsJson())
    for name, least in (("peasy.studio", level), ("uvicorn.error", logging.ERROR)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(least)
