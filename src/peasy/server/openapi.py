"""OpenAPI description (/openapi.json): request schemas and all error responses."""

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from peasy.config import JsonDict
from peasy.server.responses import MEDIA_TYPES as FILES
from peasy.server.routes.commands import ARRAYS_MEDIA_TYPE as ARRAYS

_RESPONSES = {
    "400": "The request is invalid.",
    "401": "The API key is missing or wrong.",
    "403": "Cross-site requests are not allowed.",
    "404": "Not found.",
    "413": "The body is too large.",
    "421": "The host name is not allowed.",
    "429": "The queue is full; Retry-After gives the seconds to wait.",
    "431": "The headers are too large.",
    "500": "Internal error (a bug).",
    "501": "An optional dependency of peasy is not installed.",
    "503": "The server is shutting down.",
    "507": "Not enough memory for this model.",
}


def set_openapi(app: FastAPI, needs_key: bool) -> None:
    """Replace FastAPI's OpenAPI description by one with peasy's error responses."""

    def openapi() -> JsonDict:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for path, methods in schema["paths"].items():
                for operation in methods.values():
                    _add_responses(path, operation, needs_key)
            if needs_key:
                schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_responses(path: str, operation: JsonDict, needs_key: bool) -> None:
    operation["responses"].pop("422", None)  # peasy responds with 400
    content = operation["responses"]["200"].setdefault("content", {})
    streams = ["text/event-stream"] if path.startswith("/api/") or path.endswith("/completions") else []
    for media_type in (*FILES.values(), ARRAYS, *streams) if path.startswith("/api/") else streams:
        content.setdefault(media_type, {"schema": {}})
    error = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
    for status, description in _RESPONSES.items():
        operation["responses"].setdefault(status, {"description": description, "content": error})
    if needs_key and path != "/health":
        operation["security"] = [{"key": []}]
