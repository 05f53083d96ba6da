"""Small models of every kind with every layer variant, and weights large enough to matter."""

from dataclasses import replace

import torch

from peasy.models import config as kinds
from peasy.models.build import build
from peasy.nn import part

VOCABULARY, CONTEXT = 61, 64
WIDE = part.Plain(48)
BARE = {"bias": False, "output_bias": False}


def stack(attention: part.Attention | None = None, feedforward=WIDE, norm=None, layers: int = 3) -> part.Stack:
    return part.Stack(layers, attention or part.Attention(4), feedforward, norm or part.LayerNorm())


def decoder(position, *parts, **more) -> kinds.DecoderConfig:
    return kinds.DecoderConfig(VOCABULARY, 32, stack(*parts), CONTEXT, position, **more)


def both(position, *parts, **more) -> kinds.EncoderDecoderConfig:
    return kinds.EncoderDecoderConfig(
        VOCABULARY, 32, stack(*parts), stack(*parts), None, CONTEXT, position, **more, special=kinds.Special(start=0)
    )


def shifted(config):
    """Return the config with token shift in every stack."""
    stacks = {name: getattr(config, name) for name in ("stack", "encoder", "decoder") if hasattr(config, name)}
    return replace(config, **{name: replace(each, shift=True) for name, each in stacks.items()})


BANDS = part.BandScaling(factor=4.0, low=1.0, high=4.0, context=16)
DECODERS: dict[str, kinds.Config] = {
    "learned": decoder(part.Learned()),
    "learned-offset": decoder(part.Learned(offset=2), head=part.Head(tied=False, bias=True)),
    "sinusoidal": decoder(part.Sinusoidal(), None, part.Plain(48, "relu"), embedding=part.Embedding(scaled=True)),
    "rotary": decoder(part.Rotary(), part.Attention(4, **BARE), part.Gated(40), part.RootNorm()),
    "rotary-bands": decoder(part.Rotary(500.0, BANDS), part.Attention(4, d_head=10)),
    "alibi": decoder(part.Alibi(), None, part.Plain(48, "relu-squared")),
    "relative": decoder(part.Relative(8, 12), part.Attention(4, scale=1.0, **BARE), part.Gated(40, "gelu-tanh")),
    "nowhere": decoder(None),
    "after": decoder(part.Learned(), None, WIDE, part.LayerNorm("after"), embedding=part.Embedding(norm=True)),
    "grouped": decoder(part.Rotary(), part.Attention(4, key_heads=2), WIDE, part.RootNorm()),
    "one-key-head": decoder(part.Rotary(), part.Attention(4, key_heads=1, norm_heads=True)),
    "window": decoder(part.Rotary(), part.Attention(4, window=5)),
    "windowed-layers": decoder(part.Alibi(), part.Attention(4, window=3, windowed=(1,))),
    "softcap": decoder(part.Rotary(), part.Attention(4, softcap=2.0), head=part.Head(softcap=5.0)),
    "shift": shifted(decoder(part.Rotary(), part.Attention(4, **BARE), part.Plain(48, "relu-squared"))),
    "shift-after-window": shifted(decoder(part.Alibi(), part.Attention(4, window=5), WIDE, part.LayerNorm("after"))),
    "ngrams": decoder(part.Rotary(), embedding=part.Embedding(ngrams=3, buckets=50)),
    "ngrams-shift": shifted(decoder(part.Learned(), embedding=part.Embedding(ngrams=2, buckets=9, scaled=True))),
}
ENCODERS: dict[str, kinds.Config] = {
    "encoder": kinds.EncoderConfig(VOCABULARY, 32, stack(), CONTEXT, head=part.Head(bias=True, transform="gelu")),
    "encoder-after": kinds.EncoderConfig(
        VOCABULARY, 32, stack(norm=part.LayerNorm("after")), CONTEXT,
        embedding=part.Embedding(segments=2, norm=True), head=part.Head(), pooler=True,
    ),
    "encoder-relative": kinds.EncoderConfig(VOCABULARY, 32, stack(), None, part.Relative(8, 12), head=part.Head()),
    "encoder-alibi": kinds.EncoderConfig(
        VOCABULARY, 32, stack(part.Attention(4, window=4)), None, part.Alibi(), head=part.Head()
    ),
    "encoder-shift": shifted(kinds.EncoderConfig(VOCABULARY, 32, stack(), CONTEXT, head=part.Head())),
}  # fmt: skip
TRANSLATORS: dict[str, kinds.Config] = {
    "both": both(part.Sinusoidal(), None, part.Plain(48, "relu"), part.LayerNorm("after")),
    "both-relative": both(part.Relative(8, 12), part.Attention(4, scale=1.0, **BARE), WIDE, part.RootNorm()),
    "both-two-vocabularies": replace(both(part.Sinusoidal("halves")), target_vocabulary=67),
    "both-shift": shifted(both(part.Sinusoidal(), None, part.Plain(48, "relu"))),
}
BASELINES: dict[str, kinds.Config] = {
    "lstm": kinds.RecurrentConfig(VOCABULARY, 32, 2),
    "gru": kinds.RecurrentConfig(VOCABULARY, 32, 1, "gru"),
    "convolution": kinds.ConvolutionConfig(VOCABULARY, 32, 3),
    "ngram": kinds.NGramConfig(VOCABULARY, 3),
    "words": kinds.WordsConfig(VOCABULARY, 8, window=3),
    "skip-gram": kinds.WordsConfig(VOCABULARY, 8, "skip-gram", 3),
}
RECURRENT_TRANSLATORS: dict[str, kinds.Config] = {
    "recurrent-translator": kinds.RecurrentTranslatorConfig(VOCABULARY, 32, special=kinds.Special(start=0)),
    "recurrent-translator-lstm": kinds.RecurrentTranslatorConfig(
        VOCABULARY, 32, 16, 67, 2, "lstm", special=kinds.Special(start=0)
    ),
}
TRANSFORMERS = DECODERS | ENCODERS | TRANSLATORS
SOURCED = TRANSLATORS | RECURRENT_TRANSLATORS
WRITERS = DECODERS | SOURCED | BASELINES
EVERYONE = TRANSFORMERS | BASELINES | RECURRENT_TRANSLATORS


def make(config: kinds.Config, seed: int = 0, double: bool = False):
    """Build a model with weights large enough to matter."""
    model = build(config, seed=seed)
    draw = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(torch.randn(weight.shape, generator=draw) * 0.2)
            else:
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.3)
    if model.learns == "counts":
        model.observe(some_ids(8, 40, seed=5) % 7)
    return model.double() if double else model


def some_ids(rows: int = 2, length: int = 17, seed: int = 3) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def source_of(model, rows: int = 2) -> dict[str, torch.Tensor]:
    """Return the source arguments of an encoder-decoder model."""
    return {"source": some_ids(rows, 9, seed=8)} if model.reads_source else {}
