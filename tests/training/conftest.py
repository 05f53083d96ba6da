"""Small runs: a corpus of a few lines on the disk, and models that learn it in seconds."""

import dataclasses
from pathlib import Path

import pytest

from peasy import text
from peasy.corpora import open_corpus, prepare
from peasy.generation.decode import Sampling, generate
from peasy.models import config as kinds
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training import journal
from peasy.training.attention import Sentence
from peasy.training.event import Sampled
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

    def write(model, step: int) -> Sampled:
        found = generate(model, [[7, 8, 9]], Sampling(max_tokens=6, temperature=1.0, seed=1))
        return Sampled(step, ("x",), (tokenizer.decode(found[0]),), tuple(map(tuple, found)))

    def make(run: str = "run", *, model=None, clock=None, watched=True, sinks=(), **settings) -> Task:
        sentence = Sentence((7, 8, 9, 10), ("a", "b", "c", "d")) if watched else None
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


@pytest.fixture
def losses():
    """Step and loss of every line of a run's metrics; a step that is told twice is an error."""

    def read(run: Path) -> dict[int, float]:
        found: dict[int, float] = {}
        for line in journal.read(run / "metrics.jsonl"):
            if line["event"] == "step":
                assert line["step"] not in found, f"step {line['step']} twice"
                found[line["step"]] = line["loss"]
        return found

    return read


@pytest.fixture
def outcome(losses):
    """All of a run that must not depend on how often it was interrupted."""

    def read(run: Path) -> dict:
        metrics = list(journal.read(run / "metrics.jsonl"))
        return {
            "losses": losses(run),
            "valid": {line["step"]: line["loss"] for line in metrics if line["event"] == "validated"},
            "samples": {line["step"]: line["ids"] for line in journal.read(run / "samples.jsonl")},
            "weights": next(line["sha256"] for line in reversed(metrics) if line["event"] == "finished"),
            "attention": {path.name: path.read_bytes() for path in (run / "attention").glob("*")},
        }

    return read
