"""OpenAI-compatible /v1/embeddings and /v1/models."""

import base64

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from numpy.typing import NDArray

from peasy.config import JsonDict
from peasy.errors import InvalidInput
from peasy.metrics.kmeans import unit_vectors
from peasy.server.model_registry import ModelRegistry
from peasy.server.openai_schema import EmbeddingBody

router = APIRouter(prefix="/v1")


@router.post("/embeddings")
async def post_embeddings(request: Request, body: EmbeddingBody) -> Response:
    """Return one vector per text."""
    response = await request.app.state.worker_pool.run(lambda: _embed(request.app.state.registry, body))
    request.state.log_fields = lambda: {"model": body.model, **response["usage"]}
    return JSONResponse(response)


def _embed(registry: ModelRegistry, body: EmbeddingBody) -> JsonDict:
    texts = [body.input] if isinstance(body.input, str) else body.input
    with registry.use(body.model) as loaded:
        vectors = np.asarray(loaded.embed_texts(texts, pooling=body.pooling), dtype="<f4")
        rows, longest = loaded.require_tokenizer().encode_batch_ids(texts), loaded.max_text_tokens
        num_tokens = sum(min(len(ids), longest or len(ids)) for ids in rows)
        note = loaded.truncation_note(sum(len(ids) > longest for ids in rows) if longest else 0, len(rows))
    vectors = _shorten(vectors, body.dimensions or vectors.shape[1])
    is_binary = body.encoding_format == "base64"
    encoded = (base64.b64encode(vector.tobytes()).decode() if is_binary else vector.tolist() for vector in vectors)
    entries = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(encoded)]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    notes = {"notes": [note]} if note else {}
    return {"object": "list", "data": entries, "model": body.model, "usage": usage} | notes


def _shorten(vectors: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    """Keep the first dimensions, scaled to length 1 again, as models trained for it (Matryoshka) expect."""
    if dimensions > (size := vectors.shape[1]):
        raise InvalidInput(f"dimensions: the vectors have {size} dimensions.", hint=f"Give at most {size}.")
    return vectors if dimensions == size else unit_vectors(vectors[:, :dimensions]).astype("<f4")


@router.get("/models")
def get_models(request: Request) -> Response:
    """List all models."""
    registry: ModelRegistry = request.app.state.registry
    return JSONResponse({"object": "list", "data": [_model_entry(name, registry.created) for name in registry.names]})


@router.get("/models/{name:path}")
def get_model(request: Request, name: str) -> Response:
    """Return one model."""
    registry: ModelRegistry = request.app.state.registry
    return JSONResponse(_model_entry(registry.check_name(name), registry.created))


def _model_entry(name: str, created: float) -> JsonDict:
    return {"id": name, "object": "model", "created": int(created), "owned_by": "peasy"}
