"""Training routes: start, resume, stop, compare, metrics, attention history, uploads. Jobs run in one subprocess."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import Field

from peasy.checkpoint.paths import run_path
from peasy.commands.attention_history import module_attention_history
from peasy.commands.result import JsonDict, Result
from peasy.commands.runs import metrics_since, runs
from peasy.errors import InvalidInput, UsageError
from peasy.models.preset import ModelKind, ModelSize
from peasy.server import upload
from peasy.server.jobs import JobRunner
from peasy.server.responses import CommandBody, Name, respond
from peasy.server.routes.data_runs import check_built_in, find_run
from peasy.training.run_folder import random_run_name
from peasy.views.document import Document, Paragraph

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,60}$")]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Create the job runner; at shutdown a running job saves and stops."""
    job_runner = app.state.job_runner = JobRunner()
    yield
    job_runner.close()


router = APIRouter(prefix="/api", lifespan=lifespan)


@dataclass(frozen=True)
class StatusResult(Result):
    """Status in one sentence, with its JSON data."""

    title: str
    sentence: str
    content: JsonDict

    def document(self) -> Document:
        """Return the sentence."""
        return Document(self.title, (Paragraph(self.sentence),))

    def data(self) -> JsonDict:
        """Return the JSON data."""
        return self.content


def job_status(job_runner: JobRunner) -> StatusResult:
    """Return the newest job, or none."""
    job = None if job_runner.job is None else job_runner.job.data()
    sentence = "No job is running." if job is None else f"{job['description']}: {job['state']}."
    return StatusResult("Job", sentence, {"job": job})


class TrainingBudgetBody(CommandBody):
    """Training data (a built-in data set or an upload), preset, budget in minutes or steps, seed."""

    data: Name | None = None
    upload_id: Annotated[str, Field(max_length=100)] | None = None
    preset: ModelSize | None = None
    minutes: float | None = Field(None, gt=0, le=1440)
    steps: int | None = Field(None, ge=1, le=1_000_000)
    seed: int | None = Field(None, ge=0, le=2**31)
    run: RunName | None = None

    def data_flags(self) -> list[str]:
        """Return the --data flag; never a path that a client sent."""
        if (self.data is None) == (self.upload_id is None):
            raise UsageError("Training needs data: a built-in data set or an upload.", hint="See /api/data.")
        source = check_built_in(self.data) if self.data is not None else str(upload.upload_path(self.upload_id or ""))
        return ["--data", source]

    def budget_flags(self) -> list[str]:
        """Return the flags for preset, budget and seed."""
        if self.minutes is not None and self.steps is not None:
            raise UsageError("Give minutes or steps, not both.")
        flags = {"--preset": self.preset, "--minutes": self.minutes, "--steps": self.steps, "--seed": self.seed}
        return [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]


class TrainBody(TrainingBudgetBody):
    """Settings of a new run; with `resume`, the name of the run to continue."""

    kind: ModelKind | None = None
    tracked_sentence: Annotated[str, Field(max_length=500)] | None = None
    prompts: list[Annotated[str, Field(min_length=1, max_length=500)]] = Field([], max_length=4)
    resume: bool = False


async def _start_job(
    request: Request, command: str, body: CommandBody, arguments: list[str], description: str, run_names: list[str]
) -> Response:
    job_runner: JobRunner = request.app.state.job_runner

    def work() -> Result:
        job_runner.start(command, [*arguments, "--json"], description, run_names)
        return job_status(job_runner)

    return await respond(request, command, body, work)


@router.post("/train")
async def post_train(request: Request, body: TrainBody) -> Response:
    """Start or resume a run as a background job; /api/job and /api/metrics give its progress."""
    arguments, name = _resume_arguments(body) if body.resume else _new_run_arguments(body)
    return await _start_job(request, "train", body, [*arguments, "--run", name], f"Training {name}", [name])


def _new_run_arguments(body: TrainBody) -> tuple[list[str], str]:
    if body.kind is None:
        raise UsageError("Training needs a kind.", hint="Give gpt, rnn, cnn, ngram, translator, encoder or words.")
    name = body.run or random_run_name({run.name for run in runs().runs})
    if run_path(name).exists():
        raise InvalidInput(f"A run {name} already exists.", hint="Resume it, or choose another name.")
    settings = {"tracked_sentence": body.tracked_sentence or None, "prompts": body.prompts or None}
    flags = [word for key, value in settings.items() if value for word in ("--set", f"{key}={json.dumps(value)}")]
    return [body.kind, *body.data_flags(), *body.budget_flags(), *flags], name


def _resume_arguments(body: TrainBody) -> tuple[list[str], str]:
    run = find_run(body.run or "")
    if run.recipe()["model_kind"] == "ngram":
        raise InvalidInput("An n-gram model cannot be resumed: it has counted all data.", hint="Start a new run.")
    return [run.recipe()["model_kind"], *body.budget_flags(), "--resume"], run.name


class CompareBody(TrainingBudgetBody):
    """Kinds of models to train on the same data with the same budget; each becomes a run NAME-KIND."""

    kinds: list[ModelKind] = Field(min_length=2, max_length=8)


@router.post("/compare")
async def post_compare(request: Request, body: CompareBody) -> Response:
    """Compare kinds of models as a background job; /api/metrics gives the curves of each run."""
    name = body.run or random_run_name({run.name.rpartition("-")[0] for run in runs().runs})
    arguments = [*body.kinds, *body.data_flags(), *body.budget_flags(), "--run", name]
    run_names = [f"{name}-{kind}" for kind in body.kinds]
    return await _start_job(request, "compare", body, arguments, f"Comparing {', '.join(body.kinds)}", run_names)


@router.post("/job")
async def post_job(request: Request, body: CommandBody) -> Response:
    """Return the running job, or the last one."""
    return await respond(request, "job", body, lambda: job_status(request.app.state.job_runner))


@router.post("/job/stop")
async def post_stop(request: Request, body: CommandBody) -> Response:
    """Request the running job to save and stop."""

    def work() -> Result:
        request.app.state.job_runner.stop()
        return job_status(request.app.state.job_runner)

    return await respond(request, "job", body, work)


class MetricsBody(CommandBody):
    """Name of a run, and the index of the first event to return."""

    name: Name
    since: int = Field(0, ge=0)


@router.post("/metrics")
async def post_metrics(request: Request, body: MetricsBody) -> Response:
    """Return the events of a run (steps, validations, samples) as `peasy train --json` prints them."""

    def work() -> Result:
        if _is_preparing(request.app.state.job_runner, body.name):
            empty = {"run": body.name, "since": 0, "next": 0, "live": True, "events": [], "samples": []}
            return StatusResult(body.name, "The run is being prepared.", empty)
        return metrics_since(find_run(body.name), body.since)

    return await respond(request, "metrics", body, work)


class AttentionHistoryBody(CommandBody):
    """Name of a run, and the module path of one attention, such as decoder.0.attention."""

    name: Name
    module_path: Name | None = None


@router.post("/attention-history")
async def post_attention_history(request: Request, body: AttentionHistoryBody) -> Response:
    """Return how attention on one sentence changed during training."""

    def work() -> Result:
        from peasy.training.attention_snapshots import find_snapshots

        if not _is_preparing(request.app.state.job_runner, body.name):
            run = find_run(body.name)
            if find_snapshots(run.folder):
                return module_attention_history(run.folder, body.module_path)
        empty: JsonDict = {"run": body.name, "text": "", "steps": []}
        empty |= {"module_paths": [], "module_path": None, "heads": 0, "caveat": ""}
        return StatusResult(body.name, "No attention has been recorded yet.", empty)

    return await respond(request, "attention-history", body, work)


def _is_preparing(job_runner: JobRunner, name: str) -> bool:
    """True if the running job will create this run but has not done so yet."""
    job = job_runner.job
    return job is not None and job.running and name in job.run_names and not run_path(name).exists()


class UploadBody(CommandBody):
    """Chunk of a text; `upload_id` is the id returned for the first chunk."""

    name: Annotated[str, Field(max_length=200)] = "text.txt"
    text: Annotated[str, Field(max_length=400_000)]
    upload_id: Annotated[str, Field(max_length=100)] | None = None


@router.post("/upload")
async def post_upload(request: Request, body: UploadBody) -> Response:
    """Append a chunk to an uploaded training text."""

    def work() -> Result:
        id = body.upload_id or upload.new_upload_id(body.name)
        size = upload.append_text(id, body.text)
        return StatusResult("Upload", f"{size:,} bytes.", {"upload_id": id, "bytes": size})

    return await respond(request, "upload", body, work)
