"""GPT-2: learned positions, pre-norm, fused QKV projection, matrices stored transposed."""

from dataclasses import replace

from peasy.checkpoint.huggingface.classification import (
    OF_LAST_TOKEN,
    architecture_ending,
    read_classifier,
    write_labels,
)
from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.weight_map import (
    QUERY_KEY_VALUE,
    SplitFused,
    Transpose,
    WeightMap,
    block_names,
    decoder_map,
    fused_rules,
    module_rules,
)
from peasy.models.config import DecoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = """
    attn_pdrop embd_pdrop n_ctx n_special predict_special_tokens reorder_and_upcast_attn summary_type summary_use_proj
    summary_activation summary_proj_to_labels summary_first_dropout
"""


def read_config(fields: ConfigFields, weights: WeightNames) -> DecoderConfig:
    """Convert a gpt2 config to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    fields.require_value(
        "scale_attn_by_inverse_layer_idx", False, reason="Attention scales per layer are not supported."
    )
    fields.require_value("add_cross_attention", False, reason="peasy's decoder has no cross-attention.")
    d_model, classifier = fields.integer("n_embd"), read_classifier(fields, OF_LAST_TOKEN)
    tied = fields.boolean("tie_word_embeddings", True)
    attention = nn_config.AttentionConfig(
        num_heads=fields.integer("n_head"),
        scale=None if fields.boolean("scale_attn_weights", True) else 1.0,
    )
    feedforward = nn_config.MLPConfig(
        d_ff=fields.integer("n_inner", None) or 4 * d_model,
        activation=fields.activation("activation_function", "gelu_new"),
    )
    norm = nn_config.LayerNormConfig(eps=fields.number("layer_norm_epsilon", 1e-5))
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=d_model,
        stack=nn_config.StackConfig(fields.num_layers("n_layer"), attention, feedforward, norm),
        max_seq_len=fields.integer("n_positions", 1024),
        position=nn_config.LearnedPositionConfig(),
        classifier=classifier,
        lm_head=nn_config.LMHeadConfig(
            tied=bool(classifier) or (tied and not weights.differ("lm_head.weight", "transformer.wte.weight"))
        ),
        dropout=fields.number("resid_pdrop", 0.1, maximum=0.999),
        special_tokens=fields.special_tokens(),
    )


def write_config(config: DecoderConfig) -> dict[str, object]:
    """Convert peasy's config to a gpt2 config."""
    attention, feedforward = config.stack.attention, config.stack.feedforward
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.max_seq_len,
        "n_embd": config.d_model,
        "n_layer": config.stack.num_layers,
        "n_head": attention.num_heads,
        "n_inner": feedforward.d_ff,
        "activation_function": TO_HF_ACTIVATION[feedforward.activation],
        "layer_norm_epsilon": config.stack.norm.eps,
        "scale_attn_weights": attention.scale is None,
        "tie_word_embeddings": config.lm_head.tied,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        **write_labels(config.classifier),
    }


def weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map; matrices are stored transposed."""
    external, internal = "transformer.h.{layer}.", "decoder.blocks.{layer}."
    sizes, of_tokens = (config.d_model,) * 3, config.classifier is not None and config.classifier.level == "token"
    qkv = fused_rules(f"{external}attn.c_attn", internal, QUERY_KEY_VALUE, SplitFused(sizes))
    transposed = replace(qkv[0], transform=SplitFused(sizes, 1, Transpose()))
    modules = module_rules(external, internal, block_names("- - - attn.c_proj - mlp.c_fc mlp.c_proj -"))
    rules = [replace(rule, transform=Transpose()) if "weight" in rule.external else rule for rule in modules]
    head = module_rules("", "classifier.", {"classifier" if of_tokens else "score": "output"})
    return decoder_map(
        "transformer.",
        "h",
        block_names("- - - - ln_1 - - ln_2"),
        *(transposed, qkv[1], *rules, *head),
        embedding="wte",
        position="wpe",
        norm="ln_f",
        buffers=("attn.bias", "attn.masked_bias"),
    )


FAMILY = ModelFamily(
    "gpt2",
    DecoderConfig,
    ("GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification", "GPT2ForTokenClassification"),
    read_config,
    write_config,
    weight_map,
    prefix="transformer.",
    architecture_of=lambda config: f"GPT2{architecture_ending(config.classifier, 'LMHeadModel')}",
)
