"""One process of a run of two, started by test_parallel.py: `worker.py FOLDER WAY STEPS [settings as JSON]`.

The corpus, the tokenizer and the model are those of the tests beside it; the run goes on where its folder stands.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)

from peasy import text  # noqa: E402
from peasy.corpora import open_corpus, open_shards  # noqa: E402
from peasy.errors import PeasyError  # noqa: E402
from peasy.models.build import build  # noqa: E402
from peasy.models.preset import preset  # noqa: E402
from peasy.training import parallel  # noqa: E402
from peasy.training.crew import join  # noqa: E402
from peasy.training.event import Sampled, Step  # noqa: E402
from peasy.training.feed import TextFeed  # noqa: E402
from peasy.training.loop import Task  # noqa: E402
from peasy.training.objective import NextToken  # noqa: E402
from peasy.training.recipe import make_recipe  # noqa: E402

BASE = {
    "precision": "float32", "validate": 2, "sample": 2, "save": 2, "context": 16, "short": None, "batch": 4, "seed": 3,
}  # fmt: skip


def task_of(folder: Path, steps: int, settings: dict) -> Task:
    """The run in `folder`; `folder.parent` holds lines.txt and its shards."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    corpus = open_corpus(folder.parent / "lines.txt")
    tokenizer = text.train(corpus.texts("train"), kind="characters")
    shards = open_shards(folder.parent / "shards")
    recipe = make_recipe("gpt", "tiny", BASE | {"steps": steps} | settings)
    model = build(preset("gpt-tiny", vocabulary=len(tokenizer), d_model=32, stack={"layers": 2}), seed=recipe.seed)
    feed = TextFeed(shards.column("train"), shards.column("valid"), seed=recipe.seed)
    return Task(folder, recipe, model, NextToken(), feed, tokenizer, lambda model, step: Sampled(step, ("a",), ("b",)))


def main() -> None:
    """Train; with `die` in the settings, process 1 is killed after that step; with `stop`, it asks to stop."""
    folder, way, steps, told = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    die, stop = told.pop("die", None), told.pop("stop", None)
    try:
        with join() as crew:
            events = parallel.train(task_of(folder, steps, told | {"parallel": way}), crew)
            for event in events:
                if isinstance(event, Step) and crew.rank == 1 and event.step == die:
                    os.kill(os.getpid(), signal.SIGKILL)
                if isinstance(event, Step) and crew.rank == 1 and event.step == stop:
                    events.close()
                    break
    except PeasyError as error:
        sys.stderr.write(f"{error.message}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
