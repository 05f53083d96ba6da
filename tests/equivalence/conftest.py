"""Tiny checkpoints of every family, made by transformers with random weights: the reference implementation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

SMALL_LLAMA = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3}
SMALL_LLAMA |= {"num_attention_heads": 4, "max_position_embeddings": 64}
SMALL_BERT = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3}
SMALL_BERT |= {"intermediate_size": 40, "max_position_embeddings": 40}
SMALL_GPT2: dict[str, Any] = {"vocab_size": 61, "n_positions": 40, "n_embd": 24, "n_layer": 3, "n_head": 3}
SMALL_GPT2 |= {"bos_token_id": None, "eos_token_id": None}
SMALL_MARIAN = {
    "vocab_size": 61,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "max_position_embeddings": 40,
}
SMALL_MARIAN |= {"encoder_attention_heads": 3, "decoder_attention_heads": 4, "encoder_ffn_dim": 40}
SMALL_MARIAN |= {"decoder_ffn_dim": 48, "pad_token_id": 60, "decoder_start_token_id": 60, "eos_token_id": 0}
SMALL_T5 = {"vocab_size": 61, "d_model": 24, "d_kv": 10, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3}
SMALL_T5 |= {"num_heads": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
SMALL_T5 |= {"decoder_start_token_id": 0}
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
LLAMA3_SCALING |= {"original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 3.0}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "short_factor": [1.0, 1.5],
    "long_factor": [2.0, 3.0],
    "original_max_position_embeddings": 32,
    "partial_rotary_factor": 0.75,
}
BETAS = {"beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.3}
TWO_BASES = {
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
GEMMA = {"num_key_value_heads": 2, "head_dim": 10, "pad_token_id": 0, "eos_token_id": 1}
SMALL_NEOX = SMALL_LLAMA | {"hidden_size": 32, "bos_token_id": None, "eos_token_id": 2}
SMALL_NEO: dict[str, Any] = {"vocab_size": 61, "max_position_embeddings": 40, "hidden_size": 24, "num_layers": 3}
SMALL_NEO |= {"num_heads": 3}
SMALL_NEO |= {"attention_types": [[["global", "local"], 1], [["local"], 1]], "window_size": 4}
SMALL_NEO |= {"bos_token_id": None, "eos_token_id": None}
SMALL_OPT = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "ffn_dim": 40, "num_attention_heads": 3}
SMALL_OPT |= {"max_position_embeddings": 40, "bos_token_id": 2}
SMALL_FALCON: dict[str, Any] = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
SMALL_FALCON |= {"bos_token_id": None, "eos_token_id": 2}
SMALL_DISTILBERT = {"vocab_size": 61, "dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 40}
SMALL_DISTILBERT |= {"max_position_embeddings": 40}
SMALL_MODERNBERT = SMALL_BERT | {"hidden_size": 24, "local_attention": 6, "pad_token_id": 0, "bos_token_id": 1}
SMALL_MODERNBERT |= {"eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2, "num_attention_heads": 3}
SMALL_BART = SMALL_MARIAN | {"pad_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0, "eos_token_id": 2}
CODE_IDS = {"bos_token_id": None, "eos_token_id": 2}
WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1, "num_key_value_heads": 2}

CASES: dict[str, dict[str, tuple[str, str, dict[str, Any]]]] = {
    "decoder": {
        "gpt2": ("GPT2LMHeadModel", "GPT2Config", SMALL_GPT2),
        "gpt2-untied": ("GPT2LMHeadModel", "GPT2Config", SMALL_GPT2 | {"tie_word_embeddings": False, "n_inner": 30}),
        "gpt2-unscaled": (
            "GPT2LMHeadModel",
            "GPT2Config",
            SMALL_GPT2 | {"scale_attn_weights": False, "activation_function": "relu"},
        ),
        "gpt2-bare": ("GPT2Model", "GPT2Config", SMALL_GPT2),
        "llama": ("LlamaForCausalLM", "LlamaConfig", SMALL_LLAMA),
        "llama-grouped": (
            "LlamaForCausalLM",
            "LlamaConfig",
            SMALL_LLAMA | {"num_key_value_heads": 2, "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
        ),
        "llama-biases": (
            "LlamaForCausalLM",
            "LlamaConfig",
            SMALL_LLAMA | {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1, "hidden_act": "gelu"},
        ),
        "llama-bands": (
            "LlamaForCausalLM",
            "LlamaConfig",
            SMALL_LLAMA | {"rope_parameters": LLAMA3_SCALING, "head_dim": 10},
        ),
        "llama-linear": ("LlamaForCausalLM", "LlamaConfig", SMALL_LLAMA | {"rope_parameters": LINEAR}),
        "mistral": (
            "MistralForCausalLM",
            "MistralConfig",
            SMALL_LLAMA | {"num_key_value_heads": 2, "sliding_window": 4, "head_dim": 10},
        ),
        "mistral-whole": (
            "MistralForCausalLM",
            "MistralConfig",
            SMALL_LLAMA | {"num_key_value_heads": 4, "sliding_window": None, "tie_word_embeddings": True},
        ),
        "ministral": (
            "MinistralForCausalLM",
            "MinistralConfig",
            SMALL_LLAMA
            | {"num_key_value_heads": 2, "sliding_window": 4, "head_dim": 10}
            | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        ),
        "ministral-windows": (
            "MinistralForCausalLM",
            "MinistralConfig",
            SMALL_LLAMA | {"num_key_value_heads": 4, "sliding_window": 4, "tie_word_embeddings": True, "head_dim": 6},
        ),
        "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", SMALL_LLAMA | {"num_key_value_heads": 2}),
        "qwen2-windows": ("Qwen2ForCausalLM", "Qwen2Config", SMALL_LLAMA | WINDOWS | {"tie_word_embeddings": True}),
        "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", SMALL_LLAMA | {"num_key_value_heads": 2, "head_dim": 10}),
        "qwen3-windows": (
            "Qwen3ForCausalLM",
            "Qwen3Config",
            SMALL_LLAMA | WINDOWS | {"head_dim": 8, "attention_bias": True},
        ),
        "arcee": (
            "ArceeForCausalLM",
            "ArceeConfig",
            SMALL_LLAMA | {"num_key_value_heads": 2, "mlp_bias": True, "eos_token_id": 2},
        ),
        "llama-yarn": ("LlamaForCausalLM", "LlamaConfig", SMALL_LLAMA | {"rope_parameters": YARN}),
        "qwen2-yarn": (
            "Qwen2ForCausalLM",
            "Qwen2Config",
            SMALL_LLAMA | {"num_key_value_heads": 2, "rope_parameters": YARN | BETAS},
        ),
        "smollm3": (
            "SmolLM3ForCausalLM",
            "SmolLM3Config",
            SMALL_LLAMA | GEMMA | {"no_rope_layer_interval": 2, "bos_token_id": None},
        ),
        "smollm3-windows": (
            "SmolLM3ForCausalLM",
            "SmolLM3Config",
            SMALL_LLAMA | GEMMA | {"no_rope_layers": [1, 0, 0], "use_sliding_window": True, "sliding_window": 4},
        ),
        "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", SMALL_LLAMA | {"num_key_value_heads": 2, "eos_token_id": 2}),
        "olmo2-biases": (
            "Olmo2ForCausalLM",
            "Olmo2Config",
            SMALL_LLAMA
            | {"attention_bias": True, "tie_word_embeddings": True, "eos_token_id": 2, "rms_norm_eps": 1e-3},
        ),
        "phi3": (
            "Phi3ForCausalLM",
            "Phi3Config",
            SMALL_LLAMA | {"num_key_value_heads": 2, "sliding_window": 5, "eos_token_id": 2, "pad_token_id": 0},
        ),
        "phi3-long": (
            "Phi3ForCausalLM",
            "Phi3Config",
            SMALL_LLAMA
            | {"rope_parameters": LONG, "eos_token_id": 2, "pad_token_id": 0}
            | {"original_max_position_embeddings": 32, "tie_word_embeddings": True},
        ),
        "phi": ("PhiForCausalLM", "PhiConfig", SMALL_LLAMA | {"hidden_size": 32}),
        "phi-whole": (
            "PhiForCausalLM",
            "PhiConfig",
            SMALL_LLAMA
            | {"num_key_value_heads": 2, "hidden_act": "relu", "tie_word_embeddings": True, "layer_norm_eps": 1e-3}
            | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0}},
        ),
        "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", SMALL_LLAMA | CODE_IDS),
        "starcoder2-biasless": (
            "Starcoder2ForCausalLM",
            "Starcoder2Config",
            SMALL_LLAMA
            | CODE_IDS
            | {"use_bias": False, "sliding_window": 4, "tie_word_embeddings": False, "num_key_value_heads": 4}
            | {"hidden_act": "gelu", "norm_epsilon": 1e-3},
        ),
        "stablelm": (
            "StableLmForCausalLM",
            "StableLmConfig",
            SMALL_LLAMA | {"hidden_size": 32, "num_key_value_heads": 4},
        ),
        "stablelm-parallel": (
            "StableLmForCausalLM",
            "StableLmConfig",
            SMALL_LLAMA
            | {"num_key_value_heads": 2, "use_parallel_residual": True, "use_qkv_bias": True, "layer_norm_eps": 1e-3}
            | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0}},
        ),
        "granite": (
            "GraniteForCausalLM",
            "GraniteConfig",
            SMALL_LLAMA
            | {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.4}
            | {"attention_multiplier": 0.3, "num_key_value_heads": 2},
        ),
        "olmo3": (
            "Olmo3ForCausalLM",
            "Olmo3Config",
            SMALL_LLAMA | {"num_hidden_layers": 4, "sliding_window": 4, "eos_token_id": 2, "num_key_value_heads": 2},
        ),
        "olmo3-scaled": (
            "Olmo3ForCausalLM",
            "Olmo3Config",
            SMALL_LLAMA
            | {"sliding_window": 4, "eos_token_id": 2, "attention_bias": True, "tie_word_embeddings": True}
            | {"rope_parameters": {"full_attention": YARN, "sliding_attention": TWO_BASES["sliding_attention"]}}
            | {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
        ),
        "gemma": ("GemmaForCausalLM", "GemmaConfig", SMALL_LLAMA | GEMMA),
        "gemma2": (
            "Gemma2ForCausalLM",
            "Gemma2Config",
            SMALL_LLAMA
            | GEMMA
            | {"query_pre_attn_scalar": 7, "sliding_window": 4}
            | {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0},
        ),
        "gemma2-uncapped": (
            "Gemma2ForCausalLM",
            "Gemma2Config",
            SMALL_LLAMA
            | GEMMA
            | {"final_logit_softcapping": None, "attn_logit_softcapping": None}
            | {"sliding_window": 4, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
        ),
        "gemma3": (
            "Gemma3ForCausalLM",
            "Gemma3TextConfig",
            SMALL_LLAMA
            | GEMMA
            | {"sliding_window": 4, "rope_parameters": TWO_BASES}
            | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        ),
        "gemma3-capped": (
            "Gemma3ForCausalLM",
            "Gemma3TextConfig",
            SMALL_LLAMA | GEMMA | {"final_logit_softcapping": 5.0, "query_pre_attn_scalar": 24, "sliding_window": 4},
        ),
        "smollm3-every-fourth": (
            "SmolLM3ForCausalLM",
            "SmolLM3Config",
            SMALL_LLAMA | GEMMA | {"num_hidden_layers": 4, "bos_token_id": None},
        ),
        "gemma2-exported": (
            "Gemma2ForCausalLM",
            "Gemma2Config",
            SMALL_LLAMA
            | GEMMA
            | {"query_pre_attn_scalar": 10, "sliding_window": 4}
            | {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0},
        ),
        "gemma3-exported": (
            "Gemma3ForCausalLM",
            "Gemma3TextConfig",
            SMALL_LLAMA | GEMMA | {"query_pre_attn_scalar": 10, "sliding_window": 4, "num_hidden_layers": 7},
        ),
        "neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL_NEOX),
        "neox-sequential": (
            "GPTNeoXForCausalLM",
            "GPTNeoXConfig",
            SMALL_NEOX
            | {"use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True}
            | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0}},
        ),
        "neo": ("GPTNeoForCausalLM", "GPTNeoConfig", SMALL_NEO),
        "neo-global": (
            "GPTNeoForCausalLM",
            "GPTNeoConfig",
            SMALL_NEO | {"attention_types": [[["global"], 3]], "intermediate_size": 30, "activation_function": "gelu"},
        ),
        "opt": ("OPTForCausalLM", "OPTConfig", SMALL_OPT),
        "opt-biasless": (
            "OPTForCausalLM",
            "OPTConfig",
            SMALL_OPT | {"enable_bias": False, "activation_function": "gelu", "tie_word_embeddings": False},
        ),
        "falcon": ("FalconForCausalLM", "FalconConfig", SMALL_FALCON),
        "falcon-grouped": (
            "FalconForCausalLM",
            "FalconConfig",
            SMALL_FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "tie_word_embeddings": False},
        ),
        "falcon-sequential": (
            "FalconForCausalLM",
            "FalconConfig",
            SMALL_FALCON
            | {"parallel_attn": False, "multi_query": False, "bias": True, "ffn_hidden_size": 40, "activation": "relu"},
        ),
    },
    "encoder": {
        "bert": ("BertModel", "BertConfig", SMALL_BERT),
        "bert-masked": ("BertForMaskedLM", "BertConfig", SMALL_BERT | {"hidden_act": "gelu_new"}),
        "bert-untied": ("BertForMaskedLM", "BertConfig", SMALL_BERT | {"tie_word_embeddings": False}),
        "bert-pretraining": ("BertForPreTraining", "BertConfig", SMALL_BERT | {"layer_norm_eps": 1e-3}),
        "roberta": ("RobertaModel", "RobertaConfig", SMALL_BERT | {"type_vocab_size": 1}),
        "xlm-roberta": ("XLMRobertaModel", "XLMRobertaConfig", SMALL_BERT | {"type_vocab_size": 1}),
        "camembert": ("CamembertForMaskedLM", "CamembertConfig", SMALL_BERT | {"type_vocab_size": 1}),
        "pre-norm": ("RobertaPreLayerNormModel", "RobertaPreLayerNormConfig", SMALL_BERT | {"pad_token_id": 0}),
        "pre-norm-masked": (
            "RobertaPreLayerNormForMaskedLM",
            "RobertaPreLayerNormConfig",
            SMALL_BERT | {"layer_norm_eps": 1e-5, "type_vocab_size": 1},
        ),
        "roberta-masked": ("RobertaForMaskedLM", "RobertaConfig", SMALL_BERT | {"hidden_act": "relu"}),
        "distilbert": ("DistilBertModel", "DistilBertConfig", SMALL_DISTILBERT),
        "distilbert-masked": ("DistilBertForMaskedLM", "DistilBertConfig", SMALL_DISTILBERT | {"activation": "relu"}),
        "mpnet": ("MPNetModel", "MPNetConfig", SMALL_BERT | {"hidden_act": "relu"}),
        "mpnet-masked": ("MPNetForMaskedLM", "MPNetConfig", SMALL_BERT),
        "electra": ("ElectraModel", "ElectraConfig", SMALL_BERT | {"embedding_size": 24}),
        "electra-masked": ("ElectraForMaskedLM", "ElectraConfig", SMALL_BERT | {"embedding_size": 16}),
        "albert": ("AlbertModel", "AlbertConfig", SMALL_BERT | {"embedding_size": 16}),
        "albert-masked": (
            "AlbertForMaskedLM",
            "AlbertConfig",
            SMALL_BERT | {"embedding_size": 24, "hidden_act": "relu"},
        ),
        "albert-pretraining": ("AlbertForPreTraining", "AlbertConfig", SMALL_BERT | {"embedding_size": 10}),
        "modernbert": ("ModernBertModel", "ModernBertConfig", SMALL_MODERNBERT),
        "modernbert-masked": (
            "ModernBertForMaskedLM",
            "ModernBertConfig",
            SMALL_MODERNBERT
            | {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}
            | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        ),
        "t5-encoder": ("T5EncoderModel", "T5Config", SMALL_T5),
        "t5-encoder-gated": ("T5EncoderModel", "T5Config", SMALL_T5 | {"feed_forward_proj": "gated-silu"}),
        "mt5-encoder": ("MT5EncoderModel", "MT5Config", SMALL_T5 | {"feed_forward_proj": "gated-gelu"}),
    },
    "translator": {
        "marian": ("MarianMTModel", "MarianConfig", SMALL_MARIAN | {"activation_function": "swish"}),
        "marian-scaled": ("MarianMTModel", "MarianConfig", SMALL_MARIAN | {"scale_embedding": True}),
        "marian-untied": ("MarianMTModel", "MarianConfig", SMALL_MARIAN | {"tie_word_embeddings": False}),
        "marian-two-vocabularies": (
            "MarianMTModel",
            "MarianConfig",
            SMALL_MARIAN | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 67},
        ),
        "pegasus": (
            "PegasusForConditionalGeneration",
            "PegasusConfig",
            SMALL_MARIAN | {"scale_embedding": True, "activation_function": "relu"},
        ),
        "bart": ("BartForConditionalGeneration", "BartConfig", SMALL_BART),
        "bart-scaled": (
            "BartForConditionalGeneration",
            "BartConfig",
            SMALL_BART | {"scale_embedding": True, "activation_function": "relu"},
        ),
        "mbart": ("MBartForConditionalGeneration", "MBartConfig", SMALL_BART),
        "m2m100": ("M2M100ForConditionalGeneration", "M2M100Config", SMALL_BART),
        "mt5": ("MT5ForConditionalGeneration", "MT5Config", SMALL_T5 | {"feed_forward_proj": "gated-gelu"}),
        "t5": ("T5ForConditionalGeneration", "T5Config", SMALL_T5),
        "t5-gated": (
            "T5ForConditionalGeneration",
            "T5Config",
            SMALL_T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        ),
        "t5-gated-silu": ("T5ForConditionalGeneration", "T5Config", SMALL_T5 | {"feed_forward_proj": "gated-silu"}),
    },
}


@dataclass
class Case:
    """One tiny checkpoint, made lazily and shared by all tests of a run."""

    name: str
    architecture: str
    config_class: str
    settings: dict[str, Any]
    home: Path
    edited: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def theirs(self) -> Any:
        """The model of transformers, with eager attention that returns its weights."""
        import torch
        import transformers

        torch.manual_seed(sum(map(ord, self.name)))
        config = getattr(transformers, self.config_class)(**self.settings)
        config._attn_implementation = "eager"
        model = getattr(transformers, self.architecture)(config).eval()
        _enlarge_weights(model)
        return model

    @cached_property
    def folder(self) -> Path:
        """Folder written by save_pretrained."""
        self.theirs.save_pretrained(self.home)
        return self.home

    @property
    def family(self) -> str:
        """Family of the checkpoint."""
        from peasy.checkpoint.huggingface import detect_family

        model_type = str(self.theirs.config.model_type)
        return detect_family({"model_type": model_type, "architectures": [self.architecture]}).name

    @cached_property
    def ours(self) -> Any:
        """peasy's model, loaded from the same folder."""
        from peasy.checkpoint.huggingface import load_model, read_folder

        return load_model(read_folder(self.folder))


def _enlarge_weights(model: Any) -> None:
    """Enlarge the weights: initial ones are so small that attention is almost uniform."""
    import torch

    buffers = [buffer for name, buffer in model.named_buffers() if name == "final_logits_bias"]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name:  # sinusoidal, not learned
                continue
            if ("norm" in name.lower() and name.endswith("weight")) or name.split(".")[-2] in ("ln_1", "ln_2", "ln_f"):
                weight.add_(torch.randn_like(weight) * 0.3)
            else:
                weight.copy_(torch.randn_like(weight) * 0.25)
        for buffer in buffers:
            buffer.copy_(torch.randn_like(buffer))


@pytest.fixture(scope="session")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Return the case of a name."""
    cases_by_name: dict[str, Case] = {}
    known = {name: case for cases in CASES.values() for name, case in cases.items()}

    def find(name: str) -> Case:
        if name not in cases_by_name:
            cases_by_name[name] = Case(name, *known[name], home=tmp_path_factory.mktemp(name))
        return cases_by_name[name]

    return find


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with a `decoder`, `encoder`, `translator` or `family` fixture on every case of that kind."""
    groups = CASES | {"family": {name: case for cases in CASES.values() for name, case in cases.items()}}
    for kind, cases in groups.items():
        if kind in metafunc.fixturenames:
            metafunc.parametrize(kind, list(cases), indirect=True)


def _case(request: pytest.FixtureRequest, case_of: Callable[[str], Case]) -> Case:
    return case_of(request.param)


decoder = pytest.fixture(_case, name="decoder")
encoder = pytest.fixture(_case, name="encoder")
translator = pytest.fixture(_case, name="translator")
family = pytest.fixture(_case, name="family")
