"""Studio routes for experiments: list with last verdicts, last result, run."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.commands.result import Result
from peasy.errors import NotFound
from peasy.experiments.experiment import EXPERIMENTS, experiment
from peasy.experiments.result import ExperimentResult
from peasy.experiments.result_cache import load_result
from peasy.server.jobs import JobRunner
from peasy.server.responses import CommandBody, Name, respond
from peasy.server.routes.training import JobResult
from peasy.views.document import Document

router = APIRouter(prefix="/api")


class ExperimentVerdicts(Result):
    """All experiments, each with the verdict of its last run."""

    def document(self) -> Document:
        """Return the list as the terminal shows it."""
        return experiment().document()

    def data(self) -> dict[str, Any]:
        """Return questions and claims, with the last verdict if there is one."""
        entries = experiment().data()["experiments"]
        for entry in entries:
            last = load_result(entry["name"])
            entry["last"] = None if last is None else _verdict_entry(*last)
        return {"experiments": entries}


class StoredExperimentResult(Result):
    """Stored result of an experiment and its time."""

    def __init__(self, result: ExperimentResult, time: float) -> None:
        self.result, self.time = result, time

    def document(self) -> Document:
        """Return the result's document."""
        return self.result.document()

    def data(self) -> dict[str, Any]:
        """Return the result with its time."""
        return self.result.data() | {"time": self.time}


def _verdict_entry(result: ExperimentResult, time: float) -> dict[str, Any]:
    return {"time": time, "holds": result.holds, "verdict": result.verdict, "seed": result.seed}


@router.post("/experiments")
async def post_experiments(request: Request, body: CommandBody) -> Response:
    """List all experiments with their last verdicts."""
    return await respond(request, "experiments", body, ExperimentVerdicts)


class ExperimentNameBody(CommandBody):
    """Name and seed of one experiment."""

    name: Name
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/experiments/last")
async def post_last(request: Request, body: ExperimentNameBody) -> Response:
    """Return the last result of an experiment, with its tables and figures."""

    def work() -> Result:
        last = load_result(_check_experiment(body.name))
        if last is None:
            raise NotFound(f"{body.name} has not been run yet.", hint="Run it; it takes about a minute.")
        return StoredExperimentResult(*last)

    return await respond(request, "experiments", body, work)


@router.post("/experiments/run")
async def post_run(request: Request, body: ExperimentNameBody) -> Response:
    """Run an experiment as a background job; /api/job gives its progress."""
    name = _check_experiment(body.name)

    def work() -> Result:
        job_runner: JobRunner = request.app.state.job_runner
        job_runner.start("experiment", [name, "--seed", str(body.seed)], f"Experiment {name}")
        return JobResult(job_runner)

    return await respond(request, "experiments", body, work)


def _check_experiment(name: str) -> str:
    if name not in {experiment.name for experiment in EXPERIMENTS}:
        raise NotFound(f'There is no experiment "{name[:100]}".')
    return name
