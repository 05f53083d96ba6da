"""On paper: explain, check, exercise, examples. No model is needed."""

import json
import tomllib
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.studio.reply import Asked, reply
from peasy.workbench.check import check
from peasy.workbench.examples import examples
from peasy.workbench.exercise import exercise
from peasy.workbench.explain import explain
from peasy.workbench.result import Result
from peasy.worked import Example, example_names, read_example
from peasy.worked.label import visible
from peasy.worked.sentence import sentence_example, split_words
from peasy.worked.tables.notes import Notes, as_written_names, read_text

router = APIRouter(prefix="/api")

MOST_WORDS, MOST_LETTERS = 256, 4096
"""What is worked out in full, at the most."""


class Explain(Asked):
    """A worked example: a name of the library, a sentence, or an example as a table of its own."""

    what: str | dict[str, Any]
    query: int | str | None = None
    cell: str | list[int | str] | None = None
    symbolic: bool = False
    decimals: int = Field(4, ge=0, le=15)
    causal: bool | None = None
    scoring: str | None = None
    normalise: str | None = None
    heads: int | None = Field(None, ge=1, le=64)
    contributions: bool = False


@router.post("/explain")
async def post_explain(request: Request, asked: Explain) -> Response:
    """Every step of attention for an example or any sentence."""
    how = asked.given()
    how["what"] = _example(asked.what)
    if isinstance(how.get("cell"), list):
        how["cell"] = tuple(how["cell"])
    return await reply(request, "explain", asked, lambda: explain(**how))


def _example(what: str | dict[str, Any]) -> str | Example:
    """A name of the library, or words; never a file. Every step has a number for each pair of words: few are enough."""
    if isinstance(what, str) and what in example_names():
        return what
    if isinstance(what, str) and len(what) > MOST_LETTERS:
        raise InvalidInput(f"The text has {len(what):,} letters.", hint=f"At most {MOST_LETTERS:,} are worked.")
    if isinstance(what, str) and len(split_words(what)) < 2:
        hint = did_you_mean(what, example_names()) or "Give a name of the library, or a sentence of two words or more."
        raise NotFound(f'There is no example "{visible(what)}".', hint=hint)
    return _bounded(sentence_example(what) if isinstance(what, str) else read_example(what))


def _bounded(example: Example) -> Example:
    words = max(len(example.tokens), len(example.source_tokens or ()))
    if words > MOST_WORDS:
        raise InvalidInput(f"The example has {words:,} words.", hint=f"At most {MOST_WORDS} are worked on paper.")
    return example


class Check(Asked):
    """Hand-worked tables: `text` is what stands in the file, `kind` how it is written."""

    text: str | None = None
    kind: Literal["md", "txt", "tex", "csv", "tsv", "toml", "json"] = "md"
    example: dict[str, Any] | None = None
    name: str | None = None


@router.post("/check")
async def post_check(request: Request, asked: Check) -> Response:
    """Find the wrong cells in hand-worked tables."""

    def work() -> Result:
        notes = _notes(asked)
        for part in notes.parts if isinstance(notes, Notes) else ():
            _bounded(part)
        return check(notes)

    return await reply(request, "check", asked, work)


def _notes(asked: Check) -> Any:
    if asked.example is not None:
        return _bounded(read_example(asked.example))
    if asked.text is None:
        if asked.name not in as_written_names():
            raise InvalidInput("There is nothing to check.", hint="Give a text, an example, or a name of the library.")
        return asked.name
    if asked.kind in ("toml", "json"):
        return _bounded(read_example(_parsed(asked.text, asked.kind)))
    return read_text(asked.text, f".{asked.kind}")


def _parsed(text: str, kind: str) -> dict[str, Any]:
    try:
        found = tomllib.loads(text) if kind == "toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The text is not {kind.upper()}: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidInput("The text holds no example.", hint="An example has tokens and tables.")
    return found


class Exercise(Asked):
    """A worksheet; with `key` its answers are drawn too."""

    size: str = "3x2"
    seed: int = Field(5, ge=0, le=2**31)
    topic: str = "plain"
    decimals: int = Field(2, ge=0, le=15)
    key: bool = False


@router.post("/exercise")
async def post_exercise(request: Request, asked: Exercise) -> Response:
    """A worksheet with small numbers, and its answer key."""
    how = asked.given()
    key = how.pop("key", False)

    def work() -> Any:
        sheet = exercise(**how)
        return sheet.key() if key else sheet

    return await reply(request, "exercise", asked, work)


@router.post("/examples")
async def post_examples(request: Request, asked: Asked) -> Response:
    """What can be explained by name."""
    return await reply(request, "examples", asked, examples)
