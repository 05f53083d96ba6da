"""Tiny models of every kind for the page tests."""

from peasy.checkpoint.huggingface import write_folder
from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.config import RecurrentTranslatorConfig, SpecialTokensConfig
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer

TEXTS = ["the cat sat on the mat and the dog sat under the old tree in 1981"] * 9


def save_pupils(folder):
    """Save two translators, an encoder, word vectors and a decoder, with random weights."""
    words = train_tokenizer(TEXTS, "words")
    count, special = len(words), {"start": 1, "end": [2]}
    stack = {"layers": 2, "attention": {"heads": 2}, "feedforward": {"width": 32}}
    models = {
        "now": preset("translator-tiny", vocabulary=count, d_model=16, special=special),
        "then": RecurrentTranslatorConfig(count, 16, special_tokens=SpecialTokensConfig(decoder_start=1, eos=(2,))),
        "reader": preset("encoder-tiny", vocabulary=count, d_model=16),
        "dictionary": preset("words-tiny", vocabulary=count),
        "writer": preset("gpt-tiny", vocabulary=count, d_model=16, stack=stack),
    }
    seeds = {"now": 8, "then": 2}  # seeds with short outputs
    return [save_model(folder / name, build(config, seed=seeds.get(name, 3)), words) for name, config in models.items()]


def fill_hub(hub):
    """Create a hub cache with one model, in the layout of `huggingface_hub`."""
    stack = {"layers": 1, "attention": {"heads": 2}, "feedforward": {"width": 32}}
    words = train_tokenizer(TEXTS, "bpe", 280)
    settings = preset("gpt2", vocabulary=280, d_model=16, context=32, stack=stack)
    place = hub / "models--somebody--tiny-gpt2"
    write_folder(place / "snapshots" / "abc123", settings, build(settings, seed=3).state_dict(), words)
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("abc123", encoding="ascii")
