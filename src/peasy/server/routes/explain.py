"""Routes for worked examples: explain, check, exercise, examples. They need no model."""

import json
import tomllib
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import AliasChoices, Field

from peasy.commands.check import check
from peasy.commands.examples import examples
from peasy.commands.exercise import exercise
from peasy.commands.explain import explain
from peasy.commands.result import Result
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.server.responses import CommandBody, respond
from peasy.worked import Example, example_names, read_example
from peasy.worked.label import token_label
from peasy.worked.sentence import sentence_example, split_words
from peasy.worked.tables.notes import Notes, as_written_names, read_text

router = APIRouter(prefix="/api")

MAX_WORDS, MAX_CHARACTERS = 256, 4096
"""Limits of an example that is computed in full."""


class ExplainBody(CommandBody):
    """Worked example: a name of the library, a sentence, or an example as a JSON object."""

    source: str | dict[str, Any]
    query: int | str | None = None
    cell: str | list[int | str] | None = None
    symbolic: bool = False
    decimals: int = Field(4, ge=0, le=15)
    causal: bool | None = None
    scoring: str | None = None
    normalise: str | None = Field(None, validation_alias=AliasChoices("normalise", "normalize"))
    heads: int | None = Field(None, ge=1, le=64)
    contributions: bool = False


@router.post("/explain")
async def post_explain(request: Request, body: ExplainBody) -> Response:
    """Compute every step of attention for an example or a sentence."""
    arguments = body.arguments()
    arguments["source"] = _resolve_example(body.source)
    if isinstance(arguments.get("cell"), list):
        arguments["cell"] = tuple(arguments["cell"])
    return await respond(request, "explain", body, lambda: explain(**arguments))


def _resolve_example(source: str | dict[str, Any]) -> str | Example:
    """Return a library name or an example, never a file; the size is bounded since each step is quadratic in words."""
    if isinstance(source, str) and source in example_names():
        return source
    if isinstance(source, str) and len(source) > MAX_CHARACTERS:
        raise InvalidInput(f"The text has {len(source):,} characters.", hint=f"At most {MAX_CHARACTERS:,} are allowed.")
    if isinstance(source, str) and len(split_words(source)) < 2:
        hint = did_you_mean(source, example_names())
        hint = hint or "Give a name of the library, or a sentence of at least two words."
        raise NotFound(f'There is no example "{token_label(source)}".', hint=hint)
    return _check_size(sentence_example(source) if isinstance(source, str) else read_example(source))


def _check_size(example: Example) -> Example:
    words = max(len(example.tokens), len(example.source_tokens or ()))
    if words > MAX_WORDS:
        raise InvalidInput(f"The example has {words:,} words.", hint=f"At most {MAX_WORDS} are allowed.")
    return example


class CheckBody(CommandBody):
    """Hand-worked tables: `text` is the content of the file, `text_format` its format."""

    text: str | None = None
    text_format: Literal["md", "txt", "tex", "csv", "tsv", "toml", "json"] = "md"
    example: dict[str, Any] | None = None
    name: str | None = None


@router.post("/check")
async def post_check(request: Request, body: CheckBody) -> Response:
    """Find the wrong cells in hand-worked tables."""

    def work() -> Result:
        notes = _read_notes(body)
        for part in notes.parts if isinstance(notes, Notes) else ():
            _check_size(part)
        return check(notes)

    return await respond(request, "check", body, work)


def _read_notes(body: CheckBody) -> Any:
    if body.example is not None:
        return _check_size(read_example(body.example))
    if body.text is None:
        if body.name not in as_written_names():
            raise InvalidInput("There is nothing to check.", hint="Give a text, an example, or a name of the library.")
        return body.name
    if body.text_format in ("toml", "json"):
        return _check_size(read_example(_parse(body.text, body.text_format)))
    return read_text(body.text, f".{body.text_format}")


def _parse(text: str, text_format: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(text) if text_format == "toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The text is not valid {text_format.upper()}: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput("The text contains no example.", hint="An example has tokens and tables.")
    return data


class ExerciseBody(CommandBody):
    """Settings of a worksheet; `answer_key` returns the solutions."""

    size: str = "3x2"
    seed: int = Field(5, ge=0, le=2**31)
    topic: str = "plain"
    decimals: int = Field(2, ge=0, le=15)
    answer_key: bool = False


@router.post("/exercise")
async def post_exercise(request: Request, body: ExerciseBody) -> Response:
    """Make a worksheet with small numbers, or its answer key."""
    arguments = body.arguments()
    answer_key = arguments.pop("answer_key", False)

    def work() -> Any:
        sheet = exercise(**arguments)
        return sheet.key() if answer_key else sheet

    return await respond(request, "exercise", body, work)


@router.post("/examples")
async def post_examples(request: Request, body: CommandBody) -> Response:
    """List the examples of the library."""
    return await respond(request, "examples", body, examples)
