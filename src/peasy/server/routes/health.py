"""/health and /metrics; a watchdog tells a long step from a hung engine thread."""

import time
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from peasy.generation.engine_thread import EngineThread
from peasy.server.metrics import RequestMetrics

router = APIRouter()

HEARTBEAT_TIMEOUT = 4.0
"""Seconds without heartbeat and without CPU time after which an engine counts as hung."""

_MAX_STEP_SECONDS = 120.0
"""Seconds after which one step counts as hung even if it uses CPU time: an endless loop."""


class Watchdog:
    """Watchdog of one engine: its heartbeat and, between heartbeats, the CPU time of its thread.

    Call `poll` about once a second; a long step uses CPU time, a hung one does not.
    """

    def __init__(self, engine_thread: EngineThread) -> None:
        self.engine_thread, self._cpu_time, self._last_progress = engine_thread, -1.0, time.monotonic()

    def poll(self) -> None:
        """Record whether the thread has used CPU time since the last call."""
        if (cpu_time := self._read_cpu_time()) > self._cpu_time:
            self._cpu_time, self._last_progress = cpu_time, time.monotonic()

    @property
    def alive(self) -> bool:
        """False if the engine thread is hung or has ended."""
        age = self.engine_thread.engine.clock() - self.engine_thread.engine.heartbeat
        progressing = time.monotonic() - self._last_progress < HEARTBEAT_TIMEOUT
        alive = age < HEARTBEAT_TIMEOUT or (progressing and age < _MAX_STEP_SECONDS)
        return self.engine_thread.native_thread_id is not None and alive

    def _read_cpu_time(self) -> float:
        """Return the CPU time of the thread in clock ticks; without /proc, that of the process in seconds."""
        try:
            stat = Path(f"/proc/self/task/{self.engine_thread.native_thread_id}/stat").read_text()
        except OSError:
            return round(time.process_time(), 1)
        return sum(map(float, stat.rpartition(")")[2].split()[11:13]))


@router.get("/health", responses={503: {"description": "An engine is hung."}})
async def get_health(request: Request) -> Response:
    """Return 200 while every engine is alive, however busy; 503 if one is hung."""
    watchdogs: dict[str, Watchdog] = request.app.state.watchdogs
    engines = {name: "ok" if watchdog.alive else "hung" for name, watchdog in watchdogs.items()}
    healthy = all(state == "ok" for state in engines.values())
    return JSONResponse({"status": "ok" if healthy else "hung", "engines": engines}, 200 if healthy else 503)


@router.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(request: Request) -> Response:
    """Return metrics in the Prometheus text format."""
    metrics: RequestMetrics = request.app.state.metrics
    return Response(metrics.prometheus_text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
