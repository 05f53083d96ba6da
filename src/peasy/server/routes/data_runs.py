"""Routes for data sets, experiments and training runs."""

from fastapi import APIRouter
from starlette.datastructures import State

from peasy.commands.data import data
from peasy.commands.result import Result
from peasy.commands.runs import Run, runs
from peasy.datasets import BUILT_IN
from peasy.errors import NotFound, did_you_mean
from peasy.experiments.experiment import experiment
from peasy.server.derive import add_command_route, command_route
from peasy.server.responses import Name, Seed

router = APIRouter(prefix="/api")


@command_route(router, "/data")
def post_data(state: State, source: Name | None = None, seed: Seed = 0) -> Result:
    """List the data sets or describe one; built-in ones only, never a path."""
    return data() if source is None else data(check_built_in(source), seed=seed)


def check_built_in(name: str) -> str:
    """Return the name of a built-in data set with its options (`locales:fr`), or raise."""
    if name.partition(":")[0] not in BUILT_IN:
        hint = did_you_mean(name, BUILT_IN) or f"Available: {', '.join(BUILT_IN)}."
        raise NotFound(f'There is no data set "{name[:100]}".', hint=hint)
    return name


add_command_route(
    router, "/experiment", experiment, hide=("store", "seeds"), changes={"name": Name | None, "seed": Seed}
)


@command_route(router, "/runs")
def post_runs(state: State, name: Name | None = None) -> Result:
    """List training runs, or show one with its curves and samples."""
    return runs() if name is None else find_run(name)


def find_run(name: str) -> Run:
    """Return a run by name, never by path, or raise."""
    known = {run.name: run for run in runs().runs}
    if name not in known:
        raise NotFound(f'No run "{name[:100]}".', hint=did_you_mean(name, known))
    return known[name]
