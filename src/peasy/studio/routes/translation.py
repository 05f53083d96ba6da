"""Translations word by word: which came from which, and the search as a tree."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.studio.reply import Asked, Name, Text, reply
from peasy.workbench.align import align
from peasy.workbench.beams import beams
from peasy.workbench.result import Result

router = APIRouter(prefix="/api")


class Align(Asked):
    """A text, perhaps its translation, and the head to show; without one the head that aligns best."""

    model: Name
    text: Text
    answer: Text | None = None
    layer: int | None = Field(None, ge=0, le=1000)
    head: int | None = Field(None, ge=0, le=1000)


@router.post("/align")
async def post_align(request: Request, asked: Align) -> Response:
    """Which source words the words of a translation came from."""

    def work() -> Result:
        with request.app.state.house.use(asked.model) as loaded:
            return align(loaded, **asked.given())

    return await reply(request, "align", asked, work)


class Beams(Asked):
    """A text to translate, or to write on from, with so many beams."""

    model: Name
    text: Text
    beam: int = Field(4, ge=1, le=16)
    max_tokens: int | None = Field(None, ge=1, le=256)
    length_penalty: float = Field(1.0, ge=-10, le=10)


@router.post("/beams")
async def post_beams(request: Request, asked: Beams) -> Response:
    """A beam search as a tree of all that was kept on the way."""

    def work() -> Result:
        with request.app.state.house.use(asked.model) as loaded:
            return beams(loaded, **asked.given())

    return await reply(request, "beams", asked, work)
