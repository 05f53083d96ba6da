"""Running models: tokenize, generate, translate, embed, and what models are here."""

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
    """All models, or what one of them is made of."""

    name: Name | None = None


@router.post("/models")
async def post_models(request: Request, asked: Models) -> Response:
    """What models are here, and what each one is."""
    house = request.app.state.house

    def work() -> Result:
        cards = {card.name: card for card in models().models}
        if asked.name is None:
            return ModelsResult(tuple(cards.get(name) or _card(house, name) for name in house.names))
        with house.use(asked.name) as loaded:
            card = cards.get(asked.name) or _card(house, asked.name)
            return ModelResult(card, loaded.describe(), read_card(loaded.folder))

    return await reply(request, "models", asked, work)


def _card(house: House, name: str) -> Card:
    """The card of a model that was given on the command line."""
    with house.use(name) as loaded:
        facts = loaded.data()
        return Card(name, "given", loaded.folder or Path(), loaded.kind, facts["parameters"], facts["bytes"])


class Tokenize(Asked):
    """A text to cut."""

    model: Name
    text: Text


@router.post("/tokenize")
async def post_tokenize(request: Request, asked: Tokenize) -> Response:
    """Text into tokens and ids, and back."""

    def work() -> Result:
        with request.app.state.house.use(asked.model) as loaded:
            tokenizer = loaded.need_tokenizer()
            return TokenizeResult(tokenizer.encode(asked.text), tokenizer, loaded.name)

    return await reply(request, "tokenize", asked, work)


UNCACHED = 128
"""Without a cache the work grows with the square of what is written."""


class Generate(Asked):
    """A text, or many, to write on from, and how."""

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
    """A model writes on from a text, word by word."""
    if asked.max_tokens > UNCACHED and (asked.show_cache or not asked.cached):
        raise InvalidInput(f"Without the cache at most {UNCACHED} tokens are written.", hint="Lower max_tokens.")
    return await reply(request, "generate", asked, lambda: _with_model(request, asked, generate))


class Translate(Asked):
    """A text, or many, to translate."""

    model: Name
    text: Texts
    align: bool = False
    beam: int = Field(1, ge=1, le=64)
    n: int = Field(1, ge=1, le=64)
    max_tokens: int | None = Field(None, ge=1, le=1024)
    length_penalty: float = Field(1.0, ge=-10, le=10)


@router.post("/translate")
async def post_translate(request: Request, asked: Translate) -> Response:
    """A translator answers a text, and shows which word came from which."""
    return await reply(request, "translate", asked, lambda: _with_model(request, asked, translate))


class Embed(Asked):
    """A text, or many, to turn into vectors."""

    model: Name
    texts: Texts
    pooling: Literal["mean", "cls", "last"] | None = None


@router.post("/embed")
async def post_embed(request: Request, asked: Embed) -> Response:
    """Texts into vectors, and how near they are."""
    return await reply(request, "embed", asked, lambda: _with_model(request, asked, embed))


def _with_model(request: Request, asked: Any, verb: Any) -> Result:
    how = {key: value for key, value in asked.given().items() if value is not None}
    with request.app.state.house.use(asked.model) as loaded:
        return verb(loaded, **how)
