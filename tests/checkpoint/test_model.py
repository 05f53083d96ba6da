"""Save and load models: round trips, and errors for weights or configs that do not match."""

import json

import pytest
import torch

from peasy.checkpoint import ram
from peasy.checkpoint.model import load_model, save_model
from peasy.checkpoint.store import read_checkpoint, write_checkpoint, write_manifest
from peasy.config import to_plain
from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.models.build import MODEL_CLASSES, build
from peasy.models.preset import presets

TINY = {preset.config.kind: preset for preset in presets() if preset.name.endswith("-tiny")}


@pytest.mark.parametrize("kind", sorted(TINY))
def test_save_load_round_trip(tmp_path, kind):
    model = build(TINY[kind].config, seed=3)
    reloaded = load_model(read_checkpoint(save_model(tmp_path / "m", model)))
    assert reloaded.config == model.config
    before, after = model.state_dict(), reloaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_every_kind_has_a_tiny_preset():
    assert set(TINY) == {config.kind for config in MODEL_CLASSES}


def test_loaded_model_gives_same_logits_and_can_be_trained(folder, model):
    reloaded = load_model(read_checkpoint(folder))
    ids = torch.tensor([[7, 8, 9]])
    assert torch.equal(reloaded(ids), model(ids))
    reloaded(ids).sum().backward()
    assert all(weight.grad is not None for weight in reloaded.parameters())
    with torch.no_grad():
        for weight in reloaded.parameters():
            weight += 1
    read_checkpoint(folder)  # changed weights do not reach the file


@pytest.fixture
def modified(folder):
    """Return a function that changes config or weights of a checkpoint and writes a valid manifest."""

    def change(config=None, **weights):
        original = read_checkpoint(folder)
        tensors = {name: original.tensors[name] for name in original.tensors}
        for name, tensor in weights.items():
            tensors = (
                {**tensors, name: tensor} if tensor is not None else {n: t for n, t in tensors.items() if n != name}
            )
        changed = folder.parent / "changed"
        return read_checkpoint(write_checkpoint(changed, tensors, original.config if config is None else config))

    return change


def test_missing_weights_are_named(modified):
    name = "embedding.token.weight"
    with pytest.raises(InvalidInput, match=r"is missing the weights 'embedding\.token\.weight'"):
        load_model(modified(**{name: None}))


def test_unexpected_weights_are_named(modified):
    with pytest.raises(InvalidInput, match="has unexpected weights 'surprise'"):
        load_model(modified(surprise=torch.ones(1)))


def test_wrong_shape_is_named_with_the_expected_one(modified):
    with pytest.raises(InvalidInput, match=r"has shape \[3, 16\]; config.json requires \[280, 16\]"):
        load_model(modified(**{"embedding.token.weight": torch.ones(3, 16)}))


def test_integer_weights_are_refused(modified):
    with pytest.raises(InvalidInput, match="has dtype int64"):
        load_model(modified(**{"embedding.token.weight": torch.ones(280, 16, dtype=torch.long)}))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("d_model", 0, "d_model"),
        ("d_model", 17, "d_model"),
        ("d_model", "16", "d_model should be a whole number"),
        ("d_model", 2**40, "d_model is 1099511627776; the maximum here is 2,147,483,647"),
        ("vocab_size", 281, r"\[281, 16\]"),
        ("stack.num_layers", 10**9, r"stack.num_layers is 1000000000; the maximum here is \d+"),
        ("stack.num_layers", 3, "is missing the weights"),
        ("stack.num_layers", 1, "has unexpected weights"),
        ("kind", "transformer", "kind"),
        ("stack.norm.kind", "batch", "stack.norm.kind"),
        ("dropuot", 0.1, "dropuot: unknown key"),
        ("dropout", 7.0, "dropout"),
        ("special_tokens.eos", "x", "special_tokens.eos"),
    ],
)
def test_invalid_config_is_named_with_value_and_range(modified, model, path, value, message):
    data = to_plain(model.config)
    *parents, last = path.split(".")
    inner = data
    for key in parents:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(InvalidInput, match=message):
        load_model(modified(data))


def test_too_large_model_is_refused_before_weights_are_read(folder, monkeypatch):
    checkpoint = read_checkpoint(folder)
    monkeypatch.setattr(ram, "available_ram", lambda: 1000)
    monkeypatch.setattr(type(checkpoint.tensors), "__getitem__", lambda *a: pytest.fail("read"))
    with pytest.raises(ResourceUnavailable, match="needs about"):
        load_model(checkpoint)


def test_edited_config_needs_a_new_manifest(folder):
    data = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(data | {"dropout": 0.5}))
    with pytest.raises(InvalidInput, match=r"config\.json"):
        read_checkpoint(folder)
    write_manifest(folder)
    assert load_model(read_checkpoint(folder)).config.dropout == 0.5
