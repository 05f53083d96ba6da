"""What leaves the door: a verb's result as the same object that `--json` prints, or an error in words."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from peasy import render
from peasy.errors import PeasyError
from peasy.render.html import live_parts
from peasy.render.json import plain
from peasy.workbench.result import Result

SCHEMA = 1

Format = Literal["html", "svg", "png", "tex", "md", "csv", "json", "npz"]

MEDIA = {
    "html": "text/html", "svg": "image/svg+xml", "png": "image/png", "tex": "application/x-tex", "md": "text/markdown",
    "csv": "text/csv", "json": "application/json", "npz": "application/zip",
}  # fmt: skip

STATUS = {
    "usage": 400, "invalid-input": 400, "no-choice": 400, "not-found": 404, "missing-part": 501, "no-room": 507,
    "overloaded": 429, "needs-network": 503, "fault": 500, "error": 500,
}  # fmt: skip


class Asked(BaseModel):
    """What every verb's request has: `html` also draws the answer, `format` gives it as a file instead."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    html: bool = Field(False, description="Also draw the answer as a piece of a page.")
    format: Format | None = Field(None, description="Give the answer as a file of this kind instead.")

    def given(self) -> dict[str, Any]:
        """The arguments of the verb: only what was said, so that the verb's own defaults hold."""
        return {key: value for key, value in self.model_dump(exclude_unset=True).items() if key not in _DRAWING}


_DRAWING = ("html", "format", "model")


async def reply(
    request: Request, verb: str, asked: Asked, work: Callable[[], Result], next: Sequence[str] = ()
) -> Response:
    """Do the work at the desk, where only so much goes on at once, and answer with what came of it."""
    return await request.app.state.desk.run(lambda: answer(verb, asked, work(), next))


def answer(verb: str, asked: Asked, result: Result, next: Sequence[str] = ()) -> Response:
    """A result as the response to a request."""
    if asked.format is not None:
        return download(verb, result, asked.format)
    body: dict[str, Any] = {"ok": True, "command": verb, "schema": SCHEMA, "result": result.data()}
    body |= {"files": [], "next": list(next)}
    if asked.html:
        body["html"], _, arithmetic = live_parts(result.document())
        body["arithmetic"] = json.loads(arithmetic)
    return JSONResponse(plain(body))


def download(verb: str, result: Result, format: str) -> Response:
    """A result as a file."""
    drawn = render.json.dump(result.data()) if format == "json" else render.draw(result.document(), format)
    headers = {"content-disposition": f'attachment; filename="{verb}.{format}"'}
    return Response(drawn, media_type=MEDIA[format], headers=headers)


def complain(error: PeasyError) -> JSONResponse:
    """An error of ours as a response."""
    said = {"code": error.code, "message": error.message, "hint": error.hint}
    status = getattr(error, "status", None) or STATUS.get(error.code, 500)
    headers = {} if status != 429 else {"retry-after": str(max(1, round(getattr(error, "retry_after", 1.0))))}
    return JSONResponse(plain({"ok": False, "error": said, "exit": error.exit_code}), status, headers)
