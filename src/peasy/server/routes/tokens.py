"""Token routes as in vLLM: /tokenize and /detokenize, for clients that count tokens."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from peasy.errors import InvalidInput
from peasy.server.responses import Name, Strict, Text

router = APIRouter()


class PromptBody(Strict):
    """Body of /tokenize."""

    model: Name
    prompt: Text
    add_special_tokens: bool = True


class TokensBody(Strict):
    """Body of /detokenize."""

    model: Name
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=1_000_000)]


@router.post("/tokenize")
async def post_prompt(request: Request, body: PromptBody) -> Response:
    """Return the token ids of a prompt, and their number."""

    def work() -> dict[str, object]:
        with request.app.state.registry.use(body.model) as loaded:
            ids = loaded.encode_prompt(body.prompt, add_special_tokens=body.add_special_tokens)
            return {"count": len(ids), "max_model_len": loaded.max_seq_len, "tokens": ids}

    return JSONResponse(await request.app.state.worker_pool.run(work))


@router.post("/detokenize")
async def post_tokens(request: Request, body: TokensBody) -> Response:
    """Return the text of token ids."""

    def work() -> dict[str, object]:
        with request.app.state.registry.use(body.model) as loaded:
            tokenizer = loaded.output_tokenizer()
            size = max(len(tokenizer), loaded.model.config.vocab_size)  # a model may have more ids than its tokenizer
            if unknown := [id for id in body.tokens if id >= size]:
                raise InvalidInput(f"There is no token {unknown[0]}: the vocabulary has ids 0 to {size - 1}.")
            return {"prompt": tokenizer.decode(body.tokens)}

    return JSONResponse(await request.app.state.worker_pool.run(work))
