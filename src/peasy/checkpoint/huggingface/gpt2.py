"""GPT-2: learned positions, pre-norm, fused QKV projection, matrices stored transposed."""

from dataclasses import replace

from peasy.checkpoint.huggingface.classification import OF_LAST_TOKEN
from peasy.checkpoint.huggingface.config_fields import ConfigFields
from peasy.checkpoint.huggingface.config_table import (
    D_FF,
    SCALE,
    Field,
    Fixed,
    TiedHead,
    activation,
    length,
    sizes,
)
from peasy.checkpoint.huggingface.family import ModelFamily
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


def _weight_map(config: DecoderConfig) -> WeightMap:
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
    ("GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification", "GPT2ForTokenClassification"),
    {"kind": "decoder", "position.kind": "learned", "stack.feedforward.kind": "mlp", "stack.norm.kind": "layer"},
    (
        *sizes("vocab_size n_embd n_layer n_head"),
        Field("n_inner", D_FF, default=lambda settings: 4 * settings["d_model"]),
        activation("activation_function", "gelu_new"),
        Field("layer_norm_epsilon", "stack.norm.eps", ConfigFields.number, 1e-5),
        Field(
            "scale_attn_weights", SCALE, ConfigFields.boolean, True,
            decode=lambda scaled: None if scaled else 1.0, encode=lambda scale: scale != 1.0,
        ),
        length(1024, "n_positions"),
        TiedHead("transformer.wte.weight"),
        Field("resid_pdrop embd_pdrop attn_pdrop", "dropout", ConfigFields.probability, 0.1),
        Fixed("scale_attn_by_inverse_layer_idx", (False,), "Attention scales per layer are not supported."),
        Fixed("add_cross_attention", (False,), "peasy's decoder has no cross-attention."),
        OF_LAST_TOKEN,
    ),
    _weight_map,
    prefix="transformer.",
    ignored="n_ctx n_special predict_special_tokens reorder_and_upcast_attn",
)  # fmt: skip
