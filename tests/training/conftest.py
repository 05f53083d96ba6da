"""Small runs: a corpus of a few lines on the disk, and models that learn it in seconds."""

import dataclasses
import json
from pathlib import Path

import pytest

from peasy import text
from peasy.corpora import open_corpus, prepare
from peasy.models import config as kinds
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training import journal
from peasy.training.feed import TextFeed
from peasy.training.loop import Task, train
from peasy.training.objective import NextToken
from peasy.training.recipe import make_recipe

LINES = [
    "the cat sat on the mat", "the dog lay on the rug", "a bird sang in the tree", "one fish swam in the pond",
    "my phone broke today", "the pizza came out of the oven", "it tasted good", "you love cold water",
    "she reads a long book", "he walks to the old town",
]  # fmt: skip
DATA = {"precision": "float32", "validate": 2, "sample": 2, "save": 4, "context": 16, "short": None, "batch": 4}


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """Ten lines, many times over, cut into characters."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "lines.txt").write_text("\n".join(LINES * 12) + "\n", encoding="utf-8")
    corpus = open_corpus(folder / "lines.txt")
    tokenizer = text.train(corpus.texts("train"), kind="characters")
    return prepare(corpus, tokenizer, folder / "shards"), tokenizer


def special_of(tokenizer) -> kinds.Special:
    found = tokenizer.special
    return kinds.Special(found.pad, found.eos, (found.eos,), found.bos, found.mask, found.unk)


@pytest.fixture
def task(shards, tmp_path):
    """A task of a tiny decoder in a new run folder; settings of the recipe as keywords."""
    opened, tokenizer = shards

    def make(run: str = "run", *, model=None, clock=None, write=None, sentence=None, sinks=(), **settings) -> Task:
        given = {"seed": 3, "steps": 12} | settings
        if "minutes" in settings:
            given["steps"] = None
        folder = tmp_path / run
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        recipe = make_recipe("gpt", "tiny", DATA | {k: v for k, v in given.items() if v is not None})
        config = preset("gpt-tiny", vocabulary=len(tokenizer), d_model=32, dropout=0.1, stack={"layers": 1})
        model = model or build(dataclasses.replace(config, special=special_of(tokenizer)), seed=recipe.seed)
        feed = TextFeed(opened.column("train"), opened.column("valid"), seed=recipe.seed)
        more = {} if clock is None else {"clock": clock}
        return Task(folder, recipe, model, NextToken(), feed, tokenizer, write, sentence, sinks, **more)

    return make


@pytest.fixture
def finish():
    """Run a task to its end: its events, and the losses in its metrics."""

    def run(task: Task) -> list:
        return list(train(task))

    return run


def losses(run: Path) -> dict[int, float]:
    """Step and loss of every line; a step that is told twice is an error."""
    found: dict[int, float] = {}
    for line in journal.read(run / "metrics.jsonl"):
        if line["event"] == "step":
            assert line["step"] not in found, f"step {line['step']} twice"
            found[line["step"]] = line["loss"]
    return found


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
