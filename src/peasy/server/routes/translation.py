"""Translation routes: word alignment and beam search tree."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.commands.align import align
from peasy.commands.beams import beams
from peasy.commands.result import Result
from peasy.server.responses import CommandBody, Name, Text, respond

router = APIRouter(prefix="/api")


class AlignBody(CommandBody):
    """Text, optional translation, and the head to show; by default the head that aligns best."""

    model: Name
    text: Text
    target: Text | None = None
    layer: int | None = Field(None, ge=0, le=1000)
    head: int | None = Field(None, ge=0, le=1000)


@router.post("/align")
async def post_align(request: Request, body: AlignBody) -> Response:
    """Align the words of a translation with source words."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return align(loaded, **body.arguments())

    return await respond(request, "align", body, work)


class BeamsBody(CommandBody):
    """Text to translate or continue, and beam search parameters."""

    model: Name
    text: Text
    num_beams: int = Field(4, ge=1, le=16)
    max_tokens: int | None = Field(None, ge=1, le=256)
    length_penalty: float = Field(1.0, ge=-10, le=10)


@router.post("/beams")
async def post_beams(request: Request, body: BeamsBody) -> Response:
    """Return a beam search as a tree of all hypotheses."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return beams(loaded, **body.arguments())

    return await respond(request, "beams", body, work)
