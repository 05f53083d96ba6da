"""ModernBERT: encoder with RoPE, gated MLP, pre-norm; local attention except in every third layer."""

from peasy.checkpoint.huggingface.classification import architecture_ending, read_classifier, write_labels
from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.rope import RopeNames, read_rope, write_rope
from peasy.checkpoint.huggingface.weight_map import QUERY_KEY_VALUE, SplitFused, WeightMap, fused_rules, module_rules
from peasy.checkpoint.huggingface.windows import read_layer_types, write_layer_types
from peasy.models.config import EncoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = """
    initializer_cutoff_factor embedding_dropout mlp_dropout deterministic_flash_attn sparse_prediction
    sparse_pred_ignore_index reference_compile repad_logits_with_grad cls_token_id position_embedding_type
    layer_norm_eps classifier_bias
"""
_ROPE = RopeNames("global_rope_theta", 160_000.0, local_base="local_rope_theta")


def read_config(fields: ConfigFields, weights: WeightNames) -> EncoderConfig:
    """Convert a modernbert config to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    layers, bias = fields.num_layers("num_hidden_layers"), fields.boolean("attention_bias", False)
    every, local = fields.integer("global_attn_every_n_layers", 3), read_layer_types(fields, layers)
    local = tuple(layer for layer in range(layers) if layer % every) if local is None else local
    window = fields.integer("local_attention", 128, minimum=2) // 2 + 1
    attention = nn_config.AttentionConfig(
        fields.integer("num_attention_heads"),
        bias=bias,
        output_bias=bias,
        window=window if local else None,
        windowed_layers=local if local else None,
    )
    feedforward = nn_config.GatedMLPConfig(
        fields.integer("intermediate_size"),
        fields.activation("hidden_activation", "gelu"),
        fields.boolean("mlp_bias", False),
    )
    activation, head_bias = fields.activation("classifier_activation", "gelu"), "head.dense.bias" in weights
    tied = fields.boolean("tie_word_embeddings", True)
    return EncoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=fields.integer("hidden_size"),
        stack=nn_config.StackConfig(
            layers,
            attention,
            feedforward,
            nn_config.LayerNormConfig("pre", fields.number("norm_eps", 1e-5), fields.boolean("norm_bias", False)),
            first_norm=False,
        ),
        max_seq_len=fields.integer("max_position_embeddings"),
        position=read_rope(fields, _ROPE),
        embedding=nn_config.EmbeddingConfig(norm=True),
        lm_head=nn_config.LMHeadConfig(
            tied and not weights.differ("decoder.weight", "model.embeddings.tok_embeddings.weight"),
            fields.boolean("decoder_bias", True),
            transform=activation,
            transform_bias=head_bias,
        )
        if "decoder.weight" in weights or "decoder.bias" in weights
        else None,
        classifier=_read_classifier(fields, activation, head_bias),
        special_tokens=fields.special_tokens(),
    )


def _read_classifier(
    fields: ConfigFields, activation: nn_config.ActivationName, head_bias: bool
) -> nn_config.ClassifierConfig | None:
    pooling = fields.choice("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    fields.ignore(["decoder_bias"])
    head = nn_config.ClassifierConfig(
        (), transform=activation, transform_bias=head_bias, transform_norm=True,
        pooling="mean" if pooling == "mean" else "first",
    )  # fmt: skip
    classifier = read_classifier(fields, head)
    if classifier is None or classifier.level == "text":
        return classifier
    return nn_config.ClassifierConfig(
        classifier.labels, "token", transform=activation, transform_bias=head_bias, transform_norm=True
    )


def write_config(config: EncoderConfig) -> dict[str, object]:
    """Convert peasy's config to a modernbert config."""
    stack, attention, head = config.stack, config.stack.attention, config.lm_head or config.classifier
    activation = (head.transform if head else None) or "gelu"
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": attention.num_heads,
        "intermediate_size": stack.feedforward.d_ff,
        "hidden_activation": TO_HF_ACTIVATION[stack.feedforward.activation],
        "attention_bias": attention.bias,
        "mlp_bias": stack.feedforward.bias,
        "norm_eps": stack.norm.eps,
        "norm_bias": getattr(stack.norm, "bias", False),
        "local_attention": 2 * ((attention.window or 65) - 1),
        "layer_types": write_layer_types(attention, stack.num_layers),
        "max_position_embeddings": config.max_seq_len or 8192,
        "rope_parameters": write_rope(config.position, _ROPE),
        "decoder_bias": config.lm_head is None or config.lm_head.bias,
        "classifier_activation": TO_HF_ACTIVATION[activation],
        "classifier_bias": head is not None and head.transform_bias,
        "classifier_pooling": "mean" if config.classifier and config.classifier.pooling == "mean" else "cls",
        "tie_word_embeddings": config.lm_head is None or config.lm_head.tied,
        **write_labels(config.classifier),
    }


def weight_map(config: EncoderConfig) -> WeightMap:
    """Return the weight map."""
    external, internal = "model.layers.{layer}.", "encoder.blocks.{layer}."
    gate_up = ("feedforward.gate", "feedforward.up")
    names = {
        "attn_norm": "attention_norm",
        "attn.Wo": "attention.output",
        "mlp_norm": "feedforward_norm",
        "mlp.Wo": "feedforward.down",
    }
    head = "lm_head." if config.lm_head is not None else "classifier."
    return WeightMap(
        rules=(
            *module_rules("model.embeddings.", "embedding.", {"tok_embeddings": "token", "norm": "norm"}),
            *fused_rules(f"{external}attn.Wqkv", internal, QUERY_KEY_VALUE, SplitFused((config.d_model,) * 3)),
            *fused_rules(f"{external}mlp.Wi", internal, gate_up, SplitFused((config.stack.feedforward.d_ff,) * 2)),
            *module_rules(external, internal, names),
            *module_rules("model.", "encoder.", {"final_norm": "norm"}),
            *module_rules("head.", head, {"dense": "transform", "norm": "norm"}),
            *module_rules("", "", {"decoder": "lm_head", "classifier": "classifier.output"}),
        ),
        tied_copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    )


def _architecture(config: EncoderConfig) -> str:
    head = "Model" if config.lm_head is None else "ForMaskedLM"
    return f"ModernBert{architecture_ending(config.classifier, head)}"


FAMILY = ModelFamily(
    "modernbert",
    EncoderConfig,
    tuple(
        f"ModernBert{head}" for head in ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
    ),
    read_config,
    write_config,
    weight_map,
    prefix="model.",
    architecture_of=_architecture,
)
