"""Inspection routes: look with all its views, trace, why."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.commands.heads import split_sentences
from peasy.commands.load import LoadedModel
from peasy.commands.look_result import LookResult
from peasy.commands.result import Result
from peasy.errors import InvalidInput
from peasy.inspection.interventions import AblateHead, Cut, InterventionSpec, Patch, UniformAttention
from peasy.server.array_payload import MEDIA_TYPE, pack_arrays
from peasy.server.responses import CommandBody, Name, Strict, Text, respond

router = APIRouter(prefix="/api")

TokenRef = int | Annotated[str, Field(max_length=1000)]
Indices = Annotated[list[Annotated[int, Field(ge=0, le=10_000)]], Field(min_length=1, max_length=1000)]
LookView = Literal["look", "summary", "heads", "lens", "align", "steps", "rank", "effect"]

INTERVENTIONS = {"off": AblateHead, "cut": Cut, "even": UniformAttention, "patch": Patch}


class InterventionBody(Strict):
    """One intervention: its kind, and the fields that it has in Python (`peasy.off(layer=2, head=3)`)."""

    kind: Literal["off", "cut", "even", "patch"]
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    part: str | None = None
    stack: str | None = None
    query: TokenRef | None = None
    key: TokenRef | None = None
    text: Text | None = None
    step: str | None = None
    rows: list[TokenRef] | None = None

    def to_intervention(self) -> InterventionSpec:
        """Return the intervention itself."""
        fields = self.model_dump(exclude_none=True, exclude={"kind"})
        if "rows" in fields:
            fields["rows"] = tuple(fields["rows"])
        try:
            intervention: InterventionSpec = INTERVENTIONS[self.kind](**fields)
        except TypeError:
            given = ", ".join(fields) or "no fields"
            raise InvalidInput(f'Intervention "{self.kind}" does not accept: {given}.') from None
        return intervention


class LookBody(CommandBody):
    """Text to run through a model, and the view of its attention.

    `view`: "look" (all captured steps), "summary" (strongest links), "heads" (the keys that `query` attends to), "lens"
    (logit lens), "align", "steps" (one head step by step, given by `layers` and `heads`), "rank" (scores of all heads,
    sorted by `by`), "effect" (what the intervention `edit` changes).
    """

    model: Name
    text: Text
    target: Text | None = None
    layers: Indices | None = None
    heads: Indices | None = None
    queries: list[TokenRef] | None = None
    steps: list[str] = Field(["weights"], max_length=20)
    edit: list[InterventionBody] = Field([], max_length=64)
    overview: Literal["mean", "max"] | None = None
    tile_size: int | None = Field(None, ge=1, le=100_000)
    value_weighted: bool = False
    view: LookView = "look"
    query: TokenRef | None = None
    top: int = Field(5, ge=1, le=100)
    by: str = "sharpness"
    merge_words: bool = False
    binary: bool = Field(False, description="Return the captured arrays as one binary payload instead.")


@router.post("/look")
async def post_look(request: Request, body: LookBody) -> Response:
    """Return the attention of a model on a text."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return _run_look(loaded, body)

    def pack() -> Response:
        result = work()
        if not isinstance(result, LookResult):
            raise InvalidInput("binary needs captured arrays.", hint='Leave out view and overview, or "binary".')
        return Response(pack_arrays(result.record), media_type=MEDIA_TYPE)

    return await request.app.state.worker_pool.run(pack) if body.binary else await respond(request, "look", body, work)


def _run_look(loaded: LoadedModel, body: LookBody) -> Result:
    if body.view == "rank":
        return loaded.heads(split_sentences(body.text), by=body.by)
    interventions = [item.to_intervention() for item in body.edit]
    selection = {key: getattr(body, key) for key in ("layers", "heads", "queries", "value_weighted")}
    if body.overview is not None:
        return loaded.look(
            body.text, body.target, overview=body.overview, tile_size=body.tile_size, edit=interventions, **selection
        )
    applied = [] if body.view == "effect" else interventions
    result = loaded.look(body.text, body.target, steps=body.steps, edit=applied, **selection)
    result.merge_words = body.merge_words
    return _select_view(loaded, result, body, interventions, selection)


def _select_view(
    loaded: LoadedModel,
    result: LookResult,
    body: LookBody,
    interventions: list[InterventionSpec],
    selection: dict[str, Any],
) -> Result:
    match body.view:
        case "summary":
            return result.summary(body.top)
        case "heads":
            if body.query is None:
                raise InvalidInput("The view heads needs a query.", hint="Give a word or the position of a token.")
            return result.heads(body.query, body.top)
        case "lens":
            return result.logit_lens(body.queries, top=body.top)
        case "align":
            return result.alignment()
        case "steps":
            if not body.layers or not body.heads:
                raise InvalidInput("The view steps needs a head.", hint="Give one layer and one head.")
            return result.steps(body.layers[0], body.heads[0], body.query)
        case "effect":
            return result.compare(
                loaded.look(result.text, result.target_text, edit=interventions, steps=body.steps, **selection)
            )
    return result


class TraceBody(CommandBody):
    """Prompt and sampling parameters; the attention of every generated token is kept."""

    model: Name
    text: Text
    num_beams: int | None = Field(None, ge=1, le=32)
    max_tokens: int = Field(20, ge=1, le=512)
    layers: Indices | None = None
    heads: Indices | None = None
    top: int | None = Field(8, ge=1, le=1000)
    temperature: float = Field(0.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, ge=0, le=1)
    seed: int = Field(0, ge=0, lt=2**53)
    edit: list[InterventionBody] = Field([], max_length=64)


@router.post("/trace")
async def post_trace(request: Request, body: TraceBody) -> Response:
    """Generate with the candidates and attention of every token."""

    def work() -> Result:
        arguments = body.arguments() | {"edit": [item.to_intervention() for item in body.edit]}
        with request.app.state.registry.use(body.model) as loaded:
            return loaded.trace(**arguments)

    return await respond(request, "trace", body, work)


class WhyBody(CommandBody):
    """Two sentences to compare."""

    model: Name
    first: Text
    second: Text


@router.post("/why")
async def post_why(request: Request, body: WhyBody) -> Response:
    """Explain the similarity of two sentences: their cosine as a sum over word pairs."""

    def work() -> Result:
        with request.app.state.registry.use(body.model) as loaded:
            return loaded.explain_similarity(body.first, body.second)

    return await respond(request, "why", body, work)
