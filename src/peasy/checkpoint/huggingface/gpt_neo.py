"""GPT-Neo (TinyStories): learned positions, unscaled scores, alternating global and local attention."""

from typing import Any

from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import (
    D_FF,
    Custom,
    Field,
    Settings,
    TiedHead,
    activation,
    length,
    sizes,
)
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.weight_map import WeightMap, block_names, decoder_map
from peasy.checkpoint.huggingface.windows import WINDOW, WINDOWED_LAYERS, write_layer_types
from peasy.models.config import DecoderConfig


def _read_local_layers(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    """Read attention_types, a list of pairs (kinds of some layers, how often they repeat)."""
    layers, window = settings["stack.num_layers"], fields.integer("window_size", 256)
    groups: Any = fields.data.get("attention_types") or [[["global", "local"], layers // 2]]
    fields.ignore("attention_types attention_layers")
    try:
        kinds = [kind for names, count in groups for _ in range(min(count, layers)) for kind in names]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != layers or any(kind not in ("global", "local") for kind in kinds):
        raise fields.invalid("attention_types", f"pairs of kinds (global, local) and counts, {layers} layers in all")
    if local := tuple(layer for layer, kind in enumerate(kinds) if kind == "local"):
        settings |= {WINDOW: window, WINDOWED_LAYERS: local}


def _write_local_layers(settings: Settings) -> dict[str, object]:
    kinds = write_layer_types(settings, "global", "local")
    return {"attention_types": [[kinds, 1]], "window_size": settings[WINDOW] or 256}


def _weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map."""
    attention = " ".join(f"attn.attention.{name}_proj" for name in ("q", "k", "v", "out"))
    names = block_names(f"{attention} ln_1 mlp.c_fc mlp.c_proj ln_2")
    buffers = ("attn.attention.bias", "attn.attention.masked_bias")
    return decoder_map("transformer.", "h", names, embedding="wte", position="wpe", norm="ln_f", buffers=buffers)


FAMILY = ModelFamily(
    "gpt_neo",
    ("GPTNeoForCausalLM", "GPTNeoModel"),
    {
        "kind": "decoder", "position.kind": "learned", "stack.feedforward.kind": "mlp", "stack.norm.kind": "layer",
        "stack.attention.bias": False, "stack.attention.scale": 1.0,
    },
    (
        *sizes("vocab_size hidden_size num_layers num_heads"),
        Field("intermediate_size", D_FF, default=lambda settings: 4 * settings["d_model"]),
        activation("activation_function", "gelu_new"),
        Custom(_read_local_layers, _write_local_layers),
        Field("layer_norm_epsilon", "stack.norm.eps", ConfigFields.number, 1e-5),
        length(2048),
        TiedHead("transformer.wte.weight"),
        Field("resid_dropout embed_dropout attention_dropout", "dropout", ConfigFields.probability, 0.0),
    ),
    _weight_map,
    prefix="transformer.",
)  # fmt: skip
