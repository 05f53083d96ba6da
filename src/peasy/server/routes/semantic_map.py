"""Routes of the Meaning page: map of texts, word vectors before and after training, similarity by word pairs."""

from typing import Annotated

from annotated_types import Ge, Le
from fastapi import APIRouter
from pydantic import Field

from peasy.commands.semantic_map import MAX_POINTS, map_texts, map_words, similarity_by_words
from peasy.server.derive import add_command_route
from peasy.server.responses import Text

router = APIRouter(prefix="/api")

_Sentences = Annotated[list[Annotated[str, Field(max_length=5_000)]], Field(max_length=MAX_POINTS)]
_Words = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=MAX_POINTS)]
_Seed = Annotated[int, Ge(0), Le(2**31)]

add_command_route(
    router, "/meaning", map_texts,
    changes={"documents": Annotated[list[_Sentences], Field(min_length=1, max_length=100)], "seed": _Seed},
)  # fmt: skip
add_command_route(router, "/words", map_words, changes={"words": _Words, "seed": _Seed | None})
add_command_route(router, "/why", similarity_by_words, changes={"first": Text, "second": Text})
