"""Routes for data sets, experiments and training runs."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.commands.data import data
from peasy.commands.runs import runs, show_run
from peasy.datasets import BUILT_IN
from peasy.errors import NotFound, did_you_mean
from peasy.experiments.experiment import experiment
from peasy.server.responses import CommandBody, Name, respond

router = APIRouter(prefix="/api")


class DataBody(CommandBody):
    """Name of a built-in data set; without it, all of them."""

    source: Name | None = None
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/data")
async def post_data(request: Request, body: DataBody) -> Response:
    """List the data sets or describe one; built-in ones only, never a path."""
    if body.source is None:
        return await respond(request, "data", body, data)
    source = check_built_in(body.source)
    return await respond(request, "data", body, lambda: data(source, seed=body.seed))


def check_built_in(name: str) -> str:
    """Return the name of a built-in data set with its options (`locales:fr`), or raise."""
    if name.partition(":")[0] not in BUILT_IN:
        hint = did_you_mean(name, BUILT_IN) or f"Available: {', '.join(BUILT_IN)}."
        raise NotFound(f'There is no data set "{name[:100]}".', hint=hint)
    return name


class ExperimentBody(CommandBody):
    """Name of an experiment; without it, all of them."""

    name: Name | None = None
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/experiment")
async def post_experiment(request: Request, body: ExperimentBody) -> Response:
    """List the experiments or run one: a claim of the lecture notes, measured against a control."""
    if body.name is None:
        return await respond(request, "experiment", body, experiment)
    name = body.name
    return await respond(request, "experiment", body, lambda: experiment(name, seed=body.seed))


class RunsBody(CommandBody):
    """Name of a run; without it, all of them."""

    name: Name | None = None


@router.post("/runs")
async def post_runs(request: Request, body: RunsBody) -> Response:
    """List training runs, or show one with its curves and samples."""
    if body.name is None:
        return await respond(request, "runs", body, runs)
    known = {run.name: run.folder for run in runs().runs}
    if body.name not in known:
        raise NotFound(f'No run "{body.name[:100]}".', hint=did_you_mean(body.name, known))
    folder: Any = known[body.name]
    return await respond(request, "runs", body, lambda: show_run(folder))
