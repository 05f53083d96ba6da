"""Inspection routes: look with all its views, trace."""

import json
import struct
from typing import Annotated, Literal

import numpy as np
from annotated_types import Le
from fastapi import APIRouter, Response
from pydantic import AfterValidator, Field

from peasy.commands.forward_pass import forward_pass
from peasy.commands.look_result import LookResult
from peasy.commands.look_view import look_view
from peasy.commands.result import Result
from peasy.commands.trace import trace
from peasy.errors import InvalidInput
from peasy.generation.sampling_params import SamplingParams
from peasy.inspection import edit
from peasy.inspection.edit import Edit, Where
from peasy.inspection.results import AttentionRecord
from peasy.parameters import parameter_names
from peasy.render.json import to_plain
from peasy.server.derive import add_command_route
from peasy.server.responses import CommandBody, Seed, Strict, Text, make_response

router = APIRouter(prefix="/api")

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
    if not body.binary:
        return make_response(command, body, result)
    if not isinstance(result, LookResult) or result.overviews:
        raise InvalidInput("binary needs captured arrays.", hint='Leave out view and overview, or "binary".')
    return Response(_pack_arrays(result), media_type=ARRAYS_MEDIA_TYPE)


def _pack_arrays(record: AttentionRecord) -> bytes:
    """Pack all captures into one binary payload: a JSON header followed by raw float32 data.

    The first four bytes are the header's length, little-endian; the header lists `arrays`, each with its module path,
    step, heads, rows, shape and the offset of its data from the end of the header.
    """
    entries: list[dict[str, object]] = []
    chunks: list[bytes] = []
    offset = 0
    for capture in record.captures:
        array = np.ascontiguousarray(capture.array, dtype="<f4")
        where = {"step": capture.step, "heads": capture.heads, "rows": capture.rows}
        entries.append({**capture.path._asdict(), **where, "shape": array.shape, "dtype": "float32", "offset": offset})
        chunks.append(array.tobytes())
        offset += array.nbytes
    fields: dict[str, object] = {"model": record.model, "tokens": record.tokens.pieces, "arrays": entries}
    if record.target is not None:
        fields["target"] = record.target.pieces
    header = json.dumps(to_plain(fields), ensure_ascii=False).encode()
    return struct.pack("<I", len(header)) + header + b"".join(chunks)


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
