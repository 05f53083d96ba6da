"""Routes for worked examples (explain, check, exercise, examples), scale, meaning (meaning, words, why), textbook."""

import json
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from fastapi import APIRouter
from pydantic import AliasChoices, Field
from starlette.datastructures import State

from peasy.commands.check import check
from peasy.commands.examples import examples
from peasy.commands.exercise import exercise
from peasy.commands.explain import explain
from peasy.commands.result import Result
from peasy.commands.semantic_map import MAX_POINTS, map_texts, map_words, similarity_by_words
from peasy.config import JsonDict, parse_toml
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.experiments.why_root_dk import MAX_D_K, scale
from peasy.server.derive import add_command_route, command_route
from peasy.server.responses import Seed, Text
from peasy.views.document import Document, Table
from peasy.worked import Example, example_names, read_example
from peasy.worked.label import token_label
from peasy.worked.sentence import sentence_example, split_words
from peasy.worked.tables.notes import Notes, as_written_names, read_text

router = APIRouter(prefix="/api")

_GLOSSARY, _TEXTBOOK = (Path(__file__).parent.parent / f"{name}.toml" for name in ("glossary", "textbook"))

_MAX_WORDS, _MAX_CHARACTERS = 256, 4096
_MAX_LINES, _MAX_GIVEN, _MAX_SIZE = 100, 20_000, 512
"""Limits of an example that is computed in full: words, characters, lines of steps, given numbers, their rows."""


def _prepare_explain(arguments: JsonDict) -> None:
    if "source" in arguments:
        arguments["source"] = _resolve_example(arguments["source"])
    if isinstance(arguments.get("cell"), list):
        arguments["cell"] = tuple(arguments["cell"])


add_command_route(
    router,
    "/explain",
    explain,
    prepare=_prepare_explain,
    hide=("normalize", "model", "layer", "head", "stack"),
    changes={
        "source": str | JsonDict,
        "cell": str | list[int | str] | None,
        "decimals": Annotated[int, Ge(0), Le(15)],
        "scoring": str | None,
        "normalise": Annotated[str | None, Field(validation_alias=AliasChoices("normalise", "normalize"))],
        "heads": Annotated[int, Ge(1), Le(64)] | None,
    },
)


def _resolve_example(source: str | JsonDict) -> str | Example:
    """Return a library name or an example, never a file; the size is bounded since each step is quadratic in words."""
    if isinstance(source, str) and source in example_names():
        return source
    if isinstance(source, str) and len(source) > _MAX_CHARACTERS:
        message = f"The text has {len(source):,} characters."
        raise InvalidInput(message, hint=f"At most {_MAX_CHARACTERS:,} are allowed.")
    if isinstance(source, str) and len(split_words(source)) < 2:
        hint = did_you_mean(source, example_names())
        hint = hint or "Give a name of the library, or a sentence of at least two words."
        message = f'One word alone has nothing to attend to, and there is no example "{token_label(source)}".'
        raise NotFound(message, hint=hint)
    return _check_size(sentence_example(source) if isinstance(source, str) else read_example(source))


def _check_size(example: Example) -> Example:
    words = max(len(example.tokens), len(example.source_tokens or ()))
    if words > _MAX_WORDS:
        raise InvalidInput(f"The example has {words:,} words.", hint=f"At most {_MAX_WORDS} are allowed.")
    if len(example.steps) > _MAX_LINES:
        raise InvalidInput(f"The example has {len(example.steps):,} steps.", hint=f"At most {_MAX_LINES} are allowed.")
    sizes = [(len(rows), len(rows[0])) for rows in example.given_nodes.values()]
    if sum(rows * columns for rows, columns in sizes) > _MAX_GIVEN or max(map(max, sizes), default=0) > _MAX_SIZE:
        message = "The matrices of the example are too large."
        raise InvalidInput(
            message, hint=f"At most {_MAX_GIVEN:,} numbers, and {_MAX_SIZE} rows or columns, are allowed."
        )
    return example


@command_route(router, "/check")
def post_check(
    state: State,
    text: str | None = None,
    text_format: Literal["md", "txt", "tex", "csv", "tsv", "toml", "json"] = "md",
    example: JsonDict | None = None,
    name: str | None = None,
) -> Result:
    """Find the wrong cells in hand-worked tables.

    Args:
        text: Content of the file.
        text_format: Its format.
        example: An example instead of a file.
        name: Name of an example of the library that is checked as it was written.
    """
    if text is not None and text_format in ("toml", "json"):
        example = _parse(text, text_format)
    if example is not None:
        return check(_check_size(read_example(example)))
    if text is not None:
        notes = read_text(text, f".{text_format}")
        for part in notes.parts if isinstance(notes, Notes) else ():
            _check_size(part)
        return check(notes)
    if name not in as_written_names():
        raise InvalidInput("There is nothing to check.", hint="Give a text, an example, or a name of the library.")
    return check(name)


def _parse(text: str, text_format: str) -> JsonDict:
    try:
        data = parse_toml(text) if text_format == "toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The text is not valid {text_format.upper()}: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput("The text contains no example.", hint="An example has tokens and tables.")
    return data


class GlossaryResult(Result, repr=True):
    """Result of `glossary`: groups of terms of the field, each with its meaning and the file that implements it."""

    groups: tuple[JsonDict, ...]

    def document(self) -> Document:
        """One row for each term."""
        rows = tuple((term["term"], term["means"]) for group in self.groups for term in group["terms"])
        return Document("Glossary", (Table(("term", "meaning"), rows),))


@command_route(router, "/glossary")
def post_glossary(state: State) -> Result:
    """List the terms of the field with their meanings."""
    return GlossaryResult(tuple(parse_toml(_GLOSSARY.read_text(encoding="utf-8"))["group"]))


class TextbookResult(Result, repr=True):
    """Result of `textbook`: the chapters beside the picture of the home page."""

    chapters: tuple[JsonDict, ...]

    def document(self) -> Document:
        """One row for each chapter."""
        rows = tuple((chapter["title"], chapter["text"]) for chapter in self.chapters)
        return Document("Textbook", (Table(("chapter", "text"), rows),))


@command_route(router, "/textbook")
def post_textbook(state: State) -> Result:
    """List the chapters of the textbook on the home page."""
    return TextbookResult(tuple(parse_toml(_TEXTBOOK.read_text(encoding="utf-8"))["chapter"]))


_Sentences = Annotated[list[Annotated[str, Field(max_length=5_000)]], Field(max_length=MAX_POINTS)]
_Words = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=MAX_POINTS)]
_Documents = Annotated[list[_Sentences], Field(min_length=1, max_length=100)]

add_command_route(router, "/exercise", exercise, changes={"seed": Seed, "topic": str})
add_command_route(router, "/examples", examples)
add_command_route(router, "/scale", scale, changes={"d_k": Annotated[int, Ge(1), Le(MAX_D_K)], "seed": Seed})
add_command_route(router, "/meaning", map_texts, changes={"documents": _Documents, "seed": Seed})
add_command_route(router, "/words", map_words, changes={"words": _Words, "seed": Seed | None})
add_command_route(router, "/why", similarity_by_words, changes={"first": Text, "second": Text})
