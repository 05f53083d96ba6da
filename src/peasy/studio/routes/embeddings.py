"""Vectors and the list of models, in the form of the common clients."""

import base64
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from peasy.errors import InvalidInput
from peasy.studio.dialect import Embedding

router = APIRouter(prefix="/v1")


@router.post("/embeddings")
async def post_embeddings(request: Request, asked: Embedding) -> Response:
    """One vector for each text."""
    body = await request.app.state.desk.run(lambda: _embed(request.app.state.house, asked))
    request.state.told = lambda: {"model": asked.model, **body["usage"]}
    return JSONResponse(body)


def _embed(house: Any, asked: Embedding) -> dict[str, Any]:
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    with house.use(asked.model) as loaded:
        vectors = np.asarray(loaded.embed(texts, pooling=asked.pooling), dtype="<f4")
        words = loaded.need_tokenizer()
        longest = getattr(loaded.model.config, "longest", None) or getattr(loaded.model.config, "context", None)
        read = sum(min(len(ids), longest or len(ids)) for ids in words.ids(texts))
    if asked.dimensions not in (None, vectors.shape[1]):
        raise InvalidInput(
            f"dimensions: the vectors of {asked.model} have {vectors.shape[1]} numbers.", hint="Leave it out."
        )
    rows = [
        {"object": "embedding", "index": place, "embedding": _number(row, asked)} for place, row in enumerate(vectors)
    ]
    usage = {"prompt_tokens": read, "total_tokens": read}
    return {"object": "list", "data": rows, "model": asked.model, "usage": usage}


def _number(row: np.ndarray, asked: Embedding) -> Any:
    return base64.b64encode(row.tobytes()).decode() if asked.encoding_format == "base64" else row.tolist()


@router.get("/models")
async def get_models(request: Request) -> Response:
    """Every model that may be asked for."""
    house = request.app.state.house
    return JSONResponse({"object": "list", "data": [_model(name, house.opened) for name in house.names]})


@router.get("/models/{name:path}")
async def get_model(request: Request, name: str) -> Response:
    """One of them."""
    house = request.app.state.house
    return JSONResponse(_model(house.check(name), house.opened))


def _model(name: str, since: float) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(since), "owned_by": "peasy"}
