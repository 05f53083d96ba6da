"""Inspection routes: look with all its views, trace, why."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.errors import InvalidInput
from peasy.looking.edit import Cut, Edit, Even, Off, Patch
from peasy.studio.block import MEDIA, pack_block
from peasy.studio.reply import Asked, Name, Strict, Text, reply
from peasy.workbench.heads import split_sentences
from peasy.workbench.load import LoadedModel
from peasy.workbench.looked import LookResult
from peasy.workbench.result import Result

router = APIRouter(prefix="/api")

Word = int | Annotated[str, Field(max_length=1000)]
Places = Annotated[list[Annotated[int, Field(ge=0, le=10_000)]], Field(min_length=1, max_length=1000)]
View = Literal["look", "brief", "heads", "lens", "align", "work", "rank", "effect"]

EDITS = {"off": Off, "cut": Cut, "even": Even, "patch": Patch}


class Change(Strict):
    """One intervention: its kind, and the fields that it has in Python (`peasy.off(layer=2, head=3)`)."""

    kind: Literal["off", "cut", "even", "patch"]
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    part: str | None = None
    stack: str | None = None
    query: Word | None = None
    key: Word | None = None
    text: Text | None = None
    step: str | None = None
    rows: list[Word] | None = None

    def edit(self) -> Edit:
        """Return the intervention itself."""
        fields = self.model_dump(exclude_none=True, exclude={"kind"})
        if "rows" in fields:
            fields["rows"] = tuple(fields["rows"])
        try:
            intervention: Edit = EDITS[self.kind](**fields)
        except TypeError:
            given = ", ".join(fields) or "no fields"
            raise InvalidInput(f'Intervention "{self.kind}" does not accept: {given}.') from None
        return intervention


class Look(Asked):
    """Text to run through a model, and the view of its attention.

    `view`: "look" (all captured steps), "brief" (strongest links), "heads" (the keys that `query` attends to), "lens"
    (logit lens), "align", "work" (one head step by step, given by `layers` and `heads`), "rank" (scores of all heads,
    sorted by `by`), "effect" (what the intervention `edit` changes).
    """

    model: Name
    text: Text
    target: Text | None = None
    layers: Places | None = None
    heads: Places | None = None
    rows: list[Word] | None = None
    steps: list[str] = Field(["weights"], max_length=20)
    edit: list[Change] = Field([], max_length=64)
    overview: Literal["mean", "max"] | None = None
    tile: int | None = Field(None, ge=1, le=100_000)
    scaled: bool = False
    view: View = "look"
    query: Word | None = None
    top: int = Field(5, ge=1, le=100)
    by: str = "sharpness"
    words: bool = False
    block: bool = Field(False, description="Return the captured arrays as one binary payload instead.")


@router.post("/look")
async def post_look(request: Request, asked: Look) -> Response:
    """Return the attention of a model on a text."""

    def work() -> Result:
        with request.app.state.registry.use(asked.model) as loaded:
            return _seen(loaded, asked)

    def pack() -> Response:
        result = work()
        if not isinstance(result, LookResult):
            raise InvalidInput("block needs captured arrays.", hint='Leave out view and overview, or "block".')
        return Response(pack_block(result.look), media_type=MEDIA)

    return await request.app.state.worker_pool.run(pack) if asked.block else await reply(request, "look", asked, work)


def _seen(loaded: LoadedModel, asked: Look) -> Result:
    if asked.view == "rank":
        return loaded.heads(split_sentences(asked.text), by=asked.by)
    interventions = [item.edit() for item in asked.edit]
    selection = {key: getattr(asked, key) for key in ("layers", "heads", "rows", "scaled")}
    if asked.overview is not None:
        return loaded.look(
            asked.text, asked.target, overview=asked.overview, tile=asked.tile, edit=interventions, **selection
        )
    applied = [] if asked.view == "effect" else interventions
    result = loaded.look(asked.text, asked.target, steps=asked.steps, edit=applied, **selection)
    result.words = asked.words
    return _viewed(loaded, result, asked, interventions, selection)


def _viewed(loaded: LoadedModel, found: LookResult, asked: Look, edits: list[Edit], plain: dict[str, Any]) -> Result:
    match asked.view:
        case "brief":
            return found.brief(asked.top)
        case "heads":
            if asked.query is None:
                raise InvalidInput("The view heads needs a query.", hint="Give a word or the position of a token.")
            return found.heads(asked.query, asked.top)
        case "lens":
            return found.lens(asked.rows, best=asked.top)
        case "align":
            return found.alignment()
        case "work":
            if not asked.layers or not asked.heads:
                raise InvalidInput("The view work needs a head.", hint="Give one layer and one head.")
            return found.work(asked.layers[0], asked.heads[0], asked.query)
        case "effect":
            return found.against(loaded.look(found.text, found.answer, edit=edits, steps=asked.steps, **plain))
    return found


class Trace(Asked):
    """Prompt and sampling parameters; the attention of every generated token is kept."""

    model: Name
    text: Text
    beam: int | None = Field(None, ge=1, le=32)
    max_tokens: int = Field(20, ge=1, le=512)
    layers: Places | None = None
    heads: Places | None = None
    top: int | None = Field(8, ge=1, le=1000)
    temperature: float = Field(0.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, ge=0, le=1)
    seed: int = Field(0, ge=0, lt=2**53)
    edit: list[Change] = Field([], max_length=64)


@router.post("/trace")
async def post_trace(request: Request, asked: Trace) -> Response:
    """Generate with the candidates and attention of every token."""

    def work() -> Result:
        arguments = asked.given() | {"edit": [item.edit() for item in asked.edit]}
        with request.app.state.registry.use(asked.model) as loaded:
            return loaded.trace(**arguments)

    return await reply(request, "trace", asked, work)


class Why(Asked):
    """Two sentences to compare."""

    model: Name
    first: Text
    second: Text


@router.post("/why")
async def post_why(request: Request, asked: Why) -> Response:
    """Explain the similarity of two sentences: their cosine as a sum over word pairs."""

    def work() -> Result:
        with request.app.state.registry.use(asked.model) as loaded:
            return loaded.why(asked.first, asked.second)

    return await reply(request, "why", asked, work)
