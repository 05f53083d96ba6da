"""OPT: learned positions from 2 on, pre-norm, ReLU."""

from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.weight_map import WeightMap, block_names, decoder_map
from peasy.models.config import DecoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = "layerdrop attention_dropout activation_dropout output_projection"
_POSITION_OFFSET = 2


def read_config(fields: ConfigFields, weights: WeightNames) -> DecoderConfig:
    """Convert an opt config to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    d_model = fields.integer("hidden_size")
    fields.require_value("word_embed_proj_dim", d_model, reason="Embeddings of another width are not supported.")
    fields.require_value("layer_norm_elementwise_affine", True, reason="Norms without weights are not supported.")
    fields.require_value("_remove_final_layer_norm", False, reason="The final norm is part of the model.")
    fields.require_value("do_layer_norm_before", True, reason="Only pre-norm is supported.")
    bias = fields.boolean("enable_bias", True)
    activation = fields.activation("activation_function", "relu")
    embedding = "model.decoder.embed_tokens.weight"
    tied = fields.boolean("tie_word_embeddings", True) and not weights.differ("lm_head.weight", embedding)
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=d_model,
        stack=nn_config.StackConfig(
            fields.num_layers("num_hidden_layers"),
            nn_config.AttentionConfig(fields.integer("num_attention_heads"), bias=bias, output_bias=bias),
            nn_config.MLPConfig(fields.integer("ffn_dim"), activation, bias),
            nn_config.LayerNormConfig(),
        ),
        max_seq_len=fields.integer("max_position_embeddings", 2048),
        position=nn_config.LearnedPositionConfig(_POSITION_OFFSET),
        lm_head=nn_config.LMHeadConfig(tied),
        dropout=fields.number("dropout", 0.1, maximum=0.999),
        special_tokens=fields.special_tokens(),
    )


def write_config(config: DecoderConfig) -> dict[str, object]:
    """Convert peasy's config to an opt config."""
    stack = config.stack
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "word_embed_proj_dim": config.d_model,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": stack.attention.num_heads,
        "ffn_dim": stack.feedforward.d_ff,
        "activation_function": TO_HF_ACTIVATION[stack.feedforward.activation],
        "enable_bias": stack.attention.bias,
        "max_position_embeddings": config.max_seq_len,
        "tie_word_embeddings": config.lm_head.tied,
        "dropout": config.dropout,
    }


def weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map."""
    attention = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj self_attn_layer_norm"
    names = block_names(f"{attention} fc1 fc2 final_layer_norm")
    places = {"embedding": "embed_tokens", "position": "embed_positions", "norm": "final_layer_norm"}
    return decoder_map("model.decoder.", "layers", names, **places)


FAMILY = ModelFamily(
    "opt", DecoderConfig, ("OPTForCausalLM", "OPTModel"), read_config, write_config, weight_map, prefix="model."
)
