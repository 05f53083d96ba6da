"""Token routes as in vLLM: /tokenize and /detokenize, for clients that count tokens."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from peasy.config import JsonDict
from peasy.errors import InvalidInput
from peasy.server.openai_schema import ChatMessage
from peasy.server.responses import Name, Strict, Text

router = APIRouter()


class PromptBody(Strict):
    """Body of /tokenize: a prompt, or messages for the chat template; the only model of a server needs no name."""

    model: Name | None = None
    prompt: Text | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1000)] | None = None
    add_special_tokens: bool | None = Field(None, description="Of a prompt: add those that the model expects (true).")
    add_generation_prompt: bool = Field(True, description="Of messages: open the assistant's turn.")
    return_token_strs: bool = Field(False, description="Also return the tokens as they are in the vocabulary.")


class TokensBody(Strict):
    """Body of /detokenize."""

    model: Name | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=1_000_000)]


@router.post("/tokenize")
async def post_prompt(request: Request, body: PromptBody) -> Response:
    """Return the token ids of a prompt or of a conversation, and their number."""
    if (body.prompt is None) == (body.messages is None):
        raise InvalidInput("Send prompt or messages, one of them.")

    def work() -> JsonDict:
        registry = request.app.state.registry
        with registry.use(registry.name_or_only(body.model)) as loaded:
            if body.prompt is not None:
                ids = loaded.encode_prompt(body.prompt, add_special_tokens=body.add_special_tokens is not False)
            else:
                messages = [message.for_template() for message in body.messages or ()]
                ids = loaded.encode_chat(messages, add_generation_prompt=body.add_generation_prompt)
            tokens = list(map(loaded.require_tokenizer().token, ids)) if body.return_token_strs else None
            return {"count": len(ids), "max_model_len": loaded.max_seq_len, "tokens": ids, "token_strs": tokens}

    return JSONResponse(await request.app.state.worker_pool.run(work))


@router.post("/detokenize")
async def post_tokens(request: Request, body: TokensBody) -> Response:
    """Return the text of token ids, special tokens included."""

    def work() -> JsonDict:
        registry = request.app.state.registry
        with registry.use(registry.name_or_only(body.model)) as loaded:
            tokenizer = loaded.output_tokenizer()
            size = max(len(tokenizer), loaded.model.config.vocab_size)  # a model may have more ids than its tokenizer
            if unknown := [id for id in body.tokens if id >= size]:
                raise InvalidInput(f"There is no token {unknown[0]}: the vocabulary has ids 0 to {size - 1}.")
            return {"prompt": tokenizer.decode(body.tokens, keep_special_tokens=True)}

    return JSONResponse(await request.app.state.worker_pool.run(work))
