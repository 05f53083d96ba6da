"""Routes of the Meaning page: 2-D map of texts, word vectors before and after training."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.studio.reply import Asked, Name, reply
from peasy.workbench.meaning import MOST, map_texts, map_words
from peasy.workbench.result import Result

router = APIRouter(prefix="/api")

Sentence = Annotated[str, Field(max_length=5_000)]


class Meaning(Asked):
    """Documents, each a list of sentences, to project onto a map."""

    model: Name
    documents: list[Annotated[list[Sentence], Field(max_length=MOST)]] = Field(min_length=1, max_length=100)
    clusters: int = Field(3, ge=1, le=12)
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/meaning")
async def post_meaning(request: Request, asked: Meaning) -> Response:
    """Return texts on a 2-D map, with clusters and nearest neighbours."""

    def work() -> Result:
        with request.app.state.registry.use(asked.model) as loaded:
            return map_texts(loaded, **asked.given())

    return await reply(request, "meaning", asked, work)


class Words(Asked):
    """Words whose vectors are compared at initialization and after training."""

    model: Name
    words: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field([], max_length=MOST)
    clusters: int = Field(4, ge=1, le=12)
    seed: int | None = Field(None, ge=0, le=2**31)


@router.post("/words")
async def post_words(request: Request, asked: Words) -> Response:
    """Return word vectors before and after training."""

    def work() -> Result:
        with request.app.state.registry.use(asked.model) as loaded:
            return map_words(loaded, **asked.given())

    return await reply(request, "words", asked, work)
