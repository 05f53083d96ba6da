"""Routes of the Meaning page: 2-D map of texts, word vectors before and after training."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.commands.result import Result
from peasy.commands.semantic_map import MAX_POINTS, map_texts, map_words
from peasy.server.responses import CommandBody, Name, respond

router = APIRouter(prefix="/api")

Sentence = Annotated[str, Field(max_length=5_000)]


class MeaningBody(CommandBody):
    """Documents, each a list of sentences, to project onto a map."""

    model: Name
    documents: list[Annotated[list[Sentence], Field(max_length=MAX_POINTS)]] = Field(min_length=1, max_length=100)
    clusters: int = Field(3, ge=1, le=12)
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/meaning")
async def post_meaning(request: Request, body: MeaningBody) -> Response:
    """Return texts on a 2-D map, with clusters and nearest neighbours."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return map_texts(loaded, **body.arguments())

    return await respond(request, "meaning", body, work)


class WordsBody(CommandBody):
    """Words whose vectors are compared at initialization and after training."""

    model: Name
    words: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field([], max_length=MAX_POINTS)
    clusters: int = Field(4, ge=1, le=12)
    seed: int | None = Field(None, ge=0, le=2**31)


@router.post("/words")
async def post_words(request: Request, body: WordsBody) -> Response:
    """Return word vectors before and after training."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return map_words(loaded, **body.arguments())

    return await respond(request, "words", body, work)
