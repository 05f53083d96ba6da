"""Studio routes that write data or start jobs: training, metrics, uploads, experiments, proofs, imports.

Jobs run in one subprocess.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated

from annotated_types import Ge, Le
from fastapi import APIRouter, FastAPI
from pydantic import Field
from starlette.datastructures import State

from peasy.checkpoint.hub import list_cached
from peasy.checkpoint.paths import run_path
from peasy.commands.attention_history import module_attention_history
from peasy.commands.importing import import_model
from peasy.commands.prove import prove
from peasy.commands.result import JsonDict, Result
from peasy.commands.runs import metrics_since, runs
from peasy.errors import InvalidInput, NotFound, UsageError, did_you_mean
from peasy.experiments.experiment import ExperimentsResult
from peasy.experiments.result import EXPERIMENTS, ExperimentResult, load_result
from peasy.experiments.stored import stored_result
from peasy.models.preset import ModelKind, ModelSize
from peasy.server import upload
from peasy.server.derive import command_route
from peasy.server.jobs import JobRunner
from peasy.server.responses import CommandBody, Name, Seed, ServerResult, Text
from peasy.server.routes.commands import check_built_in, find_run
from peasy.training.attention_snapshots import find_snapshots
from peasy.training.run_folder import random_run_name
from peasy.views.document import Paragraph

UploadId = Annotated[str, Field(max_length=100)]
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,60}$")]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Create the job runner; at shutdown a running job saves and stops."""
    job_runner = app.state.job_runner = JobRunner()
    yield
    job_runner.close()


router = APIRouter(prefix="/api", lifespan=lifespan)


def _job_status(job_runner: JobRunner) -> ServerResult:
    job = None if job_runner.job is None else job_runner.job.data()
    sentence = "No job is running." if job is None else f"{job['description']}: {job['state']}."
    return ServerResult("Job", {"job": job}, Paragraph(sentence))


class TrainingBudgetBody(CommandBody):
    """Training data (a built-in data set or an upload), preset, budget in minutes or steps, seed."""

    data: Name | None = None
    upload_id: UploadId | None = None
    preset: ModelSize | None = None
    minutes: float | None = Field(None, gt=0, le=1440)
    steps: int | None = Field(None, ge=1, le=1_000_000)
    seed: Seed | None = None
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
    keep_checkpoints: int | None = Field(None, ge=1, le=100)
    resume: bool = False


def _start_job(
    state: State, command: str, arguments: Sequence[str], description: str, run_names: Sequence[str] = ()
) -> Result:
    state.job_runner.start(command, arguments, description, run_names)
    return _job_status(state.job_runner)


@command_route(router, "/train")
def post_train(state: State, body: TrainBody) -> Result:
    """Start or resume a run as a background job; /api/job and /api/metrics give its progress."""
    if body.resume:
        run = find_run(body.run or "")
        name, kind = run.name, run.recipe()["model_kind"]
        if kind == "ngram":
            raise InvalidInput("An n-gram model cannot be resumed: it has counted all data.", hint="Start a new run.")
        arguments = [kind, *body.budget_flags(), "--resume"]
    elif body.kind is None:
        kinds = "gpt, rnn, cnn, ngram, words, encoder, translator or rnn-translator"
        raise UsageError("Training needs a kind of model.", hint=f"Give {kinds}.")
    else:
        name = body.run or random_run_name({run.name for run in runs().runs})
        if run_path(name).exists():
            raise InvalidInput(f"A run {name} already exists.", hint="Resume it, or choose another name.")
        names = ("tracked_sentence", "prompts", "keep_checkpoints")
        settings = {name: value for name in names if (value := getattr(body, name))}
        flags = [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
        arguments = [body.kind, *body.data_flags(), *body.budget_flags(), *flags]
    return _start_job(state, "train", [*arguments, "--run", name, "--json"], f"Training {name}", [name])


class CompareBody(TrainingBudgetBody):
    """Kinds of models to train on the same data with the same budget; each becomes a run NAME-KIND."""

    kinds: list[ModelKind] = Field(min_length=2, max_length=8)


@command_route(router, "/compare")
def post_compare(state: State, body: CompareBody) -> Result:
    """Compare kinds of models as a background job; /api/metrics gives the curves of each run."""
    name = body.run or random_run_name({run.name.rpartition("-")[0] for run in runs().runs})
    arguments = [*body.kinds, *body.data_flags(), *body.budget_flags(), "--run", name, "--json"]
    run_names = [f"{name}-{kind}" for kind in body.kinds]
    return _start_job(state, "compare", arguments, f"Comparing {', '.join(body.kinds)}", run_names)


@command_route(router, "/job")
def post_job(state: State) -> Result:
    """Return the running job, or the last one."""
    return _job_status(state.job_runner)


@command_route(router, "/job/stop", "job")
def post_stop(state: State) -> Result:
    """Request the running job to save and stop."""
    state.job_runner.stop()
    return _job_status(state.job_runner)


@command_route(router, "/metrics")
def post_metrics(state: State, name: Name, since: Annotated[int, Field(ge=0)] = 0) -> Result:
    """Return the events of a run (steps, validations, samples) as `peasy train --json` prints them.

    Args:
        name: Name of a run.
        since: Index of the first event to return.
    """
    if _is_preparing(state.job_runner, name):
        empty = {"run": name, "since": 0, "next": 0, "live": True, "events": [], "samples": []}
        return ServerResult(name, empty, Paragraph("The run is being prepared."))
    return metrics_since(find_run(name), since)


@command_route(router, "/attention-history")
def post_attention_history(state: State, name: Name, module_path: Name | None = None) -> Result:
    """Return how the attention of a run on one sentence, of a module such as decoder.0.attention, changed."""
    if not _is_preparing(state.job_runner, name):
        run = find_run(name)
        if find_snapshots(run.folder):
            return module_attention_history(run.folder, module_path)
    empty: JsonDict = {"run": name, "text": "", "steps": []}
    empty |= {"module_paths": [], "module_path": None, "heads": 0, "caveat": ""}
    return ServerResult(name, empty, Paragraph("No attention has been recorded yet."))


def _is_preparing(job_runner: JobRunner, name: str) -> bool:
    """True if the running job will create this run but has not done so yet."""
    job = job_runner.job
    return job is not None and job.running and name in job.run_names and not run_path(name).exists()


@command_route(router, "/upload")
def post_upload(
    state: State,
    text: Annotated[str, Field(max_length=400_000)],
    name: Annotated[str, Field(max_length=200)] = "text.txt",
    upload_id: UploadId | None = None,
) -> Result:
    """Append a chunk to an uploaded training text; `upload_id` is the id returned for the first chunk."""
    id = upload_id or upload.new_upload_id(name)
    size = upload.append_text(id, text)
    return ServerResult("Upload", {"upload_id": id, "bytes": size}, Paragraph(f"{size:,} bytes."))


class ExperimentVerdicts(ExperimentsResult):
    """All experiments, each with the verdict of its last run."""

    def data(self) -> JsonDict:
        """Return questions and claims, with the last verdict if there is one."""
        data = super().data()
        for entry in data["experiments"]:
            about = EXPERIMENTS[entry["name"]]
            entry |= {"caveat": about.caveat, "labels": about.labels}
            if (seeds := stored_result(entry["name"])) is not None:
                entry["stored"]["table"] = asdict(seeds.table())
            entry["last"] = None
            if (stored := load_result(entry["name"])) is not None:
                result, time = stored
                names = ("holds", "outcome", "verdict", "seed")
                entry["last"] = {"time": time} | {name: getattr(result, name) for name in names}
        return data


class StoredExperimentResult(ExperimentResult):
    """Stored result of an experiment and its time in seconds since 1970."""

    time: float = 0.0


@command_route(router, "/experiments")
def post_experiments(state: State) -> Result:
    """List all experiments with their last verdicts."""
    return ExperimentVerdicts()


@command_route(router, "/experiments/last", "experiments")
def post_last(state: State, name: Name, seed: Seed = 0) -> Result:
    """Return the last result of an experiment, with its tables and figures; before it is run, the stored one."""
    last, stored = load_result(_check_experiment(name)), stored_result(name)
    if last is not None:
        return StoredExperimentResult(**vars(last[0]), time=last[1])
    if stored is None:
        raise NotFound(f"{name} has not been run yet.", hint=f"Run it first; it takes {EXPERIMENTS[name].duration}.")
    return stored


@command_route(router, "/experiments/run", "experiments")
def post_run(state: State, name: Name, seed: Seed = 0) -> Result:
    """Run an experiment as a background job; /api/job gives its progress."""
    return _start_job(state, "experiment", [_check_experiment(name), "--seed", str(seed)], f"Experiment {name}")


def _check_experiment(name: str) -> str:
    if name not in EXPERIMENTS:
        raise NotFound(f'There is no experiment "{name[:100]}".')
    return name


@command_route(router, "/prove")
def post_prove(
    state: State,
    model: Name,
    prompts: Annotated[list[Text], Field(min_length=1, max_length=8)] | None = None,
    max_tokens: Annotated[int, Ge(1), Le(512)] = 128,
    seed: Seed = 0,
) -> Result:
    """Check that a model's execution paths agree: cached or not, alone or batched, fused or by the formula."""
    with state.registry.use(model) as loaded:
        return prove(loaded, prompts, max_tokens=max_tokens, seed=seed)


@command_route(router, "/import")
def post_import(state: State, model: Name, name: RunName | None = None, yes: bool = False) -> Result:
    """Import a model from the hub's cache, if the user agreed (`yes`); nothing is downloaded, no path opened."""
    cached = list_cached()
    if model not in cached:
        hint = did_you_mean(model, cached) or f"In a terminal: peasy import {model[:100]}"
        raise NotFound(f"{model[:100]} is not in this machine's hub cache.", hint=hint)
    if not yes:
        raise UsageError(f"Copying {model} into peasy's data directory needs consent.", hint="Send yes: true.")
    return import_model(model, name=name, offline=True)
