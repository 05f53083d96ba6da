"""One of two processes started by test_parallel.py: `worker.py FOLDER JOBS`, where JOBS are runs as JSON.

Each job is (name, strategy, steps, settings) and resumes its run. With `die` in its settings, rank 1 is killed after
that step; with `stop`, rank 1 requests a stop.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)

from peasy import tokenization  # noqa: E402
from peasy.datasets import open_corpus  # noqa: E402
from peasy.datasets.shards import open_shards  # noqa: E402
from peasy.errors import PeasyError  # noqa: E402
from peasy.models.build import build  # noqa: E402
from peasy.models.preset import preset  # noqa: E402
from peasy.training import parallel  # noqa: E402
from peasy.training.data_loader import WindowDataLoader  # noqa: E402
from peasy.training.distributed import ProcessGroup, process_group  # noqa: E402
from peasy.training.event import Sampled, TrainStep  # noqa: E402
from peasy.training.loop import TrainSpec  # noqa: E402
from peasy.training.objective import NextToken  # noqa: E402
from peasy.training.recipe import make_recipe  # noqa: E402

BASE = {
    "precision": "float32", "num_validations": 2, "num_samplings": 2, "num_saves": 2,
    "seq_len": 16, "seq_len_warmup": None, "batch_size": 4, "seed": 3,
}  # fmt: skip


def make_spec(folder: Path, steps: int, settings: dict) -> TrainSpec:
    """Training spec of the run in `folder`; `folder.parent` holds lines.txt and its shards."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    corpus = open_corpus(folder.parent / "lines.txt")
    tokenizer = tokenization.train_tokenizer(corpus.texts("train"), kind="characters")
    shards = open_shards(folder.parent / "shards")
    recipe = make_recipe("gpt", "tiny", BASE | {"steps": steps} | settings)
    model = build(preset("gpt-tiny", vocab_size=len(tokenizer), d_model=32, stack={"num_layers": 2}), seed=recipe.seed)
    data_loader = WindowDataLoader(shards.column("train"), shards.column("valid"), seed=recipe.seed)
    return TrainSpec(
        folder, recipe, model, NextToken(), data_loader, tokenizer, lambda model, step: Sampled(step, ("a",), ("b",))
    )


def train_run(group: ProcessGroup, folder: Path, strategy: str, steps: int, settings: dict) -> None:
    """Train one run."""
    die, stop = settings.pop("die", None), settings.pop("stop", None)
    events = parallel.train(make_spec(folder, steps, settings | {"parallel": strategy}), group)
    for event in events:
        if isinstance(event, TrainStep) and group.rank == 1 and event.step == die:
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(event, TrainStep) and group.rank == 1 and event.step == stop:
            events.close()
            break


def main() -> None:
    """Do all jobs, one after the other, in one process group."""
    try:
        with process_group() as group:
            for name, strategy, steps, settings in json.loads(sys.argv[2]):
                train_run(group, Path(sys.argv[1]) / name, strategy, steps, settings)
    except PeasyError as error:
        sys.stderr.write(f"{error.message}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
