"""Responses of the command API: result envelope as printed by `--json`, file downloads, error mapping."""

import math
from typing import Annotated, Literal

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

from peasy import render
from peasy.commands.result import Result
from peasy.config import JsonDict
from peasy.errors import InvalidInput, PeasyError
from peasy.render.html import page_content
from peasy.render.json import to_plain
from peasy.views.document import Document, DocumentPart

_SCHEMA_VERSION = 1

Text = Annotated[str, Field(max_length=200_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Seed = Annotated[int, Field(ge=0, lt=2**53)]

_OutputFormat = Literal["html", "svg", "png", "pdf", "tex", "md", "csv", "json", "npz", "xlsx"]

MEDIA_TYPES = {
    "html": "text/html", "svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf",
    "tex": "application/x-tex", "md": "text/markdown", "csv": "text/csv", "json": "application/json",
    "npz": "application/zip",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip

_STATUS_BY_CODE = {
    "usage": 400, "malformed": 400, "invalid-input": 400, "no-valid-token": 400, "not-found": 404, "busy": 409,
    "overloaded": 429, "lost": 503, "diverged": 422, "missing-extra": 501,
    "needs-network": 503, "resource-unavailable": 507, "internal-error": 500, "error": 500,
}  # fmt: skip


_MAX_MEMBERS = 4096
"""Members of one object in a body."""

_PLAIN_TYPES = {int, str, bool, type(None)}


def _stop_at_first_error(schema: object) -> None:
    """Set `fail_fast` of all lists in a pydantic schema."""
    if isinstance(schema, dict) and schema.get("type") == "list":
        schema["fail_fast"] = True
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list | tuple) else ():
        _stop_at_first_error(part)


class Strict(BaseModel):
    """Strict body: unknown fields, numbers as strings, NaN, infinity and huge objects are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _accept_integral_floats(cls, value: object) -> object:
        """Accept 5.0 where an integer is expected: JSON does not distinguish them."""
        return _integral_floats_to_int(value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic schema whose lists stop at the first wrong item: thousands fit into a body, and each takes time."""
        schema = handler(source)
        _stop_at_first_error(schema)
        return schema


def _integral_floats_to_int(value: object) -> object:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    if isinstance(value, list):  # of hundreds of thousands of ids, it may be
        return value if _PLAIN_TYPES.issuperset(map(type, value)) else [_integral_floats_to_int(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) > _MAX_MEMBERS:
        raise ValueError(f"an object has more than {_MAX_MEMBERS:,} members")
    return {key: _integral_floats_to_int(item) for key, item in value.items()}


class CommandBody(Strict):
    """Fields of every command's body: `html` also renders the result, `format` returns it as a file instead."""

    html: bool = Field(False, description="Also render the result as an HTML fragment.")
    format: _OutputFormat | None = Field(None, description="Return the result as a file of this format instead.")

    def arguments(self) -> JsonDict:
        """Return the arguments of the command: only fields that were sent, so that its own defaults hold."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in _NON_ARGUMENTS}


_NON_ARGUMENTS = ("html", "format", "model", "binary")


def make_response(command: str, body: CommandBody, result: Result) -> Response:
    """Return a result as a JSON envelope, or as a file if `format` is given."""
    if body.format is not None:
        is_json = body.format == "json"
        content = render.json.dump(result.data()) if is_json else render.draw(result.document(), body.format)
        headers = {"content-disposition": f'attachment; filename="{command}.{body.format}"'}
        return Response(content, media_type=MEDIA_TYPES[body.format], headers=headers)
    envelope: JsonDict = {"ok": True, "command": command, "schema": _SCHEMA_VERSION, "result": result.data()}
    envelope |= {"files": [], "next": []}
    if body.html:
        envelope["html"], envelope["arithmetic"] = page_content(result.document())
    return JSONResponse(to_plain(envelope))


class ServerResult(Result, repr=True):
    """Result of a route that is no command: its JSON data, and what its document shows."""

    title: str
    content: JsonDict
    shown: DocumentPart

    def document(self) -> Document:
        return Document(self.title, (self.shown,))

    def data(self) -> JsonDict:
        return self.content


class MalformedRequest(InvalidInput):
    """Request that does not match its schema."""

    code = "malformed"


_OPENAI_ERROR_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    429: "rate_limit_error",
}  # fmt: skip
"""OpenAI's error type for each HTTP status."""


def _http_status(error: PeasyError) -> int:
    return getattr(error, "status", None) or _STATUS_BY_CODE.get(error.code, 500)


def openai_error(error: PeasyError, param: str | None = None) -> JsonDict:
    """Return an error in OpenAI's format."""
    status = _http_status(error)
    kind = _OPENAI_ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    message = error.message if error.hint is None else f"{error.message} {error.hint}"
    return {"error": {"message": message, "type": kind, "param": param, "code": error.code}}


def error_response(error: PeasyError, path: str = "/api", param: str | None = None) -> JSONResponse:
    """Return an error as a response: in OpenAI's format under /v1 and of vLLM's routes, else as `--json` prints it."""
    status = _http_status(error)
    details: JsonDict = {"code": error.code, "message": error.message, "hint": error.hint}
    envelope = {"ok": False, "error": details, "exit": error.exit_code}
    retry_after = getattr(error, "retry_after", None if status != 503 else 1.0)
    headers = {} if retry_after is None else {"retry-after": str(max(1, math.ceil(retry_after)))}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    is_openai = path.startswith(("/v1", "/tokenize", "/detokenize"))
    return JSONResponse(to_plain(openai_error(error, param) if is_openai else envelope), status, headers)
