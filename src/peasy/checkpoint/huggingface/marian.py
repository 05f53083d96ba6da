"""Marian, Pegasus, BART, mBART and M2M100 (NLLB): one table and weight map; differences are options."""

from collections.abc import Mapping

from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import Custom, Field, Fixed, Settings, TokenIdFields, activation, length
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.weight_map import ROW_VECTOR, WeightMap, WeightRule, module_rules
from peasy.models.config import EncoderDecoderConfig

_IGNORED = """
    encoder_layerdrop decoder_layerdrop is_decoder num_hidden_layers extra_pos_embeddings
    force_bos_token_to_be_generated
"""


_STACK_FIELDS = tuple(
    field
    for side in ("encoder", "decoder")
    for field in (
        Field(f"{side}_layers", f"{side}.num_layers", ConfigFields.num_layers),
        Field(f"{side}_attention_heads", f"{side}.attention.num_heads"),
        Field(f"{side}_ffn_dim", f"{side}.feedforward.d_ff"),
    )
)


def _embeddings(separate_vocabularies: bool) -> Custom:
    """Return the part of vocabularies and tied weights; with `separate_vocabularies`, they may differ.

    With untied embeddings, newer files store encoder and decoder embeddings separately, whatever the config contains.
    """

    def read(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        shared = True
        if separate_vocabularies:
            separate = weights.differ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
            shared = fields.boolean("share_encoder_decoder_embeddings", True) and not separate
            target = fields.integer("decoder_vocab_size", settings["vocab_size"])
            settings["target_vocab_size"] = None if shared else target
        embedding = "model.shared.weight" if shared else "model.decoder.embed_tokens.weight"
        tied = fields.boolean("tie_word_embeddings", True) and not weights.differ("lm_head.weight", embedding)
        settings |= {"lm_head.tied": tied, "lm_head.bias": "final_logits_bias" in weights}

    def write(settings: Settings) -> dict[str, object]:
        tied, target = {"tie_word_embeddings": settings["lm_head.tied"]}, settings["target_vocab_size"]
        if not separate_vocabularies:
            return tied
        vocabulary = {"decoder_vocab_size": target or settings["vocab_size"]}
        return {**tied, **vocabulary, "share_encoder_decoder_embeddings": target is None}

    return Custom(read, write)


def _write_forced_eos(settings: Settings) -> dict[str, object]:
    return {"forced_eos_token_id": next(iter(settings["special_tokens.eos"]), None)}


def _family(
    name: str,
    architecture: str,
    placement: str,
    *,
    position: Mapping[str, object] | None = None,
    scaled: bool = False,
    default_activation: str = "gelu",
    start: str = "eos_token_id",
) -> ModelFamily:
    position = position or {"kind": "sinusoidal", "layout": "halves"}
    learned, pre = position["kind"] == "learned", placement == "pre"
    settings = {f"position.{field}": value for field, value in position.items()}
    for side in ("encoder", "decoder"):
        settings |= {f"{side}.norm.kind": "layer", f"{side}.norm.placement": placement}
        settings[f"{side}.feedforward.kind"] = "mlp"
    usual = {"normalize_before": pre, "add_final_layer_norm": pre, "normalize_embedding": learned}
    usual |= {"add_bias_logits": False, "static_position_embeddings": not learned}
    return ModelFamily(
        name,
        (architecture, f"{architecture.removesuffix('MTModel').removesuffix('ForConditionalGeneration')}Model"),
        {"kind": "encoder-decoder", "target_positions": learned, "embedding.norm": learned, **settings},
        (
            *(
                Fixed(field, (value,), "Only the arrangement of transformers is supported.")
                for field, value in usual.items()
            ),
            *(Field(field, field) for field in ("vocab_size", "d_model")),
            _embeddings(separate_vocabularies=name == "marian"),
            length(1024, unlimited=1024),  # size of their table of sinusoids: a number is required
            activation(
                "activation_function",
                default_activation,
                "encoder.feedforward.activation decoder.feedforward.activation",
            ),
            Field("scale_embedding", "embedding.scaled", ConfigFields.boolean, scaled),
            Field("dropout", "dropout", ConfigFields.probability, 0.1),
            *_STACK_FIELDS,
            Custom(lambda *_: None, _write_forced_eos),
        ),
        _weight_map,
        prefix="model.",
        special_tokens=TokenIdFields(start),
        ignored=_IGNORED,
    )


def _weight_map(config: EncoderDecoderConfig) -> WeightMap:
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
            WeightRule("final_logits_bias", "lm_head.bias", ROW_VECTOR),
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


_LEARNED = {"kind": "learned", "offset": 2}
_FROM_TWO = {"kind": "sinusoidal", "layout": "halves", "offset": 2, "reaches_base": True}
"""The first token of BART and M2M100 has position 2: their tables begin with two unused rows."""

FAMILIES = (
    _family("marian", "MarianMTModel", "post", start="pad_token_id"),
    _family("pegasus", "PegasusForConditionalGeneration", "pre", start="pad_token_id"),
    _family("bart", "BartForConditionalGeneration", "post", position=_LEARNED),
    _family("mbart", "MBartForConditionalGeneration", "pre", position=_LEARNED, start="bos_token_id"),
    _family(
        *("m2m_100", "M2M100ForConditionalGeneration", "pre"),
        position=_FROM_TWO,
        scaled=True,
        default_activation="relu",
    ),
)
