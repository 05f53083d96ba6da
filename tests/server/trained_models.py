"""Tiny models of every kind for the page tests."""

from peasy.checkpoint.huggingface import write_folder
from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.config import RecurrentTranslatorConfig, SpecialTokensConfig
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer

TEXTS = ["the cat sat on the mat and the dog sat under the old tree in 1981"] * 9


def save_tiny_models(folder):
    """Save two translators, an encoder, word vectors and a decoder, with random weights."""
    words = train_tokenizer(TEXTS, "words")
    vocab_size, special_tokens = len(words), {"decoder_start": 1, "eos": [2]}
    stack = {"num_layers": 2, "attention": {"num_heads": 2}, "feedforward": {"d_ff": 32}}
    models = {
        "now": preset("translator-tiny", vocab_size=vocab_size, d_model=16, special_tokens=special_tokens),
        "then": RecurrentTranslatorConfig(
            vocab_size, 16, special_tokens=SpecialTokensConfig(decoder_start=1, eos=(2,))
        ),
        "reader": preset("encoder-tiny", vocab_size=vocab_size, d_model=16),
        "dictionary": preset("words-tiny", vocab_size=vocab_size),
        "writer": preset("gpt-tiny", vocab_size=vocab_size, d_model=16, stack=stack),
    }
    seeds = {"now": 8, "then": 2}  # seeds with short outputs
    return [save_model(folder / name, build(config, seed=seeds.get(name, 3)), words) for name, config in models.items()]


def fill_hub_cache(hub):
    """Create a hub cache with one model, in the layout of `huggingface_hub`."""
    stack = {"num_layers": 1, "attention": {"num_heads": 2}, "feedforward": {"d_ff": 32}}
    words = train_tokenizer(TEXTS, "bpe", 280)
    settings = preset("gpt2", vocab_size=280, d_model=16, max_seq_len=32, stack=stack)
    repository = hub / "models--someone--tiny-gpt2"
    write_folder(repository / "snapshots" / "abc123", settings, build(settings, seed=3).state_dict(), words)
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc123", encoding="ascii")
