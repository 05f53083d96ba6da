"""Inference routes: models, tokenize, generate, translate, embed."""

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.commands.embed import embed
from peasy.commands.generate import generate
from peasy.commands.models import ModelEntry, ModelResult, ModelsResult, models, read_card
from peasy.commands.result import Result
from peasy.commands.tokenize import TokenizeResult
from peasy.commands.translate import translate
from peasy.errors import InvalidInput
from peasy.server.model_registry import ModelRegistry
from peasy.server.responses import CommandBody, Name, Text, respond

router = APIRouter(prefix="/api")

Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=256)]


class ModelsBody(CommandBody):
    """Name of a model; without it, all of them."""

    name: Name | None = None


@router.post("/models")
async def post_models(request: Request, body: ModelsBody) -> Response:
    """List models or describe one."""
    registry: ModelRegistry = request.app.state.registry

    def work() -> Result:
        cards = {card.name: card for card in models().models}
        if body.name is None:
            return ModelsResult(tuple(cards.get(name) or _given_card(registry, name) for name in registry.names))
        with registry.use(body.name) as loaded:
            card = cards.get(body.name) or _given_card(registry, body.name)
            return ModelResult(card, loaded.describe(), read_card(loaded.folder))

    return await respond(request, "models", body, work)


def _given_card(registry: ModelRegistry, name: str) -> ModelEntry:
    """Return the card of a model that was given on the command line."""
    with registry.use(name) as loaded:
        facts = loaded.data()
        return ModelEntry(name, "given", loaded.folder or Path(), loaded.kind, facts["parameters"], facts["bytes"])


class TokenizeBody(CommandBody):
    """Text to tokenize."""

    model: Name
    text: Text


@router.post("/tokenize")
async def post_tokenize(request: Request, body: TokenizeBody) -> Response:
    """Tokenize a text."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            tokenizer = loaded.require_tokenizer()
            return TokenizeResult(tokenizer.encode(body.text), tokenizer, loaded.name)

    return await respond(request, "tokenize", body, work)


MAX_UNCACHED_TOKENS = 128
"""Limit of max_tokens without KV cache, where the cost grows quadratically."""


class GenerateBody(CommandBody):
    """One or more prompts and the sampling parameters."""

    model: Name
    prompt: Texts
    n: int = Field(1, ge=1, le=16)
    max_tokens: int = Field(64, ge=1, le=1024)
    temperature: float = Field(0.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, ge=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=100)
    presence_penalty: float = Field(0.0, ge=-100, le=100)
    frequency_penalty: float = Field(0.0, ge=-100, le=100)
    stop: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field([], max_length=16)
    seed: int = Field(0, ge=0, lt=2**53)
    logprobs: int | None = Field(None, ge=0, le=100)
    weights: Literal["auto", "float32", "bfloat16", "int8"] = "auto"
    truncate: Literal["error", "left"] = "error"
    use_cache: bool = True
    speculative: bool = False
    show_cache: bool = False


@router.post("/generate")
async def post_generate(request: Request, body: GenerateBody) -> Response:
    """Generate text from a prompt."""
    if body.max_tokens > MAX_UNCACHED_TOKENS and (body.show_cache or not body.use_cache):
        raise InvalidInput(f"Without KV cache, max_tokens is at most {MAX_UNCACHED_TOKENS}.", hint="Lower max_tokens.")
    return await respond(request, "generate", body, lambda: _run_with_model(request, body, generate))


class TranslateBody(CommandBody):
    """One or more texts to translate."""

    model: Name
    text: Texts
    align: bool = False
    num_beams: int = Field(1, ge=1, le=64)
    n: int = Field(1, ge=1, le=64)
    max_tokens: int | None = Field(None, ge=1, le=1024)
    length_penalty: float = Field(1.0, ge=-10, le=10)


@router.post("/translate")
async def post_translate(request: Request, body: TranslateBody) -> Response:
    """Translate with an encoder-decoder model, with word alignment if `align`."""
    return await respond(request, "translate", body, lambda: _run_with_model(request, body, translate))


class EmbedBody(CommandBody):
    """One or more texts to embed."""

    model: Name
    texts: Texts
    pooling: Literal["mean", "cls", "last"] | None = None


@router.post("/embed")
async def post_embed(request: Request, body: EmbedBody) -> Response:
    """Return embeddings of texts and their similarities."""
    return await respond(request, "embed", body, lambda: _run_with_model(request, body, embed))


def _run_with_model(request: Request, body: Any, command: Any) -> Result:
    arguments = {key: value for key, value in body.arguments().items() if value is not None}
    with request.app.state.registry.use(body.model) as loaded:
        return command(loaded, **arguments)
