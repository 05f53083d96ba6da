"""Training from the page: start, watch, stop, go on, compare. The work itself is a child process, one at a time."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import Field

from peasy.checkpoint.home import place_for
from peasy.errors import InvalidInput, NotFound, UsageError, did_you_mean
from peasy.studio import upload
from peasy.studio.reply import Asked, Name, reply
from peasy.studio.routes.learning import built_in_corpus
from peasy.studio.workshop import Workshop
from peasy.training.name import new_name
from peasy.views.document import Document, Paragraph
from peasy.workbench.film import scene
from peasy.workbench.result import Result
from peasy.workbench.runs import Run, metrics_since, runs

Kind = Literal["gpt", "encoder", "translator", "rnn", "cnn", "rnn-translator", "ngram", "words"]
Size = Literal["tiny", "small", "base"]
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,60}$")]


@asynccontextmanager
async def life(app: FastAPI) -> AsyncIterator[None]:
    """A workshop for as long as the server runs; what goes on at its end is saved."""
    workshop = app.state.workshop = Workshop()
    yield
    workshop.close()


router = APIRouter(prefix="/api", lifespan=life)


class Told(Result):
    """What the workshop says: the newest job, or that there was none."""

    def __init__(self, workshop: Workshop) -> None:
        self.job = None if workshop.job is None else workshop.job.data()

    def document(self) -> Document:
        """One sentence."""
        said = "Nothing goes on." if self.job is None else f"{self.job['about']}: {self.job['state']}."
        return Document("Work", (Paragraph(said),))

    def data(self) -> dict[str, Any]:
        """The job as plain data."""
        return {"job": self.job}


class Budget(Asked):
    """What is learned from, and for how long: a built-in corpus or an upload; minutes or steps."""

    data: Name | None = None
    upload: Annotated[str, Field(max_length=100)] | None = None
    preset: Size | None = None
    minutes: float | None = Field(None, gt=0, le=1440)
    steps: int | None = Field(None, ge=1, le=1_000_000)
    seed: int | None = Field(None, ge=0, le=2**31)
    run: RunName | None = None

    def source(self) -> list[str]:
        """The words that name the data; never a path of the caller's."""
        if (self.data is None) == (self.upload is None):
            raise UsageError("Training needs data: a built-in corpus or an uploaded text.", hint="See /api/data.")
        named = built_in_corpus(self.data) if self.data is not None else str(upload.place(self.upload or ""))
        return ["--data", named]

    def budget(self) -> list[str]:
        """The words that say how long, how large and by which chance."""
        if self.minutes is not None and self.steps is not None:
            raise UsageError("Give minutes or steps, not both.")
        said = {"--preset": self.preset, "--minutes": self.minutes, "--steps": self.steps, "--seed": self.seed}
        return [word for flag, value in said.items() if value is not None for word in (flag, str(value))]


class Train(Budget):
    """A run to begin; or with `resume` the run of that name, to go on with."""

    kind: Kind | None = None
    sentence: Annotated[str, Field(max_length=500)] | None = None
    prompts: list[Annotated[str, Field(min_length=1, max_length=500)]] = Field([], max_length=4)
    resume: bool = False


@router.post("/train")
async def post_train(request: Request, asked: Train) -> Response:
    """Begin a run, or go on with one; it is watched by /api/job and /api/metrics."""
    words, name = _going_on(asked) if asked.resume else _beginning(asked)
    workshop: Workshop = request.app.state.workshop

    def work() -> Result:
        workshop.start("train", [*words, "--run", name, "--json"], f"Training {name}", [name])
        return Told(workshop)

    return await reply(request, "train", asked, work)


def _beginning(asked: Train) -> tuple[list[str], str]:
    if asked.kind is None:
        raise UsageError("Train what?", hint="Give a kind: gpt, rnn, cnn, ngram, translator, encoder, words.")
    name = asked.run or new_name({run.name for run in runs().runs})
    if place_for(name).exists():
        raise InvalidInput(f"There is a run {name} already.", hint="Go on with it, or choose another name.")
    changes = {"sentence": asked.sentence or None, "prompts": asked.prompts or None}
    settings = [w for key, value in changes.items() if value for w in ("--set", f"{key}={json.dumps(value)}")]
    return [asked.kind, *asked.source(), *asked.budget(), *settings], name


def _going_on(asked: Train) -> tuple[list[str], str]:
    run = known_run(asked.run or "")
    if run.recipe()["trains"] == "ngram":
        raise InvalidInput("An n-gram model has counted all there is.", hint="Begin a new run.")
    return [run.recipe()["trains"], *asked.budget(), "--resume"], run.name


class Compare(Budget):
    """Several kinds on the same data with the same budget; each becomes a run NAME-KIND."""

    kinds: list[Kind] = Field(min_length=2, max_length=8)


@router.post("/compare")
async def post_compare(request: Request, asked: Compare) -> Response:
    """Compare kinds; watched by /api/job, the curves by /api/metrics of each run."""
    name = asked.run or new_name({run.name.rpartition("-")[0] for run in runs().runs})
    words = [*asked.kinds, *asked.source(), *asked.budget(), "--run", name, "--json"]
    made = [f"{name}-{kind}" for kind in asked.kinds]
    workshop: Workshop = request.app.state.workshop

    def work() -> Result:
        workshop.start("compare", words, f"Comparing {', '.join(asked.kinds)}", made)
        return Told(workshop)

    return await reply(request, "compare", asked, work)


@router.post("/job")
async def post_job(request: Request, asked: Asked) -> Response:
    """What goes on in the workshop, or went on last."""
    return await reply(request, "job", asked, lambda: Told(request.app.state.workshop))


@router.post("/job/stop")
async def post_stop(request: Request, asked: Asked) -> Response:
    """Ask what goes on to save and end."""

    def work() -> Result:
        request.app.state.workshop.stop()
        return Told(request.app.state.workshop)

    return await reply(request, "job", asked, work)


class Metrics(Asked):
    """The events of a run from the `since`-th on."""

    name: Name
    since: int = Field(0, ge=0)


@router.post("/metrics")
async def post_metrics(request: Request, asked: Metrics) -> Response:
    """What happened in a run: steps, validations, samples, as `peasy train --json` tells them."""

    def work() -> Result:
        if is_awaited(request.app.state.workshop, asked.name):
            return Awaited(asked.name)
        return metrics_since(known_run(asked.name), asked.since)

    return await reply(request, "metrics", asked, work)


class Awaited(Result):
    """A run that is being prepared: its data are cut into tokens, and nothing was learned yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def document(self) -> Document:
        """One sentence."""
        return Document(self.name, (Paragraph("It is being prepared."),))

    def data(self) -> dict[str, Any]:
        """The same as of a run in which nothing has happened."""
        return {"run": self.name, "since": 0, "next": 0, "live": True, "events": [], "samples": []}


class Unwatched(Result):
    """A run of which no attention was kept yet, or whose kind has none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def document(self) -> Document:
        """One sentence."""
        return Document(self.name, (Paragraph("No attention was kept yet."),))

    def data(self) -> dict[str, Any]:
        """A film without a picture."""
        return {"run": self.name, "text": "", "steps": [], "places": [], "place": None, "heads": 0, "caveat": ""}


class Film(Asked):
    """The watched sentence of a run at every checkpoint; `place` is one attention, such as decoder.0.attention."""

    name: Name
    place: Name | None = None


@router.post("/film")
async def post_film(request: Request, asked: Film) -> Response:
    """How attention formed while a run was trained."""

    def work() -> Result:
        from peasy.training.attention import find_records

        if is_awaited(request.app.state.workshop, asked.name):
            return Unwatched(asked.name)
        run = known_run(asked.name)
        return scene(run.folder, asked.place) if find_records(run.folder) else Unwatched(run.name)

    return await reply(request, "film", asked, work)


def is_awaited(workshop: Workshop, name: str) -> bool:
    """Whether the work that goes on will make this run, and has not begun it yet."""
    job = workshop.job
    return job is not None and job.running and name in job.runs and not place_for(name).exists()


def known_run(name: str) -> Run:
    """One of the runs that are here, by its name alone."""
    known = {run.name: run for run in runs().runs}
    if name not in known:
        raise NotFound(f'No run "{name[:100]}".', hint=did_you_mean(name, known))
    return known[name]


class Upload(Asked):
    """A piece of a text; `upload` is what the first piece was answered with."""

    name: Annotated[str, Field(max_length=200)] = "text.txt"
    text: Annotated[str, Field(max_length=400_000)]
    upload: Annotated[str, Field(max_length=100)] | None = None


class Uploaded(Result):
    """An upload, as far as it came."""

    def __init__(self, id: str, size: int) -> None:
        self.id, self.size = id, size

    def document(self) -> Document:
        """One sentence."""
        return Document("Upload", (Paragraph(f"{self.size:,} bytes."),))

    def data(self) -> dict[str, Any]:
        """Its id and size."""
        return {"upload": self.id, "bytes": self.size}


@router.post("/upload")
async def post_upload(request: Request, asked: Upload) -> Response:
    """Keep a text that somebody wants to train on."""

    def work() -> Result:
        id = asked.upload or upload.begin(asked.name)
        return Uploaded(id, upload.add(id, asked.text))

    return await reply(request, "upload", asked, work)
