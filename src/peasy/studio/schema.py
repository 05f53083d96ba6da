"""The description of the API, as /openapi.json gives it: what may be sent, and every answer there is."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from peasy.studio.block import MEDIA as BLOCK
from peasy.studio.reply import MEDIA as FILES

ANSWERS = {
    "400": "The request is not what it should be.",
    "401": "The key is missing or wrong.",
    "403": "Pages of other sites may not ask.",
    "404": "There is no such thing here.",
    "413": "The body is too large.",
    "421": "The server does not go by that name.",
    "429": "Too many wait already; Retry-After says when to come back.",
    "431": "The headers are too large.",
    "500": "A bug.",
    "501": "A part of peasy is not installed.",
    "503": "The server is closing.",
    "507": "There is no room for this model.",
}


def describe(app: FastAPI, key: bool) -> None:
    """Let the application describe itself with our answers, not with those that its framework would give."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for path, methods in made["paths"].items():
                for told in methods.values():
                    _answers(path, told, key)
            if key:
                made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _kinds(path: str) -> list[str]:
    """What else an answer can be: a file, a block of numbers, a stream."""
    if path.startswith("/api/"):
        return [*FILES.values(), BLOCK, "text/event-stream"]
    return ["text/event-stream"] if path.endswith("/completions") else []


def _answers(path: str, told: dict[str, Any], key: bool) -> None:
    told["responses"].pop("422", None)  # ours is 400
    kinds = told["responses"]["200"].setdefault("content", {})
    for kind in _kinds(path):
        kinds.setdefault(kind, {"schema": {}})
    said = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
    for status, says in ANSWERS.items():
        told["responses"].setdefault(status, {"description": says, "content": said})
    if key and path != "/health":
        told["security"] = [{"key": []}]
