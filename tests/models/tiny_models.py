"""Small models of every kind with every layer variant, and weights large enough to matter."""

from dataclasses import replace

import torch

from peasy.models import config as model_config
from peasy.models.build import build
from peasy.nn import config as nn_config

VOCAB_SIZE, MAX_SEQ_LEN = 61, 64
MLP = nn_config.MLPConfig(48)
NO_BIAS = {"bias": False, "output_bias": False}


def stack(
    attention: nn_config.AttentionConfig | None = None, feedforward=MLP, norm=None, layers: int = 3, **options
) -> nn_config.StackConfig:
    attention, norm = attention or nn_config.AttentionConfig(4), norm or nn_config.LayerNormConfig()
    return nn_config.StackConfig(layers, attention, feedforward, norm, **options)


def decoder(position, *stack_args, **options) -> model_config.DecoderConfig:
    return model_config.DecoderConfig(VOCAB_SIZE, 32, stack(*stack_args), MAX_SEQ_LEN, position, **options)


def encoder(stack_config: nn_config.StackConfig, **options) -> model_config.EncoderConfig:
    options = {"max_seq_len": MAX_SEQ_LEN, "lm_head": nn_config.LMHeadConfig()} | options
    return model_config.EncoderConfig(VOCAB_SIZE, 32, stack_config, **options)


def encoder_decoder(position, *stack_args, **options) -> model_config.EncoderDecoderConfig:
    return model_config.EncoderDecoderConfig(
        VOCAB_SIZE,
        32,
        stack(*stack_args),
        stack(*stack_args),
        None,
        MAX_SEQ_LEN,
        position,
        **options,
        special_tokens=model_config.SpecialTokensConfig(decoder_start=0),
    )


def with_token_shift(config):
    """Return the config with token shift in every stack."""
    stacks = {name: getattr(config, name) for name in ("stack", "encoder", "decoder") if hasattr(config, name)}
    return replace(config, **{name: replace(value, token_shift=True) for name, value in stacks.items()})


LLAMA3_SCALING = nn_config.Llama3RopeScaling(
    factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=16
)
YARN = nn_config.YarnRopeScaling(4.0, 16)
DECODERS: dict[str, model_config.ModelConfig] = {
    "norms-around": decoder(
        nn_config.RotaryConfig(500.0, nn_config.LinearRopeScaling(2.0), local_base=50.0),
        nn_config.AttentionConfig(4, 2, 16, softcap=2.0, qk_norm=True, window=4, windowed_layers=(0, 2), **NO_BIAS),
        nn_config.GatedMLPConfig(40, "gelu-tanh"),
        nn_config.RMSNormConfig("around", unit_offset=True),
        embedding=nn_config.EmbeddingConfig(scaled=True),
    ),
    "norms-on-outputs": decoder(
        nn_config.RotaryConfig(500.0, YARN, skipped_layers=(1,)),
        nn_config.AttentionConfig(4, 2, qk_norm=True, qk_norm_over="projection"),
        nn_config.GatedMLPConfig(40),
        nn_config.RMSNormConfig("output"),
    ),
    "parallel": model_config.DecoderConfig(
        VOCAB_SIZE, 32, stack(parallel=True, residual_scale=0.7), MAX_SEQ_LEN, nn_config.RotaryConfig(share=0.5)
    ),
    "parallel-shared-norm": model_config.DecoderConfig(
        VOCAB_SIZE, 32, stack(parallel=True, shared_norm=True), MAX_SEQ_LEN, nn_config.RotaryConfig()
    ),
    "sinks": decoder(
        nn_config.RotaryConfig(),
        nn_config.AttentionConfig(4, 2, window=5, windowed_layers=(1,), sinks=True),
        embedding=nn_config.EmbeddingConfig(multiplier=2.0),
        lm_head=nn_config.LMHeadConfig(divisor=3.0),
    ),
    "learned": decoder(nn_config.LearnedPositionConfig()),
    "learned-offset": decoder(
        nn_config.LearnedPositionConfig(offset=2), lm_head=nn_config.LMHeadConfig(tied=False, bias=True)
    ),
    "sinusoidal": decoder(
        nn_config.SinusoidalPositionConfig(),
        None,
        nn_config.MLPConfig(48, "relu"),
        embedding=nn_config.EmbeddingConfig(scaled=True),
    ),
    "rotary": decoder(
        nn_config.RotaryConfig(),
        nn_config.AttentionConfig(4, **NO_BIAS),
        nn_config.GatedMLPConfig(40),
        nn_config.RMSNormConfig(),
    ),
    "rotary-llama3": decoder(nn_config.RotaryConfig(500.0, LLAMA3_SCALING), nn_config.AttentionConfig(4, d_head=10)),
    "alibi": decoder(nn_config.AlibiConfig(), None, nn_config.MLPConfig(48, "relu-squared")),
    "relative": decoder(
        nn_config.RelativeBiasConfig(8, 12),
        nn_config.AttentionConfig(4, scale=1.0, **NO_BIAS),
        nn_config.GatedMLPConfig(40, "gelu-tanh"),
    ),
    "no-position": decoder(None),
    "post-norm": decoder(
        nn_config.LearnedPositionConfig(),
        None,
        MLP,
        nn_config.LayerNormConfig("post"),
        embedding=nn_config.EmbeddingConfig(norm=True),
    ),
    "grouped": decoder(
        nn_config.RotaryConfig(), nn_config.AttentionConfig(4, num_kv_heads=2), MLP, nn_config.RMSNormConfig()
    ),
    "multi-query": decoder(nn_config.RotaryConfig(), nn_config.AttentionConfig(4, num_kv_heads=1, qk_norm=True)),
    "window": decoder(nn_config.RotaryConfig(), nn_config.AttentionConfig(4, window=5)),
    "windowed-layers": decoder(nn_config.AlibiConfig(), nn_config.AttentionConfig(4, window=3, windowed_layers=(1,))),
    "softcap": decoder(
        nn_config.RotaryConfig(), nn_config.AttentionConfig(4, softcap=2.0), lm_head=nn_config.LMHeadConfig(softcap=5.0)
    ),
    "shift": with_token_shift(
        decoder(
            nn_config.RotaryConfig(), nn_config.AttentionConfig(4, **NO_BIAS), nn_config.MLPConfig(48, "relu-squared")
        )
    ),
    "shift-post-norm-window": with_token_shift(
        decoder(nn_config.AlibiConfig(), nn_config.AttentionConfig(4, window=5), MLP, nn_config.LayerNormConfig("post"))
    ),
    "ngrams": decoder(nn_config.RotaryConfig(), embedding=nn_config.EmbeddingConfig(max_ngram=3, ngram_buckets=50)),
    "ngrams-shift": with_token_shift(
        decoder(
            nn_config.LearnedPositionConfig(),
            embedding=nn_config.EmbeddingConfig(max_ngram=2, ngram_buckets=9, scaled=True),
        )
    ),
}
ENCODERS: dict[str, model_config.ModelConfig] = {
    "encoder": encoder(stack(), lm_head=nn_config.LMHeadConfig(bias=True, transform="gelu")),
    "encoder-factorised": encoder(
        stack(),
        embedding=nn_config.EmbeddingConfig(segments=2, norm=True, width=12),
        lm_head=nn_config.LMHeadConfig(bias=True, transform="gelu"),
    ),
    "encoder-post-norm": encoder(
        stack(norm=nn_config.LayerNormConfig("post")),
        embedding=nn_config.EmbeddingConfig(segments=2, norm=True),
        pooler=True,
    ),
    "encoder-relative": encoder(
        stack(), max_seq_len=None, position=nn_config.RelativeBiasConfig(8, 12), dense=nn_config.DenseConfig(12)
    ),
    "encoder-alibi": encoder(
        stack(nn_config.AttentionConfig(4, window=4)), max_seq_len=None, position=nn_config.AlibiConfig()
    ),
    "encoder-shift": with_token_shift(encoder(stack())),
    "encoder-local": encoder(
        stack(nn_config.AttentionConfig(4, window=4, windowed_layers=(1, 2)), first_norm=False),
        position=nn_config.RotaryConfig(1000.0, local_base=50.0),
        embedding=nn_config.EmbeddingConfig(norm=True),
        lm_head=nn_config.LMHeadConfig(bias=True, transform="gelu", transform_bias=False),
    ),
    "encoder-two-positions": encoder(
        stack(norm=nn_config.LayerNormConfig("post")),
        position=nn_config.LearnedPositionConfig(2, nn_config.RelativeBiasConfig(8, 12)),
        classifier=nn_config.ClassifierConfig(("no", "yes"), transform="tanh"),
    ),
}
TRANSLATORS: dict[str, model_config.ModelConfig] = {
    "seq2seq": encoder_decoder(
        nn_config.SinusoidalPositionConfig(), None, nn_config.MLPConfig(48, "relu"), nn_config.LayerNormConfig("post")
    ),
    "seq2seq-relative": encoder_decoder(
        nn_config.RelativeBiasConfig(8, 12),
        nn_config.AttentionConfig(4, scale=1.0, **NO_BIAS),
        MLP,
        nn_config.RMSNormConfig(),
    ),
    "seq2seq-two-vocabularies": replace(
        encoder_decoder(nn_config.SinusoidalPositionConfig("halves")), target_vocab_size=67
    ),
    "seq2seq-own-positions": replace(
        encoder_decoder(
            nn_config.LearnedPositionConfig(2),
            None,
            MLP,
            nn_config.LayerNormConfig("post"),
            embedding=nn_config.EmbeddingConfig(norm=True),
        ),
        target_positions=True,
    ),
    "seq2seq-shift": with_token_shift(
        encoder_decoder(nn_config.SinusoidalPositionConfig(), None, nn_config.MLPConfig(48, "relu"))
    ),
}
BASELINES: dict[str, model_config.ModelConfig] = {
    "lstm": model_config.RecurrentConfig(VOCAB_SIZE, 32, 2),
    "gru": model_config.RecurrentConfig(VOCAB_SIZE, 32, 1, "gru"),
    "convolution": model_config.ConvolutionConfig(VOCAB_SIZE, 32, 3),
    "ngram": model_config.NGramConfig(VOCAB_SIZE, 3),
    "words": model_config.Word2VecConfig(VOCAB_SIZE, 8, window=3),
    "skip-gram": model_config.Word2VecConfig(VOCAB_SIZE, 8, "skip-gram", 3),
}
RECURRENT_TRANSLATORS: dict[str, model_config.ModelConfig] = {
    "recurrent-translator": model_config.RecurrentTranslatorConfig(
        VOCAB_SIZE, 32, special_tokens=model_config.SpecialTokensConfig(decoder_start=0)
    ),
    "recurrent-translator-lstm": model_config.RecurrentTranslatorConfig(
        VOCAB_SIZE, 32, 16, 67, 2, "lstm", special_tokens=model_config.SpecialTokensConfig(decoder_start=0)
    ),
}
TRANSFORMERS = DECODERS | ENCODERS | TRANSLATORS
SEQ2SEQ_MODELS = TRANSLATORS | RECURRENT_TRANSLATORS
GENERATIVE_MODELS = DECODERS | SEQ2SEQ_MODELS | BASELINES
ALL_MODELS = TRANSFORMERS | BASELINES | RECURRENT_TRANSLATORS


def make(config: model_config.ModelConfig, seed: int = 0, double: bool = False):
    """Build a model with weights large enough to matter."""
    model = build(config, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
            else:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    if model.trained_by == "counts":
        model.add_counts(some_ids(8, 40, seed=5) % 7)
    return model.double() if double else model


def some_ids(rows: int = 2, length: int = 17, seed: int = 3) -> torch.Tensor:
    return torch.randint(1, VOCAB_SIZE, (rows, length), generator=torch.Generator().manual_seed(seed))


def source_of(model, rows: int = 2) -> dict[str, torch.Tensor]:
    """Return the source arguments of an encoder-decoder model."""
    return {"source": some_ids(rows, 9, seed=8)} if model.is_encoder_decoder else {}
