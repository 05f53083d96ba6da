"""Import and export roundtrip: same bytes of every tensor, and same outputs in transformers."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from peasy.checkpoint.huggingface import load_model, read_folder, write_folder
from peasy.errors import InvalidInput
from peasy.nn.config import SinusoidalPositionConfig


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def some_ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(2, 59, (rows, length), generator=torch.Generator().manual_seed(length))


def run(model) -> list[torch.Tensor]:
    ids = some_ids(2, 9)
    inputs = {"decoder_input_ids": some_ids(2, 6)} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        out = model(ids, **inputs)
    unread = ("seq_relationship_logits", "sop_logits")
    return [value for name, value in out.items() if isinstance(value, torch.Tensor) and name not in unread]


def roundtrip(family, tmp_path):
    imported = read_folder(family.folder)
    write_folder(tmp_path / "out", imported.config, imported.tensors, family=imported.family)
    return imported, tmp_path / "out"


def test_same_bytes_of_every_tensor(family, tmp_path):
    imported, out = roundtrip(family, tmp_path)
    before, after = load_file(family.folder / "model.safetensors"), load_file(out / "model.safetensors")
    if family.name == "gpt2-bare":
        before = {f"transformer.{name}": tensor for name, tensor in before.items()}
    sinusoidal = isinstance(imported.config.position, SinusoidalPositionConfig)
    computed = {name for name in before if "embed_positions" in name and sinusoidal}
    assert before.keys() - set(imported.unused) - computed == after.keys()
    for name, tensor in after.items():
        assert tensor.dtype == before[name].dtype
        assert tensor.shape == before[name].shape
        assert raw(tensor) == raw(before[name]), name


def test_transformers_loads_it_with_equal_outputs(family, tmp_path):
    imported, out = roundtrip(family, tmp_path)
    kind = getattr(transformers, json.loads((out / "config.json").read_text())["architectures"][0])
    theirs, info = kind.from_pretrained(out, output_loading_info=True, attn_implementation="eager")
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    missing = {
        name for name in info["missing_keys"] if "embed_positions" not in name
    }  # sinusoidal positions are recomputed
    assert missing <= set(imported.unused)
    if family.name == "gpt2-bare":  # exported with a tied LM head
        theirs = theirs.transformer
    for ours, expected in zip(run(theirs.eval()), run(family.theirs), strict=True):
        torch.testing.assert_close(ours, expected, atol=0, rtol=0)


def test_settings_survive(family, tmp_path):
    imported, out = roundtrip(family, tmp_path)
    assert read_folder(out).config == imported.config


@pytest.mark.parametrize("name", ["gpt2", "llama-grouped", "bert", "t5"])
def test_shards(case_of, tmp_path, name):
    case = case_of(name)
    case.theirs.save_pretrained(tmp_path / "in", max_shard_size="20KB")
    assert (tmp_path / "in" / "model.safetensors.index.json").exists()
    imported = read_folder(tmp_path / "in")
    for key, tensor in read_folder(case.folder).tensors.items():
        assert raw(imported.tensors[key]) == raw(tensor)
    write_folder(tmp_path / "out", imported.config, imported.tensors, shard_bytes=20_000)
    assert (tmp_path / "out" / "model.safetensors.index.json").exists()
    theirs = type(case.theirs).from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    for ours, expected in zip(run(theirs), run(case.theirs), strict=True):
        torch.testing.assert_close(ours, expected, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_its_bytes(case_of, tmp_path, dtype):
    case = case_of("qwen3")
    source = tmp_path / "in"
    source.mkdir()
    stored = {name: tensor.to(dtype) for name, tensor in load_file(case.folder / "model.safetensors").items()}
    save_file(stored, source / "model.safetensors")
    (source / "config.json").write_text((case.folder / "config.json").read_text())
    imported = read_folder(source)
    write_folder(tmp_path / "out", imported.config, imported.tensors)
    for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items():
        assert raw(tensor) == raw(stored[name])
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    with torch.no_grad():
        assert load_model(imported)(some_ids(1, 5)).dtype == dtype


# Inverse: with a changed weight map, the outputs must differ.


@pytest.mark.parametrize(
    ("name", "module", "one", "other"),
    [
        ("llama", "llama", "self_attn.q_proj", "self_attn.k_proj"),
        ("llama", "llama", "mlp.gate_proj", "mlp.up_proj"),
        ("llama", "llama", "input_layernorm", "post_attention_layernorm"),
        ("bert", "bert", "attention.self.key", "attention.self.value"),
    ],
)
def test_swapped_weights_are_detected(case_of, monkeypatch, name, module, one, other):
    from peasy.checkpoint.huggingface import bert, llama, registry, weight_map

    def swapped(theirs, ours, names):
        partner = {one: other, other: one}
        return weight_map.module_rules(theirs, ours, {partner.get(key, key): value for key, value in names.items()})

    monkeypatch.setattr({"llama": llama, "bert": bert}[module], "module_rules", swapped)
    case, ids = case_of(name), some_ids(2, 9)
    model = load_model(read_folder(case.folder))
    with torch.no_grad():
        difference = (model.hidden(ids) - case.theirs.base_model(ids).last_hidden_state).abs().max()
    assert difference > 1e-2
    assert registry.FAMILIES  # the weight maps themselves are unchanged


@pytest.mark.parametrize("field", ["rope_parameters", "rms_norm_eps", "num_key_value_heads"])
def test_missing_settings_are_detected(case_of, tmp_path, field):
    case = case_of("llama-bands" if field == "rope_parameters" else "llama-grouped")
    info = json.loads((case.folder / "config.json").read_text())
    del info[field]
    (tmp_path / "config.json").write_text(json.dumps(info))
    (tmp_path / "model.safetensors").write_bytes((case.folder / "model.safetensors").read_bytes())
    if field == "num_key_value_heads":
        with pytest.raises(InvalidInput, match=r"k_proj\.weight has shape"):
            read_folder(tmp_path)
        return
    with torch.no_grad():
        logits = load_model(read_folder(tmp_path))(some_ids(2, 9))
        assert (logits - case.theirs(some_ids(2, 9)).logits).abs().max() > 1e-3
