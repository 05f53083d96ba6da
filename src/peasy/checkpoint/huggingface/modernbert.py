"""ModernBERT: encoder with RoPE, gated MLP, pre-norm; local attention except in every third layer."""

from peasy.checkpoint.huggingface.classification import ClassifierFields
from peasy.checkpoint.huggingface.config_fields import TO_HF_ACTIVATION, ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import (
    ATTENTION_BIAS,
    Custom,
    Field,
    Settings,
    TiedHead,
    activation,
    drop,
    length,
    sizes,
)
from peasy.checkpoint.huggingface.family import ModelFamily, architectures
from peasy.checkpoint.huggingface.rope import Rope
from peasy.checkpoint.huggingface.weight_map import (
    QUERY_KEY_VALUE,
    WeightMap,
    block_names,
    fused_rules,
    module_rules,
    split_fused,
)
from peasy.checkpoint.huggingface.windows import WINDOW, WINDOWED_LAYERS, read_layer_types, write_layer_types
from peasy.models.config import EncoderConfig

_IGNORED = """
    initializer_cutoff_factor mlp_dropout deterministic_flash_attn sparse_prediction
    sparse_pred_ignore_index reference_compile repad_logits_with_grad cls_token_id position_embedding_type
    layer_norm_eps classifier_bias
"""
_EMBEDDING, _HEAD = "model.embeddings.tok_embeddings.weight", "decoder.weight"


def _read_windows(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    layers = settings["stack.num_layers"]
    every, local = fields.integer("global_attn_every_n_layers", 3), read_layer_types(fields, layers)
    local = tuple(layer for layer in range(layers) if layer % every) if local is None else local
    window = fields.integer("local_attention", 128, minimum=2) // 2 + 1
    if local:
        settings |= {WINDOW: window, WINDOWED_LAYERS: local}


def _write_windows(settings: Settings) -> dict[str, object]:
    return {"local_attention": 2 * ((settings[WINDOW] or 65) - 1), "layer_types": write_layer_types(settings)}


def _read_heads(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    """Read the layer before either head, and see from the weights whether there is an LM head."""
    transform = fields.activation("classifier_activation", "gelu")
    bias, head_bias = fields.boolean("decoder_bias", True), "head.dense.bias" in weights
    pooling = fields.choice("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    if _HEAD in weights or "decoder.bias" in weights:
        settings["lm_head.bias"] = bias
        settings |= {"lm_head.transform": transform, "lm_head.transform_bias": head_bias}
    else:
        drop(settings, "lm_head")
    head = {"transform": transform, "transform_bias": head_bias, "transform_norm": True}
    ClassifierFields({**head, "pooling": pooling}, head).read(fields, weights, settings)


def _write_heads(settings: Settings) -> dict[str, object]:
    head = "lm_head" if "lm_head.tied" in settings else "classifier"
    return {
        "decoder_bias": settings.get("lm_head.bias", True),
        "classifier_activation": TO_HF_ACTIVATION[settings.get(f"{head}.transform") or "gelu"],
        "classifier_bias": settings.get(f"{head}.transform_bias", False),
        "classifier_pooling": "mean" if settings.get("classifier.pooling") == "mean" else "cls",
        **ClassifierFields({}).write(settings),
    }


def _weight_map(config: EncoderConfig) -> WeightMap:
    """Return the weight map."""
    external, internal = "model.layers.{layer}.", "encoder.blocks.{layer}."
    gate_up = ("feedforward.gate", "feedforward.up")
    names = block_names("- - - attn.Wo attn_norm - mlp.Wo mlp_norm")
    head = "lm_head." if config.lm_head is not None else "classifier."
    return WeightMap(
        rules=(
            *module_rules("model.embeddings.", "embedding.", {"tok_embeddings": "token", "norm": "norm"}),
            *fused_rules(f"{external}attn.Wqkv", internal, QUERY_KEY_VALUE, split_fused((config.d_model,) * 3)),
            *fused_rules(f"{external}mlp.Wi", internal, gate_up, split_fused((config.stack.feedforward.d_ff,) * 2)),
            *module_rules(external, internal, names),
            *module_rules("model.", "encoder.", {"final_norm": "norm"}),
            *module_rules("head.", head, {"dense": "transform", "norm": "norm"}),
            *module_rules("", "", {"decoder": "lm_head", "classifier": "classifier.output"}),
        ),
        tied_copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    )


FAMILY = ModelFamily(
    "modernbert",
    architectures("ModernBertForMaskedLM", "ModernBert"),
    {
        "kind": "encoder", "stack.feedforward.kind": "gated", "stack.norm.kind": "layer", "stack.first_norm": False,
        "embedding.norm": True,
    },
    (
        *sizes("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"),
        activation("hidden_activation", "gelu"),
        Field("attention_bias", ATTENTION_BIAS, ConfigFields.boolean, False),
        Field("mlp_bias", "stack.feedforward.bias", ConfigFields.boolean, False),
        Field("norm_eps", "stack.norm.eps", ConfigFields.number, 1e-5),
        Field("norm_bias", "stack.norm.bias", ConfigFields.boolean, False, null=False),
        Custom(_read_windows, _write_windows),
        length(unlimited=8192),
        Rope("global_rope_theta", 160_000.0, local_base="local_rope_theta"),
        TiedHead(_EMBEDDING, _HEAD),
        Custom(_read_heads, _write_heads),
    ),
    _weight_map,
    prefix="model.",
    ignored=_IGNORED,
)  # fmt: skip
