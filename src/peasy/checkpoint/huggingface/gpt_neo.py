"""GPT-Neo (TinyStories): learned positions, unscaled scores, alternating global and local attention."""

from typing import Any

from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.weight_map import WeightMap, block_names, decoder_map
from peasy.models.config import DecoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = """
    attention_layers embed_dropout attention_dropout summary_type summary_use_proj summary_activation
    summary_proj_to_labels summary_first_dropout
"""


def read_config(fields: ConfigFields, weights: WeightNames) -> DecoderConfig:
    """Convert a gpt_neo config to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    d_model, layers = fields.integer("hidden_size"), fields.num_layers("num_layers")
    local = _read_local_layers(fields, layers)
    attention = nn_config.AttentionConfig(
        num_heads=fields.integer("num_heads"),
        bias=False,
        window=fields.integer("window_size", 256) if local else None,
        windowed_layers=local if local else None,
        scale=1.0,
    )
    feedforward = nn_config.MLPConfig(
        d_ff=fields.integer("intermediate_size", None) or 4 * d_model,
        activation=fields.activation("activation_function", "gelu_new"),
    )
    tied = fields.boolean("tie_word_embeddings", True)
    fields.ignore(["window_size"])
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=d_model,
        stack=nn_config.StackConfig(
            layers,
            attention,
            feedforward,
            nn_config.LayerNormConfig(eps=fields.number("layer_norm_epsilon", 1e-5)),
        ),
        max_seq_len=fields.integer("max_position_embeddings", 2048),
        position=nn_config.LearnedPositionConfig(),
        lm_head=nn_config.LMHeadConfig(tied=tied and not weights.differ("lm_head.weight", "transformer.wte.weight")),
        dropout=fields.number("resid_dropout", 0.0, maximum=0.999),
        special_tokens=fields.special_tokens(),
    )


def _read_local_layers(fields: ConfigFields, layers: int) -> tuple[int, ...]:
    """Read attention_types, a list of pairs (kinds of some layers, how often they repeat)."""
    groups: Any = fields.data.get("attention_types") or [[["global", "local"], layers // 2]]
    fields.ignore(["attention_types"])
    try:
        kinds = [kind for names, count in groups for _ in range(min(count, layers)) for kind in names]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != layers or any(kind not in ("global", "local") for kind in kinds):
        raise fields.invalid("attention_types", f"pairs of kinds (global, local) and counts, {layers} layers in all")
    return tuple(layer for layer, kind in enumerate(kinds) if kind == "local")


def write_config(config: DecoderConfig) -> dict[str, object]:
    """Convert peasy's config to a gpt_neo config."""
    stack, attention = config.stack, config.stack.attention
    kinds = ["global" if attention.window_for_layer(layer) is None else "local" for layer in range(stack.num_layers)]
    return {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_seq_len,
        "hidden_size": config.d_model,
        "num_layers": stack.num_layers,
        "num_heads": attention.num_heads,
        "intermediate_size": stack.feedforward.d_ff,
        "activation_function": TO_HF_ACTIVATION[stack.feedforward.activation],
        "attention_types": [[kinds, 1]],
        "window_size": attention.window or 256,
        "layer_norm_epsilon": stack.norm.eps,
        "tie_word_embeddings": config.lm_head.tied,
        "resid_dropout": config.dropout,
        "embed_dropout": config.dropout,
        "attention_dropout": config.dropout,
    }


def weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map."""
    attention = " ".join(f"attn.attention.{name}_proj" for name in ("q", "k", "v", "out"))
    names = block_names(f"{attention} ln_1 mlp.c_fc mlp.c_proj ln_2")
    buffers = ("attn.attention.bias", "attn.attention.masked_bias")
    return decoder_map("transformer.", "h", names, embedding="wte", position="wpe", norm="ln_f", buffers=buffers)


FAMILY = ModelFamily(
    "gpt_neo",
    DecoderConfig,
    ("GPTNeoForCausalLM", "GPTNeoModel"),
    read_config,
    write_config,
    weight_map,
    prefix="transformer.",
)
