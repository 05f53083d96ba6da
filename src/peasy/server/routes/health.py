"""/health and /metrics."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from peasy.server.metrics import RequestMetrics
from peasy.server.watchdog import Watchdog

router = APIRouter()


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
