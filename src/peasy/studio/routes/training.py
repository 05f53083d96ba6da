"""Training routes: start, resume, stop, compare, metrics, attention film, uploads. Jobs run in one subprocess."""

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
    """Create the job runner; at shutdown a running job saves and stops."""
    job_runner = app.state.job_runner = Workshop()
    yield
    job_runner.close()


router = APIRouter(prefix="/api", lifespan=life)


class Told(Result):
    """The newest job, or none."""

    def __init__(self, workshop: Workshop) -> None:
        self.job = None if workshop.job is None else workshop.job.data()

    def document(self) -> Document:
        """Return one sentence."""
        text = "No job is running." if self.job is None else f"{self.job['about']}: {self.job['state']}."
        return Document("Job", (Paragraph(text),))

    def data(self) -> dict[str, Any]:
        """Return the job as JSON data."""
        return {"job": self.job}


class Budget(Asked):
    """Training data (a built-in data set or an upload), preset, budget in minutes or steps, seed."""

    data: Name | None = None
    upload: Annotated[str, Field(max_length=100)] | None = None
    preset: Size | None = None
    minutes: float | None = Field(None, gt=0, le=1440)
    steps: int | None = Field(None, ge=1, le=1_000_000)
    seed: int | None = Field(None, ge=0, le=2**31)
    run: RunName | None = None

    def source(self) -> list[str]:
        """Return the --data flag; never a path that a client sent."""
        if (self.data is None) == (self.upload is None):
            raise UsageError("Training needs data: a built-in data set or an upload.", hint="See /api/data.")
        source = built_in_corpus(self.data) if self.data is not None else str(upload.place(self.upload or ""))
        return ["--data", source]

    def budget(self) -> list[str]:
        """Return the flags for preset, budget and seed."""
        if self.minutes is not None and self.steps is not None:
            raise UsageError("Give minutes or steps, not both.")
        flags = {"--preset": self.preset, "--minutes": self.minutes, "--steps": self.steps, "--seed": self.seed}
        return [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]


class Train(Budget):
    """Settings of a new run; with `resume`, the name of the run to continue."""

    kind: Kind | None = None
    sentence: Annotated[str, Field(max_length=500)] | None = None
    prompts: list[Annotated[str, Field(min_length=1, max_length=500)]] = Field([], max_length=4)
    resume: bool = False


@router.post("/train")
async def post_train(request: Request, asked: Train) -> Response:
    """Start or resume a run as a background job; /api/job and /api/metrics give its progress."""
    arguments, name = _going_on(asked) if asked.resume else _beginning(asked)
    job_runner: Workshop = request.app.state.job_runner

    def work() -> Result:
        job_runner.start("train", [*arguments, "--run", name, "--json"], f"Training {name}", [name])
        return Told(job_runner)

    return await reply(request, "train", asked, work)


def _beginning(asked: Train) -> tuple[list[str], str]:
    if asked.kind is None:
        raise UsageError("Training needs a kind.", hint="Give gpt, rnn, cnn, ngram, translator, encoder or words.")
    name = asked.run or new_name({run.name for run in runs().runs})
    if place_for(name).exists():
        raise InvalidInput(f"A run {name} already exists.", hint="Resume it, or choose another name.")
    settings = {"sentence": asked.sentence or None, "prompts": asked.prompts or None}
    flags = [word for key, value in settings.items() if value for word in ("--set", f"{key}={json.dumps(value)}")]
    return [asked.kind, *asked.source(), *asked.budget(), *flags], name


def _going_on(asked: Train) -> tuple[list[str], str]:
    run = known_run(asked.run or "")
    if run.recipe()["trains"] == "ngram":
        raise InvalidInput("An n-gram model cannot be resumed: it has counted all data.", hint="Start a new run.")
    return [run.recipe()["trains"], *asked.budget(), "--resume"], run.name


class Compare(Budget):
    """Kinds of models to train on the same data with the same budget; each becomes a run NAME-KIND."""

    kinds: list[Kind] = Field(min_length=2, max_length=8)


@router.post("/compare")
async def post_compare(request: Request, asked: Compare) -> Response:
    """Compare kinds of models as a background job; /api/metrics gives the curves of each run."""
    name = asked.run or new_name({run.name.rpartition("-")[0] for run in runs().runs})
    arguments = [*asked.kinds, *asked.source(), *asked.budget(), "--run", name, "--json"]
    run_names = [f"{name}-{kind}" for kind in asked.kinds]
    job_runner: Workshop = request.app.state.job_runner

    def work() -> Result:
        job_runner.start("compare", arguments, f"Comparing {', '.join(asked.kinds)}", run_names)
        return Told(job_runner)

    return await reply(request, "compare", asked, work)


@router.post("/job")
async def post_job(request: Request, asked: Asked) -> Response:
    """Return the running job, or the last one."""
    return await reply(request, "job", asked, lambda: Told(request.app.state.job_runner))


@router.post("/job/stop")
async def post_stop(request: Request, asked: Asked) -> Response:
    """Request the running job to save and stop."""

    def work() -> Result:
        request.app.state.job_runner.stop()
        return Told(request.app.state.job_runner)

    return await reply(request, "job", asked, work)


class Metrics(Asked):
    """Name of a run, and the index of the first event to return."""

    name: Name
    since: int = Field(0, ge=0)


@router.post("/metrics")
async def post_metrics(request: Request, asked: Metrics) -> Response:
    """Return the events of a run (steps, validations, samples) as `peasy train --json` prints them."""

    def work() -> Result:
        if is_awaited(request.app.state.job_runner, asked.name):
            return Awaited(asked.name)
        return metrics_since(known_run(asked.name), asked.since)

    return await reply(request, "metrics", asked, work)


class Awaited(Result):
    """Metrics of a run whose data are still being tokenized: no events yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def document(self) -> Document:
        """Return one sentence."""
        return Document(self.name, (Paragraph("The run is being prepared."),))

    def data(self) -> dict[str, Any]:
        """Return the metrics of a run without events."""
        return {"run": self.name, "since": 0, "next": 0, "live": True, "events": [], "samples": []}


class Unwatched(Result):
    """Empty film: a run without attention snapshots so far, or of a kind without attention."""

    def __init__(self, name: str) -> None:
        self.name = name

    def document(self) -> Document:
        """Return one sentence."""
        return Document(self.name, (Paragraph("No attention has been recorded yet."),))

    def data(self) -> dict[str, Any]:
        """Return a film without frames."""
        return {"run": self.name, "text": "", "steps": [], "places": [], "place": None, "heads": 0, "caveat": ""}


class Film(Asked):
    """Name of a run, and the module path of one attention, such as decoder.0.attention."""

    name: Name
    place: Name | None = None


@router.post("/film")
async def post_film(request: Request, asked: Film) -> Response:
    """Return how attention on one sentence changed during training."""

    def work() -> Result:
        from peasy.training.attention import find_records

        if is_awaited(request.app.state.job_runner, asked.name):
            return Unwatched(asked.name)
        run = known_run(asked.name)
        return scene(run.folder, asked.place) if find_records(run.folder) else Unwatched(run.name)

    return await reply(request, "film", asked, work)


def is_awaited(workshop: Workshop, name: str) -> bool:
    """True if the running job will create this run but has not done so yet."""
    job = workshop.job
    return job is not None and job.running and name in job.runs and not place_for(name).exists()


def known_run(name: str) -> Run:
    """Return a run by name, or raise."""
    known = {run.name: run for run in runs().runs}
    if name not in known:
        raise NotFound(f'No run "{name[:100]}".', hint=did_you_mean(name, known))
    return known[name]


class Upload(Asked):
    """Chunk of a text; `upload` is the id returned for the first chunk."""

    name: Annotated[str, Field(max_length=200)] = "text.txt"
    text: Annotated[str, Field(max_length=400_000)]
    upload: Annotated[str, Field(max_length=100)] | None = None


class Uploaded(Result):
    """Id and size of an upload."""

    def __init__(self, id: str, size: int) -> None:
        self.id, self.size = id, size

    def document(self) -> Document:
        """Return one sentence."""
        return Document("Upload", (Paragraph(f"{self.size:,} bytes."),))

    def data(self) -> dict[str, Any]:
        """Return id and size."""
        return {"upload": self.id, "bytes": self.size}


@router.post("/upload")
async def post_upload(request: Request, asked: Upload) -> Response:
    """Append a chunk to an uploaded training text."""

    def work() -> Result:
        id = asked.upload or upload.begin(asked.name)
        return Uploaded(id, upload.add(id, asked.text))

    return await reply(request, "upload", asked, work)
