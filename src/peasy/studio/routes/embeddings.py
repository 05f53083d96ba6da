"""OpenAI-compatible /v1/embeddings and /v1/models."""

import base64
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from peasy.errors import InvalidInput
from peasy.studio.dialect import Embedding
from peasy.studio.house import House

router = APIRouter(prefix="/v1")


@router.post("/embeddings")
async def post_embeddings(request: Request, asked: Embedding) -> Response:
    """Return one vector per text."""
    response = await request.app.state.worker_pool.run(lambda: _embed(request.app.state.registry, asked))
    request.state.log_fields = lambda: {"model": asked.model, **response["usage"]}
    return JSONResponse(response)


def _embed(house: House, asked: Embedding) -> dict[str, Any]:
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    with house.use(asked.model) as loaded:
        vectors = np.asarray(loaded.embed(texts, pooling=asked.pooling), dtype="<f4")
        tokenizer = loaded.need_tokenizer()
        max_length = getattr(loaded.model.config, "longest", None) or getattr(loaded.model.config, "context", None)
        num_tokens = sum(min(len(ids), max_length or len(ids)) for ids in tokenizer.ids(texts))
    if asked.dimensions not in (None, vectors.shape[1]):
        raise InvalidInput(
            f"dimensions: the vectors of {asked.model} have {vectors.shape[1]} dimensions.", hint="Leave it out."
        )
    entries = [
        {"object": "embedding", "index": index, "embedding": _number(vector, asked)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": entries, "model": asked.model, "usage": usage}


def _number(row: np.ndarray, asked: Embedding) -> Any:
    return base64.b64encode(row.tobytes()).decode() if asked.encoding_format == "base64" else row.tolist()


@router.get("/models")
async def get_models(request: Request) -> Response:
    """List all models."""
    registry: House = request.app.state.registry
    return JSONResponse({"object": "list", "data": [_model(name, registry.opened) for name in registry.names]})


@router.get("/models/{name:path}")
async def get_model(request: Request, name: str) -> Response:
    """Return one model."""
    registry: House = request.app.state.registry
    return JSONResponse(_model(registry.check(name), registry.opened))


def _model(name: str, since: float) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(since), "owned_by": "peasy"}
