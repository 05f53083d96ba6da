"""Small models of every kind with every layer variant, and weights large enough to matter."""

from dataclasses import replace

import torch

from peasy.models import config as kinds
from peasy.models.build import build
from peasy.nn import config as nn_config

VOCABULARY, CONTEXT = 61, 64
WIDE = nn_config.MLPConfig(48)
BARE = {"bias": False, "output_bias": False}


def stack(
    attention: nn_config.AttentionConfig | None = None, feedforward=WIDE, norm=None, layers: int = 3
) -> nn_config.StackConfig:
    return nn_config.StackConfig(
        layers, attention or nn_config.AttentionConfig(4), feedforward, norm or nn_config.LayerNormConfig()
    )


def decoder(position, *parts, **more) -> kinds.DecoderConfig:
    return kinds.DecoderConfig(VOCABULARY, 32, stack(*parts), CONTEXT, position, **more)


def both(position, *parts, **more) -> kinds.EncoderDecoderConfig:
    return kinds.EncoderDecoderConfig(
        VOCABULARY,
        32,
        stack(*parts),
        stack(*parts),
        None,
        CONTEXT,
        position,
        **more,
        special_tokens=kinds.SpecialTokensConfig(decoder_start=0),
    )


def shifted(config):
    """Return the config with token shift in every stack."""
    stacks = {name: getattr(config, name) for name in ("stack", "encoder", "decoder") if hasattr(config, name)}
    return replace(config, **{name: replace(each, shift=True) for name, each in stacks.items()})


BANDS = nn_config.Llama3RopeScaling(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=16)
DECODERS: dict[str, kinds.ModelConfig] = {
    "learned": decoder(nn_config.LearnedPositionConfig()),
    "learned-offset": decoder(
        nn_config.LearnedPositionConfig(offset=2), head=nn_config.LMHeadConfig(tied=False, bias=True)
    ),
    "sinusoidal": decoder(
        nn_config.SinusoidalPositionConfig(),
        None,
        nn_config.MLPConfig(48, "relu"),
        embedding=nn_config.EmbeddingConfig(scaled=True),
    ),
    "rotary": decoder(
        nn_config.RotaryConfig(),
        nn_config.AttentionConfig(4, **BARE),
        nn_config.GatedMLPConfig(40),
        nn_config.RMSNormConfig(),
    ),
    "rotary-bands": decoder(nn_config.RotaryConfig(500.0, BANDS), nn_config.AttentionConfig(4, d_head=10)),
    "alibi": decoder(nn_config.AlibiConfig(), None, nn_config.MLPConfig(48, "relu-squared")),
    "relative": decoder(
        nn_config.RelativeBiasConfig(8, 12),
        nn_config.AttentionConfig(4, scale=1.0, **BARE),
        nn_config.GatedMLPConfig(40, "gelu-tanh"),
    ),
    "nowhere": decoder(None),
    "after": decoder(
        nn_config.LearnedPositionConfig(),
        None,
        WIDE,
        nn_config.LayerNormConfig("after"),
        embedding=nn_config.EmbeddingConfig(norm=True),
    ),
    "grouped": decoder(
        nn_config.RotaryConfig(), nn_config.AttentionConfig(4, num_kv_heads=2), WIDE, nn_config.RMSNormConfig()
    ),
    "one-key-head": decoder(nn_config.RotaryConfig(), nn_config.AttentionConfig(4, num_kv_heads=1, qk_norm=True)),
    "window": decoder(nn_config.RotaryConfig(), nn_config.AttentionConfig(4, window=5)),
    "windowed-layers": decoder(nn_config.AlibiConfig(), nn_config.AttentionConfig(4, window=3, windowed_layers=(1,))),
    "softcap": decoder(
        nn_config.RotaryConfig(), nn_config.AttentionConfig(4, softcap=2.0), head=nn_config.LMHeadConfig(softcap=5.0)
    ),
    "shift": shifted(
        decoder(nn_config.RotaryConfig(), nn_config.AttentionConfig(4, **BARE), nn_config.MLPConfig(48, "relu-squared"))
    ),
    "shift-after-window": shifted(
        decoder(
            nn_config.AlibiConfig(), nn_config.AttentionConfig(4, window=5), WIDE, nn_config.LayerNormConfig("after")
        )
    ),
    "ngrams": decoder(nn_config.RotaryConfig(), embedding=nn_config.EmbeddingConfig(max_ngram=3, ngram_buckets=50)),
    "ngrams-shift": shifted(
        decoder(
            nn_config.LearnedPositionConfig(),
            embedding=nn_config.EmbeddingConfig(max_ngram=2, ngram_buckets=9, scaled=True),
        )
    ),
}
ENCODERS: dict[str, kinds.ModelConfig] = {
    "encoder": kinds.EncoderConfig(VOCABULARY, 32, stack(), CONTEXT, lm_head=nn_config.LMHeadConfig(bias=True, transform="gelu")),
    "encoder-after": kinds.EncoderConfig(
        VOCABULARY, 32, stack(norm=nn_config.LayerNormConfig("after")), CONTEXT,
        embedding=nn_config.EmbeddingConfig(segments=2, norm=True), lm_head=nn_config.LMHeadConfig(), pooler=True,
    ),
    "encoder-relative": kinds.EncoderConfig(VOCABULARY, 32, stack(), None, nn_config.RelativeBiasConfig(8, 12), lm_head=nn_config.LMHeadConfig()),
    "encoder-alibi": kinds.EncoderConfig(
        VOCABULARY, 32, stack(nn_config.AttentionConfig(4, window=4)), None, nn_config.AlibiConfig(), lm_head=nn_config.LMHeadConfig()
    ),
    "encoder-shift": shifted(kinds.EncoderConfig(VOCABULARY, 32, stack(), CONTEXT, lm_head=nn_config.LMHeadConfig())),
}  # fmt: skip
TRANSLATORS: dict[str, kinds.ModelConfig] = {
    "both": both(
        nn_config.SinusoidalPositionConfig(), None, nn_config.MLPConfig(48, "relu"), nn_config.LayerNormConfig("after")
    ),
    "both-relative": both(
        nn_config.RelativeBiasConfig(8, 12),
        nn_config.AttentionConfig(4, scale=1.0, **BARE),
        WIDE,
        nn_config.RMSNormConfig(),
    ),
    "both-two-vocabularies": replace(both(nn_config.SinusoidalPositionConfig("halves")), target_vocabulary=67),
    "both-shift": shifted(both(nn_config.SinusoidalPositionConfig(), None, nn_config.MLPConfig(48, "relu"))),
}
BASELINES: dict[str, kinds.ModelConfig] = {
    "lstm": kinds.RecurrentConfig(VOCABULARY, 32, 2),
    "gru": kinds.RecurrentConfig(VOCABULARY, 32, 1, "gru"),
    "convolution": kinds.ConvolutionConfig(VOCABULARY, 32, 3),
    "ngram": kinds.NGramConfig(VOCABULARY, 3),
    "words": kinds.Word2VecConfig(VOCABULARY, 8, window=3),
    "skip-gram": kinds.Word2VecConfig(VOCABULARY, 8, "skip-gram", 3),
}
RECURRENT_TRANSLATORS: dict[str, kinds.ModelConfig] = {
    "recurrent-translator": kinds.RecurrentTranslatorConfig(
        VOCABULARY, 32, special_tokens=kinds.SpecialTokensConfig(decoder_start=0)
    ),
    "recurrent-translator-lstm": kinds.RecurrentTranslatorConfig(
        VOCABULARY, 32, 16, 67, 2, "lstm", special_tokens=kinds.SpecialTokensConfig(decoder_start=0)
    ),
}
TRANSFORMERS = DECODERS | ENCODERS | TRANSLATORS
SOURCED = TRANSLATORS | RECURRENT_TRANSLATORS
WRITERS = DECODERS | SOURCED | BASELINES
EVERYONE = TRANSFORMERS | BASELINES | RECURRENT_TRANSLATORS


def make(config: kinds.ModelConfig, seed: int = 0, double: bool = False):
    """Build a model with weights large enough to matter."""
    model = build(config, seed=seed)
    draw = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(torch.randn(weight.shape, generator=draw) * 0.2)
            else:
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.3)
    if model.trained_by == "counts":
        model.observe(some_ids(8, 40, seed=5) % 7)
    return model.double() if double else model


def some_ids(rows: int = 2, length: int = 17, seed: int = 3) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def source_of(model, rows: int = 2) -> dict[str, torch.Tensor]:
    """Return the source arguments of an encoder-decoder model."""
    return {"source": some_ids(rows, 9, seed=8)} if model.reads_source else {}
