"""Studio routes for experiments: list with last verdicts, last result, run."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.errors import NotFound
from peasy.studio.reply import Asked, Name, reply
from peasy.studio.routes.training import Told
from peasy.studio.workshop import Workshop
from peasy.views.document import Document
from peasy.workbench.experiment import EXPERIMENTS, experiments
from peasy.workbench.experiments.finding import Finding
from peasy.workbench.experiments.memory import recall
from peasy.workbench.result import Result

router = APIRouter(prefix="/api")


class Remembered(Result):
    """All experiments, each with the verdict of its last run."""

    def document(self) -> Document:
        """Return the list as the terminal shows it."""
        return experiments().document()

    def data(self) -> dict[str, Any]:
        """Return questions and claims, with the last verdict if there is one."""
        entries = experiments().data()["experiments"]
        for entry in entries:
            last = recall(entry["name"])
            entry["last"] = None if last is None else _last(*last)
        return {"experiments": entries}


class Recalled(Result):
    """Stored result of an experiment and its time."""

    def __init__(self, finding: Finding, when: float) -> None:
        self.finding, self.when = finding, when

    def document(self) -> Document:
        """Return the result's document."""
        return self.finding.document()

    def data(self) -> dict[str, Any]:
        """Return the result with its time."""
        return self.finding.data() | {"when": self.when}


def _last(finding: Finding, when: float) -> dict[str, Any]:
    return {"when": when, "holds": finding.holds, "verdict": finding.verdict, "seed": finding.seed}


@router.post("/experiments")
async def post_experiments(request: Request, asked: Asked) -> Response:
    """List all experiments with their last verdicts."""
    return await reply(request, "experiments", asked, Remembered)


class Which(Asked):
    """Name and seed of one experiment."""

    name: Name
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/experiments/last")
async def post_last(request: Request, asked: Which) -> Response:
    """Return the last result of an experiment, with its tables and figures."""

    def work() -> Result:
        last = recall(_known(asked.name))
        if last is None:
            raise NotFound(f"{asked.name} has not been run yet.", hint="Run it; it takes about a minute.")
        return Recalled(*last)

    return await reply(request, "experiments", asked, work)


@router.post("/experiments/run")
async def post_run(request: Request, asked: Which) -> Response:
    """Run an experiment as a background job; /api/job gives its progress."""
    name = _known(asked.name)

    def work() -> Result:
        job_runner: Workshop = request.app.state.job_runner
        job_runner.start("experiment", [name, "--seed", str(asked.seed)], f"Experiment {name}")
        return Told(job_runner)

    return await reply(request, "experiments", asked, work)


def _known(name: str) -> str:
    if name not in {experiment.name for experiment in EXPERIMENTS}:
        raise NotFound(f'There is no experiment "{name[:100]}".')
    return name
