"""Studio routes for models: prove, and import from the local hub cache."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.checkpoint.hub import list_cached
from peasy.commands.importing import import_model
from peasy.commands.prove import prove
from peasy.commands.result import Result
from peasy.errors import NotFound, UsageError, did_you_mean
from peasy.server.responses import CommandBody, Name, Text, respond

router = APIRouter(prefix="/api")


class ProveBody(CommandBody):
    """Model and prompts for the proof; without prompts, three built-in sentences."""

    model: Name
    prompts: list[Text] | None = Field(None, min_length=1, max_length=8)
    max_tokens: int = Field(64, ge=1, le=512)
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/prove")
async def post_prove(request: Request, body: ProveBody) -> Response:
    """Check that a model's execution paths agree: cached or not, alone or batched, fused or by the formula."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return prove(loaded, **body.arguments())

    return await respond(request, "prove", body, work)


class ImportBody(CommandBody):
    """Model in the hub's cache to import; `yes` confirms that the user agreed."""

    model: Name
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,60}$")] | None = None
    yes: bool = False


@router.post("/import")
async def post_import(request: Request, body: ImportBody) -> Response:
    """Import a model from the hub's cache; nothing is downloaded, no path is opened."""
    cached = list_cached()
    if body.model not in cached:
        hint = did_you_mean(body.model, cached) or f"In a terminal: peasy import {body.model[:100]}"
        raise NotFound(f"{body.model[:100]} is not in this machine's hub cache.", hint=hint)
    if not body.yes:
        raise UsageError(f"Copying {body.model} into peasy's data directory needs consent.", hint="Send yes: true.")
    return await respond(request, "import", body, lambda: import_model(body.model, name=body.name, offline=True))
