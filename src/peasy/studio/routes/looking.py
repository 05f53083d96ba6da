"""Looking into models: look with all its views, trace, why."""

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
    """One edit: its kind, and the fields that it has in Python (`peasy.off(layer=2, head=3)`)."""

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
        """The edit itself."""
        given = self.model_dump(exclude_none=True, exclude={"kind"})
        if "rows" in given:
            given["rows"] = tuple(given["rows"])
        try:
            made: Edit = EDITS[self.kind](**given)
        except TypeError:
            raise InvalidInput(f"An edit {self.kind} cannot have {', '.join(given) or 'no fields'}.") from None
        return made


class Look(Asked):
    """A text through a model, and what to show of it.

    `view`: "look" (all that was captured), "brief" (strongest links), "heads" (what `query` looked at), "lens",
    "align", "work" (one head step by step: its `layers` and `heads`), "rank" (what every head does, by `by`), "effect"
    (what the `edit` changes).
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
    block: bool = Field(False, description="Give the captured arrays as one block of numbers instead.")


@router.post("/look")
async def post_look(request: Request, asked: Look) -> Response:
    """Where the heads of a model looked."""

    def work() -> Result:
        with request.app.state.house.use(asked.model) as loaded:
            return _seen(loaded, asked)

    def pack() -> Response:
        found = work()
        if not isinstance(found, LookResult):
            raise InvalidInput("A block holds what was captured.", hint='Leave out view and overview, or "block".')
        return Response(pack_block(found.look), media_type=MEDIA)

    return await request.app.state.desk.run(pack) if asked.block else await reply(request, "look", asked, work)


def _seen(loaded: LoadedModel, asked: Look) -> Result:
    if asked.view == "rank":
        return loaded.heads(split_sentences(asked.text), by=asked.by)
    edits = [each.edit() for each in asked.edit]
    plain = {key: getattr(asked, key) for key in ("layers", "heads", "rows", "scaled")}
    if asked.overview is not None:
        return loaded.look(asked.text, asked.target, overview=asked.overview, tile=asked.tile, edit=edits, **plain)
    before = [] if asked.view == "effect" else edits
    found = loaded.look(asked.text, asked.target, steps=asked.steps, edit=before, **plain)
    found.words = asked.words
    return _viewed(loaded, found, asked, edits, plain)


def _viewed(loaded: LoadedModel, found: Any, asked: Look, edits: list[Edit], plain: dict[str, Any]) -> Result:
    match asked.view:
        case "brief":
            return found.brief(asked.top)
        case "heads":
            if asked.query is None:
                raise InvalidInput("Whose heads?", hint="Give a query: a word or the place of a token.")
            return found.heads(asked.query, asked.top)
        case "lens":
            return found.lens(asked.rows, best=asked.top)
        case "align":
            return found.alignment()
        case "work":
            if not asked.layers or not asked.heads:
                raise InvalidInput("Which head?", hint="Give one of layers and one of heads.")
            return found.work(asked.layers[0], asked.heads[0], asked.query)
        case "effect":
            return found.against(loaded.look(found.text, found.answer, edit=edits, steps=asked.steps, **plain))
    return found


class Trace(Asked):
    """A text to write on from, keeping what every token looked at."""

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
    """How a text came about: candidates and attention of every token."""

    def work() -> Result:
        how = asked.given() | {"edit": [each.edit() for each in asked.edit]}
        with request.app.state.house.use(asked.model) as loaded:
            return loaded.trace(**how)

    return await reply(request, "trace", asked, work)


class Why(Asked):
    """Two sentences to compare."""

    model: Name
    first: Text
    second: Text


@router.post("/why")
async def post_why(request: Request, asked: Why) -> Response:
    """Why two sentences are alike: their cosine in pairs of words that add up to it."""

    def work() -> Result:
        with request.app.state.house.use(asked.model) as loaded:
            return loaded.why(asked.first, asked.second)

    return await reply(request, "why", asked, work)
