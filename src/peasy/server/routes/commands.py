"""Routes of commands, derived from their signatures: a body has the parameters of its command, with a server's bounds.

Nothing that a client sends is opened as a path; what would be too expensive for a server is refused.
"""

import json
import struct
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le
from fastapi import APIRouter, Response
from pydantic import AfterValidator, AliasChoices, Field
from starlette.datastructures import State

from peasy.commands.align import align
from peasy.commands.beams import beams
from peasy.commands.check import check
from peasy.commands.classify import classify
from peasy.commands.data import data
from peasy.commands.embed import embed
from peasy.commands.examples import examples
from peasy.commands.exercise import exercise
from peasy.commands.explain import explain
from peasy.commands.forward_pass import forward_pass
from peasy.commands.generate import GenerateSampling, generate
from peasy.commands.look_result import LookResult
from peasy.commands.look_view import look_view
from peasy.commands.models import ModelEntry, ModelResult, ModelsResult, models, read_card
from peasy.commands.result import Result
from peasy.commands.runs import Run, runs
from peasy.commands.semantic_map import MAX_POINTS, map_texts, map_words, similarity_by_words
from peasy.commands.tokenize import tokenize
from peasy.commands.trace import trace
from peasy.commands.translate import translate
from peasy.config import JsonDict, load, parse_toml
from peasy.datasets import BUILT_IN
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.experiments.experiment import experiment
from peasy.experiments.why_root_dk import MAX_D_K, scale
from peasy.generation.sampling_params import SamplingParams
from peasy.inspection import edit
from peasy.inspection.edit import Edit, Where
from peasy.parameters import parameter_names
from peasy.render.json import to_plain
from peasy.server.derive import add_command_route, command_route
from peasy.server.model_registry import ModelRegistry
from peasy.server.responses import CommandBody, Name, Seed, ServerResult, Strict, Text, make_response
from peasy.views.document import Table
from peasy.worked import Example, example_names, read_example
from peasy.worked.example import sentence_example, split_words
from peasy.worked.label import token_label
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
    router, "/explain", explain, prepare=_prepare_explain, hide=("normalize", "model", "layer", "head", "stack"),
    changes={
        "source": str | JsonDict, "cell": str | list[int | str] | None, "decimals": Annotated[int, Ge(0), Le(15)],
        "normalise": Annotated[str | None, Field(validation_alias=AliasChoices("normalise", "normalize"))],
        "scoring": str | None, "heads": Annotated[int, Ge(1), Le(64)] | None,
    },
)  # fmt: skip


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
        hint = f"At most {_MAX_GIVEN:,} numbers, and {_MAX_SIZE} rows or columns, are allowed."
        raise InvalidInput("The matrices of the example are too large.", hint=hint)
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


@command_route(router, "/glossary")
def post_glossary(state: State) -> Result:
    """List the terms of the field with their meanings."""
    groups = load(_GLOSSARY)["group"]
    rows = tuple((term["term"], term["means"]) for group in groups for term in group["terms"])
    return ServerResult("Glossary", {"groups": groups}, Table(("term", "meaning"), rows))


@command_route(router, "/textbook")
def post_textbook(state: State) -> Result:
    """List the chapters of the textbook on the home page, and texts of pages: leads and first inputs."""
    book = load(_TEXTBOOK)
    rows = tuple((chapter["title"], chapter["text"]) for chapter in book["chapters"])
    return ServerResult("Textbook", book, Table(("chapter", "text"), rows))


_Sentences = Annotated[list[Annotated[str, Field(max_length=5_000)]], Field(max_length=MAX_POINTS)]
_Words = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=MAX_POINTS)]
_Documents = Annotated[list[_Sentences], Field(min_length=1, max_length=100)]

add_command_route(router, "/exercise", exercise, changes={"seed": Seed, "topic": str})
add_command_route(router, "/examples", examples)
add_command_route(router, "/scale", scale, changes={"d_k": Annotated[int, Ge(1), Le(MAX_D_K)], "seed": Seed})
add_command_route(router, "/meaning", map_texts, changes={"documents": _Documents, "seed": Seed})
add_command_route(router, "/words", map_words, changes={"words": _Words, "seed": Seed | None})
add_command_route(router, "/why", similarity_by_words, changes={"first": Text, "second": Text})


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
_ALIGNED = {"text": Text, "target": Text | None, "layer": _Index, "head": _Index}
add_command_route(router, "/align", align, changes=_ALIGNED)


@command_route(router, "/data")
def post_data(state: State, source: Name | None = None, seed: Seed = 0) -> Result:
    """List the data sets or describe one; built-in ones only, never a path."""
    return data() if source is None else data(check_built_in(source), seed=seed)


def check_built_in(name: str) -> str:
    """Return the name of a built-in data set with its options (`locales:fr`), or raise."""
    if name.partition(":")[0] not in BUILT_IN:
        hint = did_you_mean(name, BUILT_IN) or f"Available: {', '.join(BUILT_IN)}."
        raise NotFound(f'There is no data set "{name[:100]}".', hint=hint)
    return name


_NAME = {"name": Name | None, "seed": Seed}
add_command_route(router, "/experiment", experiment, hide=("store", "seeds"), changes=_NAME)


@command_route(router, "/runs")
def post_runs(state: State, name: Name | None = None) -> Result:
    """List training runs, or show one with its curves and samples."""
    return runs() if name is None else find_run(name)


def find_run(name: str) -> Run:
    """Return a run by name, never by path, or raise."""
    known = {run.name: run for run in runs().runs}
    if name not in known:
        raise NotFound(f'No run "{name[:100]}".', hint=did_you_mean(name, known))
    return known[name]


ARRAYS_MEDIA_TYPE = "application/vnd.peasy.arrays"

TokenRef = int | Annotated[str, Field(max_length=1000)]
Indices = Annotated[list[Annotated[int, Field(ge=0, le=10_000)]], Field(min_length=1, max_length=1000)]


class EditBody(Strict):
    """One edit: its kind, and the arguments that it has in Python (`peasy.edit.zero(layer=2, head=3)`)."""

    kind: Literal["zero", "mean", "resample", "patch", "steer", "scale", "uniform", "cut"]
    layer: int | None = None
    head: int | None = None
    step: str | None = None
    positions: Annotated[list[TokenRef], Field(max_length=1000)] | None = None
    part: str | None = None
    stack: str | None = None
    query: TokenRef | None = None
    key: TokenRef | None = None
    source: Text | None = None
    data: Annotated[list[Text], Field(min_length=1, max_length=64)] | None = None
    by_position: bool | None = None
    seed: int | None = None
    vector: Annotated[list[float], Field(max_length=100_000)] | None = None
    factor: float | None = None

    def to_edit(self) -> Edit:
        """Return the edit itself."""
        fields = self.model_dump(exclude_none=True, exclude={"kind"})
        make = getattr(edit, self.kind)
        allowed = {*parameter_names(make), *(Where.__annotations__ if self.kind not in ("uniform", "cut") else ())}
        try:
            if unknown := fields.keys() - allowed:
                raise TypeError(unknown)
            made: Edit = make(**fields)
        except TypeError:
            given = ", ".join(fields) or "no fields"
            raise InvalidInput(f'The edit "{self.kind}" does not accept: {given}.') from None
        return made


EditField = Annotated[EditBody, AfterValidator(EditBody.to_edit)]
"""Field of a body that holds the edit itself."""


class _BinaryBody(CommandBody):
    """Body of a command whose arrays can be sent as binary data."""

    binary: bool = Field(False, description="Return the captured arrays as one binary payload instead.")


_EDIT = {
    "text": Text,
    "layers": Indices | None,
    "heads": Indices | None,
    "edit": Annotated[list[EditField], Field(max_length=64)],
}


def _look_response(command: str, body: _BinaryBody, result: Result) -> Response:
    """Return a result as other commands do, or all its captures as one binary payload: a header, then float32 data.

    The first four bytes are the length of the header, little-endian; the header is JSON and lists `arrays`, each with
    its module path, step, heads, rows, shape and the offset of its data from the end of the header.
    """
    if not body.binary:
        return make_response(command, body, result)
    if not isinstance(result, LookResult) or result.overviews:
        raise InvalidInput("binary needs captured arrays.", hint='Leave out view and overview, or "binary".')
    entries, arrays, offset = list[JsonDict](), list[bytes](), 0
    for capture in result.captures:
        array = np.ascontiguousarray(capture.array, dtype="<f4")
        where = {"step": capture.step, "heads": capture.heads, "rows": capture.rows}
        entries.append(capture.path._asdict() | where | {"shape": array.shape, "dtype": "float32", "offset": offset})
        arrays.append(array.tobytes())
        offset += array.nbytes
    fields: JsonDict = {"model": result.model, "tokens": result.tokens.pieces, "arrays": entries}
    fields |= {} if result.target is None else {"target": result.target.pieces}
    header = json.dumps(to_plain(fields), ensure_ascii=False).encode()
    return Response(b"".join([struct.pack("<I", len(header)), header, *arrays]), media_type=ARRAYS_MEDIA_TYPE)


add_command_route(
    router, "/forward-pass", forward_pass,
    changes={
        "text": Text, "target": Text | None, "edit": _EDIT["edit"],
        "head_numbers": Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=64)] | None,
    },
)  # fmt: skip

add_command_route(
    router, "/look", look_view, base=_BinaryBody, hide=("gold", "words", "data", "max_memory", "seed"),
    respond=_look_response,
    changes=_EDIT | {
        "target": Text | None,
        "queries": list[TokenRef] | None,
        "steps": Annotated[list[str], Field(max_length=20)],
        "query": TokenRef | None,
        "tile_size": Annotated[int, Field(ge=1, le=100_000)] | None,
        "top": Annotated[int, Field(ge=1, le=100)],
    },
)  # fmt: skip

add_command_route(
    router, "/trace", trace, options=SamplingParams,
    hide=(
        "length_penalty", "early_stopping", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "stop", "logprobs", "logit_bias",
    ),
    changes=_EDIT | {
        "num_beams": Le(32), "top": Le(1000), "max_tokens": Le(512), "seed": Seed,
    },
)  # fmt: skip
