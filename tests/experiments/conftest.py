"""Fixtures of the experiments: those of the commands that they run."""

from tests.commands.conftest import _home, decoder, tokenizer

__all__ = ["_home", "decoder", "tokenizer"]
