"""What leaves the door: a verb's result as the same object that `--json` prints, or an error in words."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from peasy import render
from peasy.errors import InvalidInput, PeasyError
from peasy.render.html import live_parts
from peasy.render.json import plain
from peasy.workbench.result import Result

SCHEMA = 1

Text = Annotated[str, Field(max_length=200_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]

Format = Literal["html", "svg", "png", "tex", "md", "csv", "json", "npz"]

MEDIA = {
    "html": "text/html", "svg": "image/svg+xml", "png": "image/png", "tex": "application/x-tex", "md": "text/markdown",
    "csv": "text/csv", "json": "application/json", "npz": "application/zip",
}  # fmt: skip

STATUS = {
    "usage": 400, "malformed": 400, "invalid-input": 400, "no-choice": 400, "not-found": 404, "overloaded": 429,
    "missing-part": 501, "needs-network": 503, "no-room": 507, "fault": 500, "error": 500,
}  # fmt: skip


class Strict(BaseModel):
    """Unknown fields, numbers as text, NaN and infinity are refused before anything is done."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _count(cls, given: Any) -> Any:
        """To JSON 5.0 is a whole number, as 5 is."""
        return _whole(given)


def _whole(given: Any) -> Any:
    if isinstance(given, float):
        return int(given) if given.is_integer() and abs(given) < 2**63 else given
    if isinstance(given, dict):
        return {key: _whole(value) for key, value in given.items()}
    return [_whole(each) for each in given] if isinstance(given, list) else given


class Asked(Strict):
    """What every verb's request has: `html` also draws the answer, `format` gives it as a file instead."""

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


class Malformed(InvalidInput):
    """A request that does not fit its description; one that fits can still ask for what is not to be had."""

    code = "malformed"


class Fault(PeasyError):
    """Something went wrong inside; it is no fault of who asked."""

    code = "fault"


TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    429: "rate_limit_error",
}  # fmt: skip
"""What kind of error a status is, in the words of the common clients."""


def status_of(error: PeasyError) -> int:
    """The status that says the same to programs."""
    return getattr(error, "status", None) or STATUS.get(error.code, 500)


def openai_error(error: PeasyError, param: str | None = None) -> dict[str, Any]:
    """An error as the common clients read it."""
    status = status_of(error)
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    said = error.message if error.hint is None else f"{error.message} {error.hint}"
    return {"error": {"message": said, "type": kind, "param": param, "code": error.code}}


def complain(error: PeasyError, path: str = "/api", param: str | None = None) -> JSONResponse:
    """An error as a response: in the words of the common clients under /v1, in ours everywhere else."""
    status = status_of(error)
    said: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
    body = {"ok": False, "error": said, "exit": error.exit_code}
    wait = getattr(error, "retry_after", None if status != 503 else 1.0)
    headers = {} if wait is None else {"retry-after": str(max(1, math.ceil(wait)))}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(plain(openai_error(error, param) if path.startswith("/v1") else body), status, headers)
