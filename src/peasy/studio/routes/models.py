"""What is done with models from the page: proof on one's own texts, and import of what is on this machine already."""

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
    """A model, and the texts to prove it on; without any, three sentences of peasy's own."""

    model: Name
    prompts: list[Text] | None = Field(None, min_length=1, max_length=8)
    tokens: int = Field(64, ge=1, le=512)
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/prove")
async def post_prove(request: Request, asked: Prove) -> Response:
    """Two roads to one truth on a model: cached and uncached, alone and in a batch, fused and by the formula."""

    def work() -> Result:
        with request.app.state.house.use(asked.model) as loaded:
            return prove(loaded, **asked.given())

    return await reply(request, "prove", asked, work)


class Import(Asked):
    """A model of the hub's cache to take in; `yes` says that the person was asked."""

    model: Name
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,60}$")] | None = None
    yes: bool = False


@router.post("/import")
async def post_import(request: Request, asked: Import) -> Response:
    """Take in a model that is in the hub's cache already; nothing is downloaded, no path is opened."""
    here = all_cached()
    if asked.model not in here:
        hint = did_you_mean(asked.model, here) or f"In a terminal: peasy import {asked.model[:100]}"
        raise NotFound(f"{asked.model[:100]} is not in the cache of this machine.", hint=hint)
    if not asked.yes:
        raise UsageError(f"Copy {asked.model} into peasy's own folder? Nobody said yes.", hint="Send yes: true.")
    return await reply(request, "import", asked, lambda: import_model(asked.model, name=asked.name, offline=True))
