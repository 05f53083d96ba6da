"""Studio routes for experiments: list with last verdicts, last result, run."""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.commands.result import JsonDict, Result
from peasy.errors import NotFound
from peasy.experiments.experiment import EXPERIMENTS, ExperimentsResult
from peasy.experiments.result import ExperimentResult, load_result
from peasy.server.jobs import JobRunner
from peasy.server.responses import CommandBody, Name, respond
from peasy.server.routes.training import job_status

router = APIRouter(prefix="/api")


class ExperimentVerdicts(ExperimentsResult):
    """All experiments, each with the verdict of its last run."""

    def data(self) -> JsonDict:
        """Return questions and claims, with the last verdict if there is one."""
        data = super().data()
        for entry in data["experiments"]:
            stored = load_result(entry["name"])
            entry["last"] = None
            if stored is not None:
                result, time = stored
                entry["last"] = {
                    "time": time, "holds": result.holds, "verdict": result.verdict, "seed": result.seed,
                }  # fmt: skip
        return data


@dataclass(frozen=True, repr=False)
class StoredExperimentResult(ExperimentResult):
    """Stored result of an experiment and its time in seconds since 1970."""

    time: float = 0.0


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
        result, time = last
        return StoredExperimentResult(**vars(result), time=time)

    return await respond(request, "experiments", body, work)


@router.post("/experiments/run")
async def post_run(request: Request, body: ExperimentNameBody) -> Response:
    """Run an experiment as a background job; /api/job gives its progress."""
    name = _check_experiment(body.name)

    def work() -> Result:
        job_runner: JobRunner = request.app.state.job_runner
        job_runner.start("experiment", [name, "--seed", str(body.seed)], f"Experiment {name}")
        return job_status(job_runner)

    return await respond(request, "experiments", body, work)


def _check_experiment(name: str) -> str:
    if name not in {entry.name for entry in EXPERIMENTS}:
        raise NotFound(f'There is no experiment "{name[:100]}".')
    return name
