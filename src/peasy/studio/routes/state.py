"""How the server is: health for whoever starts it again, numbers for whoever watches it."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

router = APIRouter()


@router.get("/health", responses={503: {"description": "An engine does not answer."}})
async def get_health(request: Request) -> Response:
    """200 as long as every engine's heart beats, however busy it is; 503 when one is frozen."""
    pulses = request.app.state.pulses
    engines: dict[str, Any] = {name: "ok" if pulse.alive else "frozen" for name, pulse in pulses.items()}
    well = all(state == "ok" for state in engines.values())
    return JSONResponse({"status": "ok" if well else "frozen", "engines": engines}, 200 if well else 503)


@router.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(request: Request) -> Response:
    """What was done so far, in the text form of Prometheus."""
    state = request.app.state
    text = state.meter.tell(state.house, state.desk)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
