"""Fixtures: a tiny corpus on disk and tiny training runs."""

import dataclasses
from pathlib import Path

import pytest

from peasy import tokenization
from peasy.datasets import open_corpus
from peasy.datasets.shards import prepare_shards
from peasy.generation.decode import generate
from peasy.generation.sampling_params import SamplingParams
from peasy.models import config as kinds
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training import metrics_log
from peasy.training.attention_snapshots import TrackedSentence
from peasy.training.data_loader import WindowDataLoader
from peasy.training.event import Sampled
from peasy.training.loop import TrainSpec, train
from peasy.training.objective import NextToken
from peasy.training.recipe import make_recipe

LINES = [
    "the cat sat on the mat", "the dog lay on the rug", "a bird sang in the tree", "one fish swam in the pond",
    "my phone broke today", "the pizza came out of the oven", "it tasted good", "you love cold water",
    "she reads a long book", "he walks to the old town",
]  # fmt: skip
SETTINGS = {
    "precision": "float32", "num_validations": 2, "num_samplings": 2, "num_saves": 4, "seq_len": 16,
    "seq_len_warmup": None, "batch_size": 4,
}  # fmt: skip


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """Token shards of ten lines, repeated, with a character tokenizer."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "lines.txt").write_text("\n".join(LINES * 12) + "\n", encoding="utf-8")
    corpus = open_corpus(folder / "lines.txt")
    tokenizer = tokenization.train_tokenizer(corpus.texts("train"), kind="characters")
    return prepare_shards(corpus, tokenizer, folder / "shards"), tokenizer


def special_token_ids(tokenizer) -> kinds.SpecialTokensConfig:
    special = tokenizer.special_tokens
    return kinds.SpecialTokensConfig(special.pad, special.eos, (special.eos,), special.bos, special.mask, special.unk)


@pytest.fixture
def make_spec(shards, tmp_path):
    """Factory of training specs of a tiny decoder in a new run folder; recipe settings as keywords."""
    opened, tokenizer = shards

    def sample(model, step: int) -> Sampled:
        sequences = generate(model, [[7, 8, 9]], SamplingParams(max_tokens=6, temperature=1.0, seed=1))
        return Sampled(step, ("x",), (tokenizer.decode(sequences[0]),), tuple(map(tuple, sequences)))

    def make(run: str = "run", *, model=None, clock=None, tracked=True, sinks=(), **settings) -> TrainSpec:
        sentence = TrackedSentence((7, 8, 9, 10), ("a", "b", "c", "d")) if tracked else None
        chosen = {"seed": 3, "steps": 12} | settings
        if "minutes" in settings:
            chosen["steps"] = None
        folder = tmp_path / run
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        recipe = make_recipe("gpt", "tiny", SETTINGS | {k: v for k, v in chosen.items() if v is not None})
        config = preset("gpt-tiny", vocab_size=len(tokenizer), d_model=32, dropout=0.1, stack={"num_layers": 1})
        config = dataclasses.replace(config, special_tokens=special_token_ids(tokenizer))
        model = model or build(config, seed=recipe.seed)
        data_loader = WindowDataLoader(opened.column("train"), opened.column("valid"), seed=recipe.seed)
        more = {} if clock is None else {"clock": clock}
        return TrainSpec(folder, recipe, model, NextToken(), data_loader, tokenizer, sample, sentence, sinks, **more)

    return make


@pytest.fixture
def finish():
    """Train to the end and return the events."""

    def run(spec: TrainSpec) -> list:
        return list(train(spec))

    return run


@pytest.fixture
def losses():
    """Return step and loss of every line of a run's metrics; a step logged twice is an error."""

    def read(run: Path) -> dict[int, float]:
        by_step: dict[int, float] = {}
        for line in metrics_log.read_log(run / "metrics.jsonl"):
            if line["event"] == "step":
                assert line["step"] not in by_step, f"step {line['step']} twice"
                by_step[line["step"]] = line["loss"]
        return by_step

    return read


@pytest.fixture
def outcome(losses):
    """Return everything of a run that must not depend on interruptions."""

    def read(run: Path) -> dict:
        metrics = list(metrics_log.read_log(run / "metrics.jsonl"))
        return {
            "losses": losses(run),
            "valid": {line["step"]: line["loss"] for line in metrics if line["event"] == "validated"},
            "samples": {line["step"]: line["ids"] for line in metrics_log.read_log(run / "samples.jsonl")},
            "weights": next(line["sha256"] for line in reversed(metrics) if line["event"] == "finished"),
            "attention": {path.name: path.read_bytes() for path in (run / "attention").glob("*")},
        }

    return read
