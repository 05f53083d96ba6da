"""Marian, Pegasus, BART, mBART and M2M100 (NLLB): one weight map; differences are options."""

from dataclasses import dataclass
from functools import partial

from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.weight_map import RowVector, WeightMap, WeightRule, module_rules
from peasy.models.config import EncoderDecoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = """
    activation_dropout encoder_layerdrop decoder_layerdrop is_decoder is_encoder_decoder num_hidden_layers
    extra_pos_embeddings force_bos_token_to_be_generated gradient_checkpointing
"""
_POSITION_OFFSET = 2
"""Position of the first token in BART and M2M100, whose tables begin with two unused rows."""
_HALVES = nn_config.SinusoidalPositionConfig("halves")


@dataclass(frozen=True)
class _MarianOptions:
    """Differences between the families: norms, vocabularies, positions and defaults.

    `learned_positions`: encoder and decoder have a table and a norm of their embeddings each.
    """

    norm_placement: nn_config.NormPlacement
    separate_vocabularies: bool = False
    position: nn_config.PositionConfig = _HALVES
    scaled_embedding: bool = False
    activation: str = "gelu"
    start: str = "pad_token_id"

    @property
    def learned_positions(self) -> bool:
        """True if the positions are learned."""
        return isinstance(self.position, nn_config.LearnedPositionConfig)


def read_config(fields: ConfigFields, weights: WeightNames, *, options: _MarianOptions) -> EncoderDecoderConfig:
    """Convert a config of this family to peasy's.

    With untied embeddings, newer files store encoder and decoder embeddings separately, whatever the config contains.
    """
    fields.ignore(IGNORED_FIELDS)
    pre, learned = options.norm_placement == "pre", options.learned_positions
    usual = {"normalize_before": pre, "add_final_layer_norm": pre, "normalize_embedding": learned}
    usual |= {"add_bias_logits": False, "static_position_embeddings": not learned}
    for name, value in usual.items():
        fields.require_value(name, value, reason="Only the arrangement of transformers is supported.")
    shared, vocabulary = True, fields.integer("vocab_size")
    target = vocabulary
    if options.separate_vocabularies:
        separate = weights.differ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        shared = fields.boolean("share_encoder_decoder_embeddings", True) and not separate
        target = fields.integer("decoder_vocab_size", vocabulary)
    embedding = "model.shared.weight" if shared else "model.decoder.embed_tokens.weight"
    tied = fields.boolean("tie_word_embeddings", True) and not weights.differ("lm_head.weight", embedding)
    return EncoderDecoderConfig(
        vocab_size=vocabulary,
        d_model=fields.integer("d_model"),
        encoder=_read_stack(fields, "encoder", options),
        decoder=_read_stack(fields, "decoder", options),
        target_vocab_size=None if shared else target,
        target_positions=options.learned_positions,
        max_seq_len=fields.integer("max_position_embeddings", 1024),
        position=options.position,
        embedding=nn_config.EmbeddingConfig(
            scaled=fields.boolean("scale_embedding", options.scaled_embedding), norm=options.learned_positions
        ),
        lm_head=nn_config.LMHeadConfig(tied, bias="final_logits_bias" in weights),
        dropout=fields.number("dropout", 0.1, maximum=0.999),
        special_tokens=fields.special_tokens(decoder_start_field=options.start),
    )


def write_config(config: EncoderDecoderConfig, *, options: _MarianOptions) -> dict[str, object]:
    """Convert peasy's config to one of this family."""
    vocabularies = {
        "decoder_vocab_size": config.target_vocab_size or config.vocab_size,
        "share_encoder_decoder_embeddings": config.target_vocab_size is None,
    }
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        **(vocabularies if options.separate_vocabularies else {}),
        "d_model": config.d_model,
        "max_position_embeddings": config.max_seq_len or 1024,  # size of their table of sinusoids: a number is required
        "activation_function": TO_HF_ACTIVATION[config.encoder.feedforward.activation],
        "scale_embedding": config.embedding.scaled,
        "tie_word_embeddings": config.lm_head.tied,
        "dropout": config.dropout,
        "forced_eos_token_id": config.special_tokens.eos[0] if config.special_tokens.eos else None,
        **_write_stack("encoder", config.encoder),
        **_write_stack("decoder", config.decoder),
    }


def _read_stack(fields: ConfigFields, side: str, options: _MarianOptions) -> nn_config.StackConfig:
    activation = fields.activation("activation_function", options.activation)
    return nn_config.StackConfig(
        num_layers=fields.num_layers(f"{side}_layers"),
        attention=nn_config.AttentionConfig(num_heads=fields.integer(f"{side}_attention_heads")),
        feedforward=nn_config.MLPConfig(d_ff=fields.integer(f"{side}_ffn_dim"), activation=activation),
        norm=nn_config.LayerNormConfig(options.norm_placement),
    )


def _write_stack(side: str, stack: nn_config.StackConfig) -> dict[str, object]:
    return {
        f"{side}_layers": stack.num_layers,
        f"{side}_attention_heads": stack.attention.num_heads,
        f"{side}_ffn_dim": stack.feedforward.d_ff,
    }


def weight_map(config: EncoderDecoderConfig) -> WeightMap:
    """Return the weight map."""
    shared = config.target_vocab_size is None
    source = "model.shared.weight" if shared else "model.encoder.embed_tokens.weight"
    target = "model.shared.weight" if shared else "model.decoder.embed_tokens.weight"
    copies = {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": source}
    return WeightMap(
        rules=(
            WeightRule(source, "embedding.token.weight"),
            WeightRule(target, "target_embedding.token.weight"),
            *_block_rules("encoder", "embedding"),
            *_block_rules("decoder", "target_embedding"),
            WeightRule("final_logits_bias", "lm_head.bias", RowVector()),
            WeightRule("lm_head.weight", "lm_head.weight"),
        ),
        tied_copies={**(copies if shared else {}), "lm_head.weight": target},
        derived_buffers=tuple(
            f"model.{side}.embed_positions.{name}" for side in ("encoder", "decoder") for name in ("weight", "weights")
        ),
        unused=() if shared else ("model.shared.weight",),
    )


def _block_rules(side: str, embedding: str) -> tuple[WeightRule, ...]:
    attentions = {"self_attn": "attention", "encoder_attn": "cross_attention"}
    projections = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
    names = {
        f"{external}.{proj}": f"{internal}.{name}"
        for external, internal in attentions.items()
        for proj, name in projections.items()
    }
    names |= {f"{external}_layer_norm": f"{internal}_norm" for external, internal in attentions.items()}
    names |= {"fc1": "feedforward.up", "fc2": "feedforward.down", "final_layer_norm": "feedforward_norm"}
    return (
        *module_rules(f"model.{side}.layers.{{layer}}.", f"{side}.blocks.{{layer}}.", names),
        *module_rules(f"model.{side}.", f"{side}.", {"layer_norm": "norm"}),
        *module_rules(
            f"model.{side}.", f"{embedding}.", {"embed_positions": "position", "layernorm_embedding": "norm"}
        ),
    )


def _make_family(name: str, architecture: str, options: _MarianOptions) -> ModelFamily:
    return ModelFamily(
        name,
        EncoderDecoderConfig,
        (architecture,),
        partial(read_config, options=options),
        partial(write_config, options=options),
        weight_map,
        prefix="model.",
    )


_LEARNED = nn_config.LearnedPositionConfig(_POSITION_OFFSET)
_FROM_TWO = nn_config.SinusoidalPositionConfig("halves", _POSITION_OFFSET, reaches_base=True)

FAMILIES = (
    _make_family("marian", "MarianMTModel", _MarianOptions("post", separate_vocabularies=True)),
    _make_family("pegasus", "PegasusForConditionalGeneration", _MarianOptions("pre")),
    _make_family(
        "bart", "BartForConditionalGeneration", _MarianOptions("post", position=_LEARNED, start="eos_token_id")
    ),
    _make_family(
        "mbart", "MBartForConditionalGeneration", _MarianOptions("pre", position=_LEARNED, start="eos_token_id")
    ),
    _make_family(
        "m2m_100",
        "M2M100ForConditionalGeneration",
        _MarianOptions("pre", position=_FROM_TWO, scaled_embedding=True, activation="relu", start="eos_token_id"),
    ),
)
