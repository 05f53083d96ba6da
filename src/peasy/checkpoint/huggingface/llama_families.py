"""Families of the Llama kind: what each does differently from Llama."""

from functools import partial

from peasy.checkpoint.huggingface.classification import architecture_ending
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.llama import LlamaOptions, read_config, weight_map, write_config
from peasy.checkpoint.huggingface.rope import RopeNames
from peasy.checkpoint.huggingface.windows import WindowNames
from peasy.models.config import DecoderConfig
from peasy.nn.config import RMSNormConfig

_GEMMA = LlamaOptions(
    attention_bias="config",
    norm=RMSNormConfig(unit_offset=True),
    scaled_embedding=True,
    activation=("hidden_act", "gelu_pytorch_tanh"),
    gelu_is_tanh=True,
    default_d_head=256,
    default_tied=True,
)
_GEMMA2 = LlamaOptions(
    attention_bias="config",
    norm=RMSNormConfig("around", unit_offset=True),
    windows=WindowNames("pattern", full_every=2, default_window=4096),
    scaled_embedding=True,
    query_scale=True,
    softcaps="scores and logits",
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    default_kv_heads=4,
    default_d_head=256,
    default_tied=True,
)
_GEMMA3 = LlamaOptions(
    attention_bias="config",
    qk_norm="head",
    norm=RMSNormConfig("around", unit_offset=True),
    windows=WindowNames("pattern", full_every=6, default_window=4096),
    rope=RopeNames(default_base=1e6, local_base="rope_local_base_freq"),
    scaled_embedding=True,
    query_scale=True,
    softcaps="logits",
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    default_kv_heads=4,
    default_d_head=256,
    default_tied=True,
)
_OPTIONS = {
    ("llama", "Llama"): LlamaOptions(attention_bias="config", mlp_bias=True),
    ("mistral", "Mistral"): LlamaOptions(windows=WindowNames("all"), default_kv_heads=8),
    ("qwen2", "Qwen2"): LlamaOptions(attention_bias="qkv", windows=WindowNames("switch")),
    ("qwen3", "Qwen3"): LlamaOptions(
        attention_bias="config", qk_norm="head", windows=WindowNames("switch"), default_d_head=128
    ),
    ("arcee", "Arcee"): LlamaOptions(
        attention_bias="config", gated_mlp=False, mlp_bias=True, activation=("hidden_act", "relu2")
    ),
    ("smollm3", "SmolLM3"): LlamaOptions(
        attention_bias="config",
        mlp_bias=True,
        windows=WindowNames("switch"),
        rope=RopeNames(default_base=2e6),
        skips_rope=True,
        default_kv_heads=4,
        default_tied=True,
    ),
    ("olmo2", "Olmo2"): LlamaOptions(
        attention_bias="config", qk_norm="projection", norm=RMSNormConfig("output", eps=1e-5)
    ),
    ("phi3", "Phi3"): LlamaOptions(
        norm=RMSNormConfig(eps=1e-5), windows=WindowNames("all"), rope=RopeNames(partial=True), fused=True
    ),
    ("granite", "Granite"): LlamaOptions(attention_bias="config", mlp_bias=True, scales=True),
    ("gemma", "Gemma"): _GEMMA,
    ("gemma2", "Gemma2"): _GEMMA2,
    ("gemma3_text", "Gemma3"): _GEMMA3,
}
_TEXT_PREFIXES = {"Gemma3": "Gemma3Text"}
"""Names of models without the LM head, where images are another part of the family."""


def _make_family(name: str, prefix: str, options: LlamaOptions) -> ModelFamily:
    text = _TEXT_PREFIXES.get(prefix, prefix)

    def architecture(config: DecoderConfig) -> str:
        head = architecture_ending(config.classifier, "ForCausalLM")
        return f"{prefix if config.classifier is None else text}{head}"

    heads = ("Model", "ForSequenceClassification", "ForTokenClassification")
    return ModelFamily(
        name,
        DecoderConfig,
        (f"{prefix}ForCausalLM", *(f"{text}{head}" for head in heads)),
        partial(read_config, options=options),
        partial(write_config, options=options),
        partial(weight_map, options=options),
        prefix="model.",
        architecture_of=architecture,
        has_custom_code=name == "phi3",
    )


FAMILIES = tuple(_make_family(*names, options) for names, options in _OPTIONS.items())
