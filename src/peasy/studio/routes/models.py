"""Studio routes for models: prove, and import from the local hub cache."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.checkpoint.hub import all_cached
from peasy.errors import NotFound, UsageError, did_you_mean
from peasy.studio.reply import Asked, Name, Text, reply
from peasy.workbench.importing import import_model
from peasy.workbench.prove import prove
from peasy.workbench.result import Result

router = APIRouter(prefix="/api")


class Prove(Asked):
    """Model and prompts for the proof; without prompts, three built-in sentences."""

    model: Name
    prompts: list[Text] | None = Field(None, min_length=1, max_length=8)
    tokens: int = Field(64, ge=1, le=512)
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/prove")
async def post_prove(request: Request, asked: Prove) -> Response:
    """Check that a model's execution paths agree: cached or not, alone or batched, fused or by the formula."""

    def work() -> Result:
        with request.app.state.registry.use(asked.model) as loaded:
            return prove(loaded, **asked.given())

    return await reply(request, "prove", asked, work)


class Import(Asked):
    """Model in the hub's cache to import; `yes` confirms that the user agreed."""

    model: Name
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,60}$")] | None = None
    yes: bool = False


@router.post("/import")
async def post_import(request: Request, asked: Import) -> Response:
    """Import a model from the hub's cache; nothing is downloaded, no path is opened."""
    cached = all_cached()
    if asked.model not in cached:
        hint = did_you_mean(asked.model, cached) or f"In a terminal: peasy import {asked.model[:100]}"
        raise NotFound(f"{asked.model[:100]} is not in this machine's hub cache.", hint=hint)
    if not asked.yes:
        raise UsageError(f"Copying {asked.model} into peasy's data directory needs consent.", hint="Send yes: true.")
    return await reply(request, "import", asked, lambda: import_model(asked.model, name=asked.name, offline=True))
