"""OPT: learned positions from 2 on, pre-norm, ReLU."""

from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import (
    ATTENTION_BIAS,
    Custom,
    Field,
    Fixed,
    Settings,
    TiedHead,
    activation,
    length,
    sizes,
)
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.weight_map import WeightMap, block_names, decoder_map
from peasy.models.config import DecoderConfig

_WIDTH = "word_embed_proj_dim"


def _read_width(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    fields.require_value(_WIDTH, settings["d_model"], reason="Embeddings of another width are not supported.")


def _weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map."""
    attention = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj self_attn_layer_norm"
    names = block_names(f"{attention} fc1 fc2 final_layer_norm")
    places = {"embedding": "embed_tokens", "position": "embed_positions", "norm": "final_layer_norm"}
    return decoder_map("model.decoder.", "layers", names, **places)


FAMILY = ModelFamily(
    "opt",
    ("OPTForCausalLM", "OPTModel"),
    {
        "kind": "decoder", "position.kind": "learned", "position.offset": 2, "stack.feedforward.kind": "mlp",
        "stack.norm.kind": "layer",
    },
    (
        *sizes("vocab_size hidden_size num_hidden_layers num_attention_heads ffn_dim"),
        Custom(_read_width, lambda settings: {_WIDTH: settings["d_model"]}),
        activation("activation_function", "relu"),
        Field("enable_bias", f"{ATTENTION_BIAS} stack.feedforward.bias", ConfigFields.boolean, True),
        length(2048),
        TiedHead("model.decoder.embed_tokens.weight"),
        Field("dropout", "dropout", ConfigFields.probability, 0.1),
        Fixed("layer_norm_elementwise_affine", (True,), "Norms without weights are not supported."),
        Fixed("_remove_final_layer_norm", (False,), "The final norm is part of the model."),
        Fixed("do_layer_norm_before", (True,), "Only pre-norm is supported."),
    ),
    _weight_map,
    prefix="model.",
    ignored="layerdrop output_projection",
)  # fmt: skip
