"""Fixtures: small models of each family, saved once, and an isolated data directory."""

import pytest

from peasy.checkpoint.huggingface import write_folder
from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer

TEXTS = ["The pizza came out of the oven and it tasted good."] * 9


@pytest.fixture(autouse=True)
def _home(isolated_home):
    """Every test of a command runs isolated."""


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(TEXTS, "bpe", 280)


@pytest.fixture(scope="session")
def decoder(tokenizer, tmp_path_factory):
    model = build(preset("gpt-tiny", vocab_size=280, d_model=16, stack={"feedforward": {"d_ff": 32}}), seed=1)
    return save_model(tmp_path_factory.mktemp("models") / "decoder", model, tokenizer)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    tokenizer = train_tokenizer(TEXTS, "wordpiece", 200, add_bos_eos=True)
    settings = preset("encoder-tiny", vocab_size=len(tokenizer), d_model=16, max_seq_len=12)
    return save_model(tmp_path_factory.mktemp("models") / "encoder", build(settings, seed=2), tokenizer)


@pytest.fixture(scope="session")
def foreign(tokenizer, tmp_path_factory):
    """A Hugging Face folder."""
    shape = {"num_layers": 2, "attention": {"num_heads": 2}, "feedforward": {"d_ff": 32}}
    settings = preset("gpt2", vocab_size=280, d_model=16, max_seq_len=32, stack=shape)
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    return write_folder(folder, settings, build(settings, seed=3).state_dict(), tokenizer)
