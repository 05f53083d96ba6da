"""Inference routes: models, tokenize, generate, translate, align, beams, embed, classify."""

from pathlib import Path
from typing import Annotated

from annotated_types import Le
from fastapi import APIRouter
from pydantic import Field
from starlette.datastructures import State

from peasy.commands.align import align
from peasy.commands.beams import beams
from peasy.commands.classify import classify
from peasy.commands.embed import embed
from peasy.commands.generate import GenerateSampling, generate
from peasy.commands.models import ModelEntry, ModelResult, ModelsResult, models, read_card
from peasy.commands.result import Result
from peasy.commands.tokenize import tokenize
from peasy.commands.translate import translate
from peasy.config import JsonDict
from peasy.errors import InvalidInput
from peasy.server.derive import add_command_route, command_route
from peasy.server.model_registry import ModelRegistry
from peasy.server.responses import Name, Seed, Text

router = APIRouter(prefix="/api")

Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=256)]
_LengthPenalty = Annotated[float, Field(ge=-10, le=10)]


@command_route(router, "/models")
def post_models(state: State, name: Name | None = None) -> Result:
    """List models or describe one."""
    registry, cards = state.registry, {card.name: card for card in models().models}
    if name is None:
        return ModelsResult(tuple(cards.get(known) or _given_card(registry, known) for known in registry.names))
    with registry.use(name) as loaded:
        card = cards.get(name) or _given_card(registry, name)
        return ModelResult(card, loaded.describe(), read_card(loaded.folder))


def _given_card(registry: ModelRegistry, name: str) -> ModelEntry:
    with registry.use(name) as loaded:
        facts = loaded.data()
        return ModelEntry(name, "given", loaded.folder or Path(), loaded.kind, facts["parameters"], facts["bytes"])


_MAX_UNCACHED_TOKENS = 128
"""Limit of max_tokens without KV cache, where the cost grows quadratically."""


def _check_uncached(arguments: JsonDict) -> None:
    is_uncached = arguments.get("show_cache") or not arguments.get("use_cache", True)
    if is_uncached and arguments.get("max_tokens", 0) > _MAX_UNCACHED_TOKENS:
        raise InvalidInput(f"Without KV cache, max_tokens is at most {_MAX_UNCACHED_TOKENS}.", hint="Lower max_tokens.")


add_command_route(router, "/tokenize", tokenize, changes={"text": Text})
add_command_route(
    router, "/generate", generate, options=GenerateSampling, hide=("logit_bias",), prepare=_check_uncached,
    changes={
        "prompt": Texts, "n": Le(16), "max_tokens": Le(1024), "logprobs": Le(100), "seed": Seed,
        "stop": Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=16)],
    },
)  # fmt: skip
add_command_route(
    router, "/translate", translate, hide=("gold",),
    changes={
        "text": Texts, "num_beams": Le(64), "n": Le(64), "max_tokens": Le(1024), "length_penalty": _LengthPenalty,
    },
)  # fmt: skip
add_command_route(
    router, "/beams", beams,
    changes={"text": Text, "num_beams": Le(16), "max_tokens": Le(256), "length_penalty": _LengthPenalty},
)  # fmt: skip
add_command_route(router, "/embed", embed, changes={"texts": Texts})
add_command_route(router, "/classify", classify, changes={"texts": Texts})
_Index = Annotated[int, Field(ge=0, le=1000)] | None
add_command_route(
    router, "/align", align, changes={"text": Text, "target": Text | None, "layer": _Index, "head": _Index}
)
