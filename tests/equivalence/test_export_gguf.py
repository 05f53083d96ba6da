"""GGUF export: read back by the gguf package, and run by transformers."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from peasy.checkpoint.gguf import write_gguf
from peasy.checkpoint.gguf_architecture import ARCHITECTURES, find_architecture, weight_map
from peasy.checkpoint.huggingface import family_for
from peasy.checkpoint.huggingface.weight_map import import_weights, pair_weights
from peasy.errors import InvalidInput, MissingExtra
from peasy.models.build import build
from peasy.models.config import DecoderConfig, SpecialTokensConfig
from peasy.models.preset import preset
from peasy.nn import config as nn_config
from peasy.tokenization import train_tokenizer

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

CASES = ["gpt2", "llama-grouped", "llama-bands", "llama-linear", "llama-yarn", "mistral", "qwen2-windows", "qwen3"]
CASES += [
    "smollm3-every-fourth",
    "olmo2",
    "olmo3",
    "phi3",
    "phi",
    "starcoder2",
    "stablelm",
    "stablelm-parallel",
    "granite",
    "neox",
    "falcon",
    "falcon-grouped",
    "gemma",
    "gemma2-exported",
    "gemma3-exported",
]
SMALL = DecoderConfig(
    vocab_size=40,
    d_model=64,
    max_seq_len=32,
    stack=nn_config.StackConfig(2, nn_config.AttentionConfig(4), nn_config.MLPConfig(96, "gelu-tanh")),
)


def exported(case, tmp_path, tensor_type):
    model = case.ours
    family = case.family
    out = write_gguf(tmp_path / "out", model.config, model.state_dict(), tensor_type=tensor_type, family=family)
    return model, gguf.GGUFReader(out / "model.gguf")


def run_by_transformers(path, **ignored):
    """Load the file with transformers; `ignored` are settings of the file that transformers ignores."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    settings = load_gguf_checkpoint(str(path), return_tensors=False)["config"]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings | ignored)).eval()
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, extra = model.load_state_dict(tensors, strict=False)
    assert not extra
    assert set(missing) <= {"lm_head.weight"}  # tied
    model.tie_weights()
    return model


def value(reader, key):
    field = reader.get_field(key)
    assert field is not None, key
    return field.contents()


def read_back(reader, config, family=None) -> dict[str, torch.Tensor]:
    """Return the file's tensors under our names, dequantised."""
    stored = {t.name: torch.tensor(gguf.quants.dequantize(t.data, t.tensor_type)) for t in reader.tensors}
    stored.pop("rope_freqs.weight", None)
    pairs = pair_weights(
        weight_map(config, ARCHITECTURES[family_for(config, family).name]), build(config, seed=None).state_dict()
    )
    assert {name for pair in pairs for name in pair.external} == set(stored)
    return import_weights(pairs, stored)


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_exported(case_of, tmp_path, name):
    model, reader = exported(case_of(name), tmp_path, "f32")
    for key, tensor in read_back(reader, model.config, case_of(name).family).items():
        if getattr(model.config.stack.norm, "unit_offset", False) and "norm" in key:  # stored plus 1
            torch.testing.assert_close(tensor, model.state_dict()[key], atol=2e-7, rtol=0)
        else:
            assert torch.equal(tensor, model.state_dict()[key]), key


def test_half_precision_rounds_matrices_only(case_of, tmp_path):
    _, reader = exported(case_of("llama"), tmp_path, "f32")
    assert value(reader, "general.file_type") == 0
    config = SMALL
    weights = build(config, seed=2).state_dict()
    reader = gguf.GGUFReader(write_gguf(tmp_path / "half", config, weights, tensor_type="f16") / "model.gguf")
    assert value(reader, "general.file_type") == 1
    for key, tensor in read_back(reader, config).items():
        exact = weights[key].ndim < 2 or "position" in key
        assert torch.equal(tensor, weights[key] if exact else weights[key].half().float()), key


def test_int8_error_is_within_half_a_step(tmp_path):
    config = SMALL
    weights = build(config, seed=2).state_dict()
    reader = gguf.GGUFReader(write_gguf(tmp_path / "q", config, weights, tensor_type="q8_0") / "model.gguf")
    assert value(reader, "general.file_type") == 7
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    assert kinds["blk.0.attn_qkv.weight"] == kinds["token_embd.weight"] == "Q8_0"
    assert kinds["position_embd.weight"] == kinds["blk.0.attn_norm.weight"] == "F32"
    coarse = 0
    for key, tensor in read_back(reader, config).items():
        expected = weights[key]
        if expected.ndim < 2 or "position" in key:
            assert torch.equal(tensor, expected)
            continue
        blocks = expected.reshape(-1, 32)
        step = blocks.abs().amax(dim=1, keepdim=True) / 127
        error = (tensor.reshape(-1, 32) - blocks).abs()
        assert (error <= step * 0.51 + step * 127 * 2**-11).all(), key  # half a step, and rounding of the 16-bit scale
        coarse += int((error > 0).any())
    assert coarse


def test_rows_that_are_no_multiple_of_the_block_keep_precision(case_of, tmp_path):
    _, reader = exported(case_of("llama"), tmp_path, "q8_0")
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    assert kinds["blk.0.attn_q.weight"] == "F16"


def test_settings(case_of, tmp_path):
    model, reader = exported(case_of("llama-bands"), tmp_path, "f32")
    expected = {
        "general.architecture": "llama", "llama.context_length": 64, "llama.embedding_length": 24,
        "llama.block_count": 3, "llama.feed_forward_length": 40, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 4, "llama.attention.key_length": 10, "llama.attention.value_length": 10,
        "llama.rope.dimension_count": 10, "llama.rope.freq_base": 500.0, "llama.vocab_size": 61,
        "tokenizer.ggml.model": "no_vocab",
    }  # fmt: skip
    assert {key: value(reader, key) for key in expected} == expected
    assert value(reader, "llama.attention.layer_norm_rms_epsilon") == pytest.approx(1e-6)
    rope_factors = next(t for t in reader.tensors if t.name == "rope_freqs.weight").data
    assert rope_factors.shape == (5,)
    assert 1 < rope_factors[0] < 2  # a high frequency is almost unscaled
    assert rope_factors[-1] == pytest.approx(model.config.position.scaling.factor)


def test_window_shortens_the_context(case_of, tmp_path):
    _, reader = exported(case_of("mistral"), tmp_path, "f32")
    assert value(reader, "llama.context_length") == 4


@pytest.mark.parametrize("name", ["gpt2", "llama-grouped", "mistral-whole", "qwen2", "qwen3"])
def test_transformers_runs_the_file(case_of, tmp_path, name):
    """transformers reads tensor names, row order and settings from the file."""
    model, _ = exported(case_of(name), tmp_path, "f32")
    ignored = {"qwen3": {"head_dim": 10}, "gpt2": {"vocab_size": 61, "n_positions": 40}}
    theirs = run_by_transformers(tmp_path / "out" / "model.gguf", **ignored.get(name, {}))
    ids = torch.randint(3, 57, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, model(ids), atol=1e-4, rtol=0)


# Tokenizer.


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["The pizza came out of the oven and it tasted good.", "Ünïcödé 東京 🍕"] * 9
    return train_tokenizer(texts, kind="bpe", vocab_size=300, add_bos_eos=True)


def test_pieces_and_merges(tmp_path, tokenizer):
    config = preset("gpt-tiny", vocab_size=len(tokenizer) + 3)
    out = write_gguf(tmp_path / "out", config, build(config, seed=1).state_dict(), tokenizer, tensor_type="q8_0")
    reader = gguf.GGUFReader(out / "model.gguf")
    assert value(reader, "general.architecture") == "arcee"
    assert value(reader, "tokenizer.ggml.model") == "gpt2"
    assert value(reader, "tokenizer.ggml.pre") == "smollm", "single digits"
    data = json.loads((out / "tokenizer.json").read_text())
    tokens, types = value(reader, "tokenizer.ggml.tokens"), value(reader, "tokenizer.ggml.token_type")
    assert {piece: id for id, piece in enumerate(tokens[: len(tokenizer)])} == data["model"]["vocab"]
    assert tokens[len(tokenizer) :] == [f"[PAD{len(tokenizer) + i}]" for i in range(3)]
    assert types[:6] == [3, 3, 3, 3, 3, 1]
    assert types[-3:] == [5, 5, 5]
    assert value(reader, "tokenizer.ggml.merges") == [" ".join(pair) for pair in data["model"]["merges"]]
    assert value(reader, "tokenizer.ggml.bos_token_id") == data["model"]["vocab"]["<bos>"]
    assert value(reader, "tokenizer.ggml.eos_token_id") == data["model"]["vocab"]["<eos>"]
    assert value(reader, "tokenizer.ggml.add_bos_token") is True


def test_special_ids_of_the_model_come_first(tmp_path, tokenizer):
    config = preset("gpt-tiny", vocab_size=len(tokenizer), special_tokens={"bos": 7, "eos": [8, 9]})
    assert config.special_tokens == SpecialTokensConfig(bos=7, eos=(8, 9))
    out = write_gguf(tmp_path / "out", config, build(config, seed=1).state_dict(), tokenizer)
    reader = gguf.GGUFReader(out / "model.gguf")
    assert value(reader, "tokenizer.ggml.bos_token_id") == 7
    assert value(reader, "tokenizer.ggml.eos_token_id") == 8
    assert value(reader, "tokenizer.ggml.add_bos_token") is False


@pytest.mark.parametrize("kind", ["characters", "unigram"])
def test_unsupported_tokenizer_is_refused(tmp_path, kind):
    other = train_tokenizer(["The pizza came out of the oven."] * 9, kind=kind, vocab_size=60)
    config = preset("gpt-tiny", vocab_size=len(other))
    with pytest.raises(InvalidInput, match="GGUF does not support"):
        write_gguf(tmp_path / "out", config, build(config, seed=1).state_dict(), other)
    assert not (tmp_path / "out").exists()


def test_vocabulary_larger_than_the_model_is_refused(tmp_path, tokenizer):
    config = preset("gpt-tiny", vocab_size=280)
    with pytest.raises(InvalidInput, match="vocabulary size is 280"):
        write_gguf(tmp_path / "out", config, build(config, seed=1).state_dict(), tokenizer)


def test_lowercasing_is_refused(tmp_path):
    other = train_tokenizer(["The pizza"] * 9, kind="bpe", vocab_size=270, lowercase=True)
    config = preset("gpt-tiny", vocab_size=len(other))
    with pytest.raises(InvalidInput, match="Lowercase"):
        write_gguf(tmp_path / "out", config, build(config, seed=1).state_dict(), other)


# What llama.cpp would compute differently.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt2-unscaled", "activation relu"),
        ("llama-biases", "activation gelu"),
        ("qwen3-windows", "with biases"),
        ("arcee", "with biases"),
        ("neox-sequential", "attention without biases"),
        ("gemma2", "custom attention scale"),
        ("smollm3", "layers without RoPE"),
        ("phi3-long", "rope_type longrope"),
        ("qwen2-yarn", "settings of yarn"),
        ("neo", "no GGUF export for gpt_neo"),
        ("bert", "kind encoder"),
        ("t5", "kind encoder-decoder"),
    ],
)
def test_refused(case_of, tmp_path, name, message):
    model = case_of(name).ours
    with pytest.raises(InvalidInput, match=message):
        write_gguf(tmp_path / "out", model.config, model.state_dict(), family=case_of(name).family)


def test_numbers_too_large_for_half_precision(tmp_path):
    weights = build(SMALL, seed=1).state_dict()
    weights["embedding.token.weight"][0, 0] = 1e6
    with pytest.raises(InvalidInput, match="too large for f16"):
        write_gguf(tmp_path / "out", SMALL, weights, tensor_type="f16")
    assert not (tmp_path / "out").exists()


def test_unknown_numbers(tmp_path):
    with pytest.raises(InvalidInput, match="q4"):
        write_gguf(tmp_path / "out", SMALL, {}, tensor_type="q4")


def test_missing_extra_names_the_install_command(tmp_path, monkeypatch):
    monkeypatch.setattr("peasy.checkpoint.gguf.find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as caught:
        write_gguf(tmp_path / "out", SMALL, {})
    assert "peasy-attention[export]" in caught.value.hint


def test_missing_row_permutation_is_detected(case_of, tmp_path, monkeypatch):
    """Inverse: without the permutation of query and key rows the file is another model."""
    from peasy.checkpoint import gguf_architecture as ours

    monkeypatch.setattr(ours, "interleave_rope", lambda num_heads: ours.IDENTITY)
    model, _ = exported(case_of("llama-grouped"), tmp_path, "f32")
    theirs = run_by_transformers(tmp_path / "out" / "model.gguf")
    ids = torch.randint(3, 57, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert np.abs((theirs(ids).logits - model(ids)).numpy()).max() > 1e-2


@pytest.mark.parametrize("base", [None, 50.0])
def test_local_layers_with_another_rope_base_are_refused_where_llama_cpp_has_one(case_of, base):
    """Its OLMo 3 rotates all layers alike; the base of Gemma 3's local layers is fixed."""
    config = case_of("olmo3").ours.config
    config = dataclasses.replace(config, position=dataclasses.replace(config.position, local_base=base))
    if base is None:
        assert find_architecture(config, "olmo3")[0].full_every == 4
    else:
        with pytest.raises(InvalidInput, match="olmo2 with this RoPE base of local layers"):
            find_architecture(config, "olmo3")
