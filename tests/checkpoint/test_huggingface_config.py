"""Published config.json files of well-known models: accepted, and equal to the presets."""

import dataclasses

import pytest

from peasy.checkpoint.huggingface.config_fields import ConfigFields, PlannedWeights
from peasy.checkpoint.huggingface.registry import (
    FAMILIES,
    _comparable,
    detect_family,
    family_for,
    match_weights,
    read_hf_config,
)
from peasy.checkpoint.huggingface.weight_map import export_weights
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn import config as nn_config

GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50257,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}  # fmt: skip
SMOLLM = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0,
    "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192, "model_type": "llama",
    "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": True,
    "vocab_size": 49152,
}  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": True,
    "rope_scaling": {
        "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": True, "vocab_size": 128256,
}  # fmt: skip
MISTRAL = {
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
    "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 131072, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 131072, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
    "transformers_version": "4.40.1", "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
BERT = {
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
    "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
    "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": True, "vocab_size": 30522,
}  # fmt: skip
ROBERTA = {
    "architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
    "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
    "model_type": "roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
    "type_vocab_size": 1, "vocab_size": 50265,
}  # fmt: skip
MARIAN = {
    "_name_or_path": "Helsinki-NLP/opus-mt-en-de", "_num_labels": 3, "activation_dropout": 0.0,
    "activation_function": "swish", "add_bias_logits": False, "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"], "attention_dropout": 0.0, "bad_words_ids": [[58100]], "bos_token_id": 0,
    "classif_dropout": 0.0, "classifier_dropout": 0.0, "d_model": 512, "decoder_attention_heads": 8,
    "decoder_ffn_dim": 2048, "decoder_layerdrop": 0.0, "decoder_layers": 6, "decoder_start_token_id": 58100,
    "decoder_vocab_size": 58101, "dropout": 0.1, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048,
    "encoder_layerdrop": 0.0, "encoder_layers": 6, "eos_token_id": 0, "forced_eos_token_id": 0,
    "gradient_checkpointing": False, "id2label": {"0": "LABEL_0"}, "init_std": 0.02, "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0}, "max_length": 512, "max_position_embeddings": 512, "model_type": "marian",
    "normalize_before": False, "normalize_embedding": False, "num_beams": 6, "num_hidden_layers": 6,
    "pad_token_id": 58100, "scale_embedding": True, "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True, "transformers_version": "4.22.0.dev0", "unk_token_id": 1, "use_cache": True,
    "vocab_size": 58101,
}  # fmt: skip
T5 = {
    "architectures": ["T5WithLMHeadModel"], "d_ff": 2048, "d_kv": 64, "d_model": 512, "decoder_start_token_id": 0,
    "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0, "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512, "num_heads": 8, "num_layers": 6,
    "output_past": True, "pad_token_id": 0, "relative_attention_num_buckets": 32, "vocab_size": 32128,
    "task_specific_params": {"summarization": {"num_beams": 4, "prefix": "summarize: "}},
}  # fmt: skip
FLAN = {
    "architectures": ["T5ForConditionalGeneration"], "classifier_dropout": 0.0, "d_ff": 1024, "d_kv": 64,
    "d_model": 512, "decoder_start_token_id": 0, "dense_act_fn": "gelu_new", "dropout_rate": 0.1, "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0, "is_encoder_decoder": True, "is_gated_act": True,
    "layer_norm_epsilon": 1e-06, "model_type": "t5", "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8,
    "output_past": True, "pad_token_id": 0, "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32, "tie_word_embeddings": False, "transformers_version": "4.23.1",
    "use_cache": True, "vocab_size": 32128,
}  # fmt: skip

PUBLISHED = {
    "gpt2": (GPT2, []),
    "smollm-135m": (SMOLLM, []),
    "llama-1b": (LLAMA, []),
    "mistral-7b": (MISTRAL, []),
    "qwen2-500m": (QWEN2, []),
    "qwen3-600m": (QWEN3, []),
    "bert-base": (BERT, ["bert.pooler.dense.weight"]),
    "roberta-base": (ROBERTA, ["lm_head.dense.weight"]),
    "marian": (MARIAN, ["final_logits_bias"]),
    "t5-small": (T5, []),
}
"""Preset name: (config.json, weight names that show which parts exist)."""


def read(data, weights=()):
    return read_hf_config(detect_family(data), ConfigFields(data), PlannedWeights(weights))


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_equal_published_configs(name):
    data, weights = PUBLISHED[name]
    actual, expected = read(data, weights), preset(name)
    if actual.kind == "encoder":  # head and pooler depend on the file
        actual = dataclasses.replace(actual, lm_head=expected.lm_head, pooler=expected.pooler)
    assert _comparable(actual) == _comparable(expected)


def test_special_tokens():
    assert read(LLAMA).special_tokens.eos == (128001, 128008, 128009)
    assert (
        read(MARIAN).special_tokens.decoder_start,
        read(MARIAN).special_tokens.pad,
        read(MARIAN).special_tokens.unk,
    ) == (58100, 58100, 1)
    assert (read(T5).special_tokens.decoder_start, read(T5).special_tokens.eos) == (0, (1,))


def test_t5_version_1_1():
    config = read(FLAN, ["lm_head.weight", "shared.weight"])
    assert config.lm_head == nn_config.LMHeadConfig(tied=False, scaled=False)
    assert config.encoder.feedforward == nn_config.GatedMLPConfig(1024, "gelu-tanh")
    assert read(T5).lm_head == nn_config.LMHeadConfig(tied=True, scaled=True)


@pytest.mark.parametrize("name", PUBLISHED)
def test_unknown_field_is_refused(name):
    data, weights = PUBLISHED[name]
    with pytest.raises(InvalidInput, match="has unknown fields: new_trick"):
        read(data | {"new_trick": True}, weights)


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
@pytest.mark.parametrize(
    ("kind", "family"), [("gpt", "arcee"), ("encoder", "roberta-prelayernorm"), ("translator", "pegasus")]
)
def test_default_architectures_can_be_exported(kind, family, size):
    changes = {"stack": {"token_shift": False}, "embedding": {"max_ngram": 1}} if kind == "gpt" else {}
    assert family_for(preset(f"{kind}-{size}", **changes)).name == family


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"stack": {"token_shift": True}}, "stack.token_shift"), ({"embedding": {"max_ngram": 2}}, "embedding.max_ngram")],
)
def test_features_without_a_family_are_named(changes, key):
    with pytest.raises(InvalidInput, match="No supported Hugging Face family") as caught:
        family_for(preset("gpt-tiny", **changes))
    assert key in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8}, "mixture of experts"),
        ({"model_type": "qwen3_moe", "num_experts": 128}, "mixture of experts"),
        ({"model_type": "llama4", "text_config": {"attention_chunk_size": 8192}}, "chunked"),
        ({"model_type": "llama", "attention_chunk_size": 16}, "chunked"),
        ({"model_type": "qwen2", "layer_types": ["chunked_attention", "full_attention"]}, "chunked_attention"),
        ({"model_type": "mixtral"}, "not supported"),
    ],
)
def test_what_transformers_computes_otherwise_is_refused_with_its_reason(changes, reason):
    """transformers has no attention chunks in these families either, or other layers."""
    data = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4} | changes
    data |= {"intermediate_size": 40, "max_position_embeddings": 64}
    with pytest.raises(InvalidInput, match=reason):
        read(data)
    plain = {key: value for key, value in data.items() if key not in ("attention_chunk_size", "layer_types")}
    if data["model_type"] in FAMILIES:  # inverse: without it, the same config is read
        assert read(plain)


def test_layers_that_differ_are_not_written_as_one():
    sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = read(sizes | {"model_type": "albert", "intermediate_size": 40, "max_position_embeddings": 40})
    pairs, _ = match_weights(FAMILIES["albert"], config)
    weights = build(config, seed=1).state_dict()
    with pytest.raises(InvalidInput, match="layers of this model differ"):
        export_weights(pairs, weights)
    shared = {name: weights[name.replace("blocks.1.", "blocks.0.")] for name in weights}
    assert "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight" in export_weights(pairs, shared)


def test_fields_of_files_in_use_are_read():
    """Both names of a RoPE field, no length, no model_type, or notes of the author; a contradiction is refused."""
    sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    neox = sizes | {"model_type": "gpt_neox", "intermediate_size": 40, "rotary_pct": 0.5, "rotary_emb_base": 10000}
    assert read(
        neox | {"partial_rotary_factor": 0.5, "rope_theta": 10000, "license": "x", "eos_token_ids": [2]}
    ) == read(neox)
    with pytest.raises(InvalidInput, match="contradicts rotary_pct"):
        read(neox | {"partial_rotary_factor": 0.25})
    assert read(neox).max_seq_len == 2048
    bert = sizes | {"architectures": ["BertModel"], "intermediate_size": 40}
    assert read(bert) == read(bert | {"model_type": "bert", "max_position_embeddings": 512, "emb_size": 24})
    distilbert = {
        "model_type": "distilbert",
        "vocab_size": 61,
        "dim": 24,
        "n_layers": 2,
        "n_heads": 3,
        "hidden_dim": 40,
    }
    assert read(QWEN2) == read(QWEN2 | {"use_mrope": False, "sliding_window_size": 4096, "use_return_dict": True})
    with pytest.raises(InvalidInput, match="use_mrope is True"):
        read(QWEN2 | {"use_mrope": True})
    assert read(distilbert) == read(distilbert | {"tie_weights_": True, "is_encoder_decoder": False})


def test_mbart_starts_with_bos_unless_told_otherwise():
    """BART starts with eos; transformers has no default for mBART and then takes bos."""
    from transformers import BartConfig, MBartConfig

    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "vocab_size": 9}
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    for name, config_class in {"mbart": MBartConfig, "bart": BartConfig}.items():
        config = config_class()
        fields = ConfigFields({"model_type": name, **sizes, **ids})
        start = read_hf_config(FAMILIES[name], fields, PlannedWeights()).special_tokens.decoder_start
        assert start == (
            config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
        )
