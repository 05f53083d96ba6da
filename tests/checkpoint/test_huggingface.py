"""Hugging Face import and export: round trips, refused configs and weights, families for export."""

import dataclasses
import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from peasy.checkpoint.huggingface import FAMILIES, detect_family, family_for, load_model, read_folder, write_folder
from peasy.checkpoint.huggingface.config_fields import ConfigFields
from peasy.checkpoint.tensors import TensorFile
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, NGramConfig
from peasy.nn import config as nn_config

GPT2 = DecoderConfig(
    vocab_size=31,
    d_model=12,
    max_seq_len=16,
    stack=nn_config.StackConfig(2, nn_config.AttentionConfig(3), nn_config.MLPConfig(20, "gelu-tanh")),
)
LLAMA = DecoderConfig(
    vocab_size=31,
    d_model=12,
    max_seq_len=64,
    stack=nn_config.StackConfig(
        2,
        nn_config.AttentionConfig(2, num_kv_heads=1, bias=False, output_bias=False),
        nn_config.GatedMLPConfig(20),
        nn_config.RMSNormConfig(),
    ),
    position=nn_config.RotaryConfig(),
    lm_head=nn_config.LMHeadConfig(tied=False),
)
BERT = EncoderConfig(
    vocab_size=31,
    d_model=12,
    max_seq_len=16,
    stack=nn_config.StackConfig(
        2, nn_config.AttentionConfig(3), nn_config.MLPConfig(20), nn_config.LayerNormConfig("post", 1e-12)
    ),
    embedding=nn_config.EmbeddingConfig(segments=2, norm=True),
    lm_head=nn_config.LMHeadConfig(bias=True, transform="gelu"),
    pooler=True,
)
MARIAN = EncoderDecoderConfig(
    vocab_size=31,
    d_model=12,
    max_seq_len=16,
    encoder=nn_config.StackConfig(
        1, nn_config.AttentionConfig(3), nn_config.MLPConfig(20), nn_config.LayerNormConfig("post")
    ),
    decoder=nn_config.StackConfig(
        2, nn_config.AttentionConfig(2), nn_config.MLPConfig(24), nn_config.LayerNormConfig("post")
    ),
    position=nn_config.SinusoidalPositionConfig("halves"),
    lm_head=nn_config.LMHeadConfig(bias=True),
)


def with_attention(config, **attention):
    changed = dataclasses.replace(config.stack.attention, **attention)
    return dataclasses.replace(config, stack=dataclasses.replace(config.stack, attention=changed))


def write(folder, config=GPT2, **settings):
    """Write a folder with random weights; `settings` go into its config.json."""
    write_folder(folder, config, build(config, seed=1).state_dict())
    if settings:
        change_config(folder, **settings)
    return folder


def change_config(folder, **settings):
    data = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(data))


def change_weights(folder, added=None, removed=()):
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor.clone() for name, tensor in tensors.items() if name not in removed} | (added or {})
    (folder / "model.safetensors").unlink()
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("config", [GPT2, LLAMA, BERT, MARIAN], ids=["gpt2", "llama", "bert", "marian"])
def test_export_import_round_trip(tmp_path, config):
    model = build(config, seed=1)
    write_folder(tmp_path / "out", config, model.state_dict())
    reloaded = load_model(read_folder(tmp_path / "out"))
    assert all(torch.equal(tensor, reloaded.state_dict()[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", FAMILIES)
def test_families_by_model_type(name):
    assert detect_family({"model_type": name, "architectures": [FAMILIES[name].architectures[0]]}).name == name


def test_unsupported_architecture_error_lists_the_supported_ones(tmp_path):
    folder = write(tmp_path / "m", model_type="mamba", architectures=["MambaForCausalLM"])
    with pytest.raises(InvalidInput, match="'mamba' is not supported") as caught:
        read_folder(folder)
    assert "llama" in caught.value.hint
    change_config(folder, model_type="gpt2", architectures=["GPT2DoubleHeadsModel"])
    with pytest.raises(InvalidInput, match="GPT2DoubleHeadsModel") as caught:
        read_folder(folder)
    assert "GPT2LMHeadModel" in caught.value.hint


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        (GPT2, {"add_cross_attention": True}, "add_cross_attention is True"),
        (GPT2, {"activation_function": "mish"}, "activation_function should be one of"),
        (GPT2, {"new_trick": 1}, "has unknown fields: new_trick"),
        (GPT2, {"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        (GPT2, {"quantization_config": {"bits": 4}}, "quantization_config"),
        (GPT2, {"pruned_heads": {"0": [1]}}, "pruned_heads"),
        (GPT2, {"n_layer": 0}, "n_layer should be an integer from 1 to 1000, not 0"),
        (GPT2, {"n_layer": 10**9}, "n_layer should be an integer from 1 to 1000"),
        (GPT2, {"n_embd": "12"}, "n_embd should be an integer"),
        (GPT2, {"n_embd": 12.0}, "n_embd should be an integer"),
        (GPT2, {"n_head": True}, "n_head should be an integer"),
        (GPT2, {"n_head": 5}, "cannot be split into 5 heads"),
        (GPT2, {"vocab_size": None}, "vocab_size is missing"),
        (GPT2, {"layer_norm_epsilon": -1}, "layer_norm_epsilon should be a number from 0"),
        (GPT2, {"tie_word_embeddings": "yes"}, "tie_word_embeddings should be true or false"),
        (GPT2, {"eos_token_id": [1, -3]}, "eos_token_id should be a token id"),
        (LLAMA, {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic' is not supported"),
        (LLAMA, {"rope_parameters": {"rope_type": "linear"}}, "factor is missing"),
        (LLAMA, {"rope_parameters": {"rope_type": "default", "twist": 1}}, "has unknown fields: twist"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        (LLAMA, {"rope_interleaved": True}, "rope_interleaved is True"),
        (LLAMA, {"sliding_window": 4}, "sliding_window is 4"),
        (LLAMA, {"num_key_value_heads": 3}, "cannot share 3 KV heads"),
        (BERT, {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        (BERT, {"is_decoder": True}, "is_decoder is True"),
        (MARIAN, {"normalize_before": True}, "normalize_before is True"),
        (MARIAN, {"static_position_embeddings": False}, "static_position_embeddings is False"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)  # fmt: skip
def test_unsupported_settings_are_refused_by_name(tmp_path, config, settings, message):
    folder = write(tmp_path / "m", config, **settings)
    with pytest.raises(InvalidInput) as caught:
        read_folder(folder)
    assert message in caught.value.message


def test_unknown_field_can_be_ignored(tmp_path):
    off = dict.fromkeys(("null", "false", "zero", "empty"), None) | {"false": False, "zero": 0, "empty": {}}
    folder = write(tmp_path / "m", new_trick=1, other={"a": 1}, **off)
    with pytest.raises(InvalidInput, match="unknown fields: new_trick, other") as caught:
        read_folder(folder)
    assert "--ignore-extra" in caught.value.hint
    checkpoint = read_folder(folder, ignore_extra=True)
    assert (checkpoint.config, checkpoint.unused_fields) == (GPT2, ("new_trick", "other"))
    change_config(folder, scale_attn_by_inverse_layer_idx=True)
    with pytest.raises(InvalidInput, match="scale_attn_by_inverse"):  # known, and changes results
        read_folder(folder, ignore_extra=True)


def test_legacy_rope_settings(tmp_path):
    folder = write(tmp_path / "m", LLAMA)
    data = json.loads((folder / "config.json").read_text())
    del data["rope_parameters"]
    scaling = {"type": "linear", "factor": 2}
    (folder / "config.json").write_text(json.dumps(data | {"rope_theta": 500, "rope_scaling": scaling}))
    assert read_folder(folder).config.position == nn_config.RotaryConfig(500.0, nn_config.LinearRopeScaling(2.0))


def test_missing_and_unexpected_tensors_are_named(tmp_path):
    folder = write(tmp_path / "m")
    change_weights(folder, removed=["transformer.ln_f.bias"])
    with pytest.raises(InvalidInput, match=r"is missing the weights transformer\.ln_f\.bias"):
        read_folder(folder)
    folder = write(tmp_path / "n")
    change_weights(folder, {"transformer.h.2.ln_1.weight": torch.zeros(12), "score.weight": torch.zeros(2)})
    with pytest.raises(InvalidInput, match=r"has unexpected weights score\.weight, transformer\.h\.2\.ln_1\.weight"):
        read_folder(folder)


def test_shapes_and_dtypes_are_checked(tmp_path):
    folder = write(tmp_path / "m")
    change_weights(folder, {"transformer.h.0.attn.c_attn.weight": torch.zeros(36, 12)})
    with pytest.raises(InvalidInput, match=r"c_attn\.weight has shape \[36, 12\]; config\.json requires \[12, 36\]"):
        read_folder(folder)
    folder = write(tmp_path / "n")
    change_weights(folder, {"transformer.ln_f.bias": torch.zeros(12, dtype=torch.int64)})
    with pytest.raises(InvalidInput, match="has dtype int64"):
        read_folder(folder)
    folder = write(tmp_path / "o")
    change_weights(folder, {"transformer.ln_f.bias": torch.full((12,), torch.nan)})
    with pytest.raises(InvalidInput, match="NaN"):
        assert read_folder(folder).tensors


def test_derived_buffers_are_ignored(tmp_path):
    folder = write(tmp_path / "m")
    change_weights(folder, {
        "transformer.h.0.attn.bias": torch.ones(1, 1, 16, 16, dtype=torch.bool),
        "transformer.h.1.attn.masked_bias": torch.tensor(-torch.inf),
    })  # fmt: skip
    checkpoint = read_folder(folder)
    assert checkpoint.unused == ()
    assert set(checkpoint.tensors) == set(build(GPT2, seed=None).state_dict())
    folder = write(tmp_path / "n", BERT)
    change_weights(folder, {"bert.embeddings.position_ids": torch.arange(16)[None]})
    assert read_folder(folder).config == BERT


def test_unused_weights_are_reported(tmp_path):
    folder = write(tmp_path / "m", BERT)
    change_weights(
        folder, {"cls.seq_relationship.weight": torch.zeros(2, 12), "cls.seq_relationship.bias": torch.zeros(2)}
    )
    assert set(read_folder(folder).unused) == {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}


def test_tied_head_may_be_stored_twice(tmp_path):
    folder = write(tmp_path / "m")
    embedding = load_file(folder / "model.safetensors")["transformer.wte.weight"]
    change_weights(folder, {"lm_head.weight": embedding.clone()})
    assert read_folder(folder).config.lm_head.tied
    change_weights(folder, removed=["transformer.wte.weight"])
    assert torch.equal(read_folder(folder).tensors["embedding.token.weight"], embedding)


def test_head_with_other_values_is_untied(tmp_path):
    folder = write(tmp_path / "m")
    change_weights(folder, {"lm_head.weight": torch.randn(31, 12)})
    checkpoint = read_folder(folder)
    assert not checkpoint.config.lm_head.tied
    assert "lm_head.weight" in checkpoint.tensors


def test_tied_copy_that_differs_is_refused(tmp_path):
    folder = write(tmp_path / "m", BERT)
    change_weights(folder, {"cls.predictions.decoder.bias": torch.ones(31)})
    with pytest.raises(InvalidInput, match=r"cls\.predictions\.decoder\.bias should equal"):
        read_folder(folder)


def test_legacy_norm_names(tmp_path):
    folder = write(tmp_path / "m", BERT)
    tensors = load_file(folder / "model.safetensors")
    legacy = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor.clone()
        for name, tensor in tensors.items()
    }
    expected = read_folder(folder).tensors
    (folder / "model.safetensors").unlink()
    save_file(legacy, folder / "model.safetensors")
    checkpoint = read_folder(folder)
    assert checkpoint.config == BERT
    assert all(torch.equal(tensor, expected[name]) for name, tensor in checkpoint.tensors.items())


def test_mixed_dtypes_are_promoted(tmp_path):
    folder = write(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    change_weights(folder, {name: tensor.bfloat16() for name, tensor in tensors.items() if "ln" not in name})
    checkpoint = read_folder(folder)
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {torch.float32, torch.bfloat16}
    assert load_model(checkpoint)(torch.tensor([[1, 2]])).dtype == torch.float32


def test_loading_is_memory_mapped(tmp_path):
    folder = write(tmp_path / "m")
    model = load_model(read_folder(folder))
    addresses = [weight.data_ptr() for weight in model.parameters()]
    assert max(addresses) - min(addresses) < (folder / "model.safetensors").stat().st_size  # all in one mapping


# Families for export.


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("gpt2", GPT2),
        ("llama", LLAMA),
        ("mistral", with_attention(LLAMA, window=4)),
        ("qwen2", with_attention(LLAMA, bias=True)),
        ("qwen3", with_attention(LLAMA, qk_norm=True)),
        ("bert", BERT),
        ("roberta", dataclasses.replace(BERT, position=nn_config.LearnedPositionConfig(2))),
        ("marian", MARIAN),
    ],
)  # fmt: skip
def test_family_for_config(name, config):
    assert family_for(config).name == name


def test_dropout_and_context_do_not_affect_the_family():
    assert family_for(dataclasses.replace(LLAMA, dropout=0.2, max_seq_len=None)).name == "llama"


def test_error_for_no_family_lists_the_differences():
    post_norm = dataclasses.replace(GPT2, stack=dataclasses.replace(GPT2.stack, norm=nn_config.LayerNormConfig("post")))
    with pytest.raises(InvalidInput) as caught:
        family_for(post_norm)
    assert "gpt2: stack.norm.placement." in caught.value.hint
    with pytest.raises(InvalidInput, match="ngram"):
        family_for(NGramConfig(vocab_size=5))


def test_failed_export_leaves_no_folder(tmp_path, monkeypatch):
    from peasy.checkpoint.huggingface import folder

    def fail(*_):
        raise RuntimeError("power cut")

    monkeypatch.setattr(folder, "write_json", fail)
    with pytest.raises(RuntimeError):
        write(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_every_field_is_read_ignored_or_refused():
    fields = ConfigFields({"a": 1, "b": 2, "c": 3})
    fields.integer("a")
    fields.ignore("b other")
    with pytest.raises(InvalidInput, match="has unknown fields: c"):
        fields.reject_unknown()
    fields.require_value("c", 3, reason="")
    fields.reject_unknown()


def test_loading_does_not_import_torch_dynamo(tmp_path):
    folder = write(tmp_path / "m")
    code = (
        "import sys; from peasy.checkpoint.huggingface import load_model, read_folder;"
        f"load_model(read_folder({str(folder)!r})); print('torch._dynamo' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "False"


def test_names_are_checked_before_weights_are_read(tmp_path, monkeypatch):
    folder = write(tmp_path / "m")
    change_weights(folder, {"score.weight": torch.zeros(2)})
    monkeypatch.setattr(TensorFile, "tensor", lambda self, name: pytest.fail(f"{name} was read"))
    with pytest.raises(InvalidInput, match=r"has unexpected weights score\.weight"):
        read_folder(folder)
