"""Experiments from the page: all with their last verdicts, one in full from its last result, one run live."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.errors import NotFound
from peasy.studio.reply import Asked, Name, reply
from peasy.studio.routes.training import Told
from peasy.views.document import Document
from peasy.workbench.experiment import EXPERIMENTS, experiments
from peasy.workbench.experiments.finding import Finding
from peasy.workbench.experiments.memory import recall
from peasy.workbench.result import Result

router = APIRouter(prefix="/api")


class Remembered(Result):
    """All experiments, each with what came out when it was run last."""

    def document(self) -> Document:
        """As the terminal lists them."""
        return experiments().document()

    def data(self) -> dict[str, Any]:
        """Questions and claims, and the last verdict where there is one."""
        told = experiments().data()["experiments"]
        for each in told:
            last = recall(each["name"])
            each["last"] = None if last is None else _last(*last)
        return {"experiments": told}


class Recalled(Result):
    """One finding, and when it was made."""

    def __init__(self, finding: Finding, when: float) -> None:
        self.finding, self.when = finding, when

    def document(self) -> Document:
        """The finding as it was drawn then."""
        return self.finding.document()

    def data(self) -> dict[str, Any]:
        """The finding with its time."""
        return self.finding.data() | {"when": self.when}


def _last(finding: Finding, when: float) -> dict[str, Any]:
    return {"when": when, "holds": finding.holds, "verdict": finding.verdict, "seed": finding.seed}


@router.post("/experiments")
async def post_experiments(request: Request, asked: Asked) -> Response:
    """All experiments with their last verdicts."""
    return await reply(request, "experiments", asked, Remembered)


class Which(Asked):
    """One experiment by name."""

    name: Name
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/experiments/last")
async def post_last(request: Request, asked: Which) -> Response:
    """The last result of an experiment, with its tables and pictures."""

    def work() -> Result:
        last = recall(_known(asked.name))
        if last is None:
            raise NotFound(f"{asked.name} has not been run here yet.", hint="Run it: it takes a minute.")
        return Recalled(*last)

    return await reply(request, "experiments", asked, work)


@router.post("/experiments/run")
async def post_run(request: Request, asked: Which) -> Response:
    """Run one in the workshop; /api/job tells how far it is."""
    name = _known(asked.name)

    def work() -> Result:
        workshop = request.app.state.workshop
        workshop.start("experiment", [name, "--seed", str(asked.seed)], f"The experiment {name}")
        return Told(workshop)

    return await reply(request, "experiments", asked, work)


def _known(name: str) -> str:
    if name not in {each.name for each in EXPERIMENTS}:
        raise NotFound(f'There is no experiment "{name[:100]}".')
    return name
