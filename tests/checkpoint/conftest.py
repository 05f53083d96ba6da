"""Fixtures: a tiny model with its tokenizer, saved once and copied for each test that changes it."""

import shutil

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer

TEXTS = ["The pizza came out of the oven and it tasted good."] * 9


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(TEXTS, "bpe", 280)


@pytest.fixture(scope="session")
def model(tokenizer):
    return build(preset("gpt-tiny", vocab_size=len(tokenizer), d_model=16, stack={"feedforward": {"d_ff": 32}}))


@pytest.fixture(scope="session")
def saved(model, tokenizer, tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("saved") / "tiny", model, tokenizer)


@pytest.fixture
def folder(saved, tmp_path):
    """A private copy of the checkpoint."""
    return shutil.copytree(saved, tmp_path / "tiny")


@pytest.fixture(autouse=True)
def _home(isolated_home):
    """Every test of checkpoints runs isolated."""


@pytest.fixture
def cache_model(tmp_path):
    """Return a function that puts a model into the hub cache, as huggingface_hub would."""

    def make(id, *, weights=True):
        model = tmp_path / "hub" / ("models--" + id.replace("/", "--"))
        snapshot = model / "snapshots" / "abc123"
        snapshot.mkdir(parents=True)
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text("abc123")
        (snapshot / "config.json").write_text("{}")
        if weights:
            (snapshot / "model.safetensors").touch()
        return snapshot

    return make
