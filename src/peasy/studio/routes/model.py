"""Inference routes: models, tokenize, generate, translate, embed."""

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.errors import InvalidInput
from peasy.studio.house import House
from peasy.studio.reply import Asked, Name, Text, reply
from peasy.workbench.embed import embed
from peasy.workbench.generate import generate
from peasy.workbench.models import Card, ModelResult, ModelsResult, models, read_card
from peasy.workbench.result import Result
from peasy.workbench.tokenize import TokenizeResult
from peasy.workbench.translate import translate

router = APIRouter(prefix="/api")

Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=256)]


class Models(Asked):
    """Name of a model; without it, all of them."""

    name: Name | None = None


@router.post("/models")
async def post_models(request: Request, asked: Models) -> Response:
    """List models or describe one."""
    registry: House = request.app.state.registry

    def work() -> Result:
        cards = {card.name: card for card in models().models}
        if asked.name is None:
            return ModelsResult(tuple(cards.get(name) or _card(registry, name) for name in registry.names))
        with registry.use(asked.name) as loaded:
            card = cards.get(asked.name) or _card(registry, asked.name)
            return ModelResult(card, loaded.describe(), read_card(loaded.folder))

    return await reply(request, "models", asked, work)


def _card(house: House, name: str) -> Card:
    """Return the card of a model that was given on the command line."""
    with house.use(name) as loaded:
        facts = loaded.data()
        return Card(name, "given", loaded.folder or Path(), loaded.kind, facts["parameters"], facts["bytes"])


class Tokenize(Asked):
    """Text to tokenize."""

    model: Name
    text: Text


@router.post("/tokenize")
async def post_tokenize(request: Request, asked: Tokenize) -> Response:
    """Tokenize a text."""

    def work() -> Result:
        with request.app.state.registry.use(asked.model) as loaded:
            tokenizer = loaded.need_tokenizer()
            return TokenizeResult(tokenizer.encode(asked.text), tokenizer, loaded.name)

    return await reply(request, "tokenize", asked, work)


UNCACHED = 128
"""Limit of max_tokens without KV cache, where the cost grows quadratically."""


class Generate(Asked):
    """One or more prompts and the sampling parameters."""

    model: Name
    text: Texts
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
    long: Literal["refuse", "last"] = "refuse"
    cached: bool = True
    lookup: bool = False
    show_cache: bool = False


@router.post("/generate")
async def post_generate(request: Request, asked: Generate) -> Response:
    """Generate text from a prompt."""
    if asked.max_tokens > UNCACHED and (asked.show_cache or not asked.cached):
        raise InvalidInput(f"Without KV cache, max_tokens is at most {UNCACHED}.", hint="Lower max_tokens.")
    return await reply(request, "generate", asked, lambda: _with_model(request, asked, generate))


class Translate(Asked):
    """One or more texts to translate."""

    model: Name
    text: Texts
    align: bool = False
    beam: int = Field(1, ge=1, le=64)
    n: int = Field(1, ge=1, le=64)
    max_tokens: int | None = Field(None, ge=1, le=1024)
    length_penalty: float = Field(1.0, ge=-10, le=10)


@router.post("/translate")
async def post_translate(request: Request, asked: Translate) -> Response:
    """Translate with an encoder-decoder model, with word alignment if `align`."""
    return await reply(request, "translate", asked, lambda: _with_model(request, asked, translate))


class Embed(Asked):
    """One or more texts to embed."""

    model: Name
    texts: Texts
    pooling: Literal["mean", "cls", "last"] | None = None


@router.post("/embed")
async def post_embed(request: Request, asked: Embed) -> Response:
    """Return embeddings of texts and their similarities."""
    return await reply(request, "embed", asked, lambda: _with_model(request, asked, embed))


def _with_model(request: Request, asked: Any, verb: Any) -> Result:
    arguments = {key: value for key, value in asked.given().items() if value is not None}
    with request.app.state.registry.use(asked.model) as loaded:
        return verb(loaded, **arguments)
