"""Routes for data sets, experiments and training runs."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.corpora import BUILT_IN
from peasy.errors import NotFound, did_you_mean
from peasy.studio.reply import Asked, Name, reply
from peasy.workbench.data import data
from peasy.workbench.experiment import experiment, experiments
from peasy.workbench.runs import runs, show_run

router = APIRouter(prefix="/api")


class Data(Asked):
    """Name of a built-in data set; without it, all of them."""

    what: Name | None = None
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/data")
async def post_data(request: Request, asked: Data) -> Response:
    """List the data sets or describe one; built-in ones only, never a path."""
    if asked.what is None:
        return await reply(request, "data", asked, data)
    what = built_in_corpus(asked.what)
    return await reply(request, "data", asked, lambda: data(what, seed=asked.seed))


def built_in_corpus(name: str) -> str:
    """Return the name of a built-in data set with its options (`locales:fr`), or raise."""
    if name.partition(":")[0] not in BUILT_IN:
        hint = did_you_mean(name, BUILT_IN) or f"Available: {', '.join(BUILT_IN)}."
        raise NotFound(f'There is no data set "{name[:100]}".', hint=hint)
    return name


class Experiment(Asked):
    """Name of an experiment; without it, all of them."""

    name: Name | None = None
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/experiment")
async def post_experiment(request: Request, asked: Experiment) -> Response:
    """List the experiments or run one: a claim of the lecture notes, measured against a control."""
    if asked.name is None:
        return await reply(request, "experiment", asked, experiments)
    name = asked.name
    return await reply(request, "experiment", asked, lambda: experiment(name, seed=asked.seed))


class Runs(Asked):
    """Name of a run; without it, all of them."""

    name: Name | None = None


@router.post("/runs")
async def post_runs(request: Request, asked: Runs) -> Response:
    """List training runs, or show one with its curves and samples."""
    if asked.name is None:
        return await reply(request, "runs", asked, runs)
    known = {run.name: run.folder for run in runs().runs}
    if asked.name not in known:
        raise NotFound(f'No run "{asked.name[:100]}".', hint=did_you_mean(asked.name, known))
    folder: Any = known[asked.name]
    return await reply(request, "runs", asked, lambda: show_run(folder))
