import json

import pytest
import torch

from peasy.checkpoint import memory
from peasy.checkpoint.manifest import write_manifest
from peasy.checkpoint.model import load_model, save_model
from peasy.checkpoint.store import read_checkpoint, write_checkpoint
from peasy.config import plain
from peasy.errors import InvalidInput, NoRoom
from peasy.models.build import KINDS, build
from peasy.models.preset import presets

TINY = {preset.config.kind: preset for preset in presets() if preset.name.endswith("-tiny")}


@pytest.mark.parametrize("kind", sorted(TINY))
def test_every_kind_of_model_comes_back(tmp_path, kind):
    model = build(TINY[kind].config, seed=3)
    again = load_model(read_checkpoint(save_model(tmp_path / "m", model)))
    assert again.config == model.config
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_all_kinds_have_a_tiny_one():
    assert set(TINY) == {config.kind for config in KINDS}


def test_a_loaded_model_answers_as_before_and_can_be_trained(folder, model):
    again = load_model(read_checkpoint(folder))
    ids = torch.tensor([[7, 8, 9]])
    assert torch.equal(again(ids), model(ids))
    again(ids).sum().backward()
    assert all(weight.grad is not None for weight in again.parameters())
    with torch.no_grad():
        for weight in again.parameters():
            weight += 1
    read_checkpoint(folder)  # still what was written: changed weights do not reach the file


@pytest.fixture
def spoil(folder):
    """Change config.json or weights of a checkpoint, with a manifest that vouches for the new ones."""

    def change(config=None, **weights):
        found = read_checkpoint(folder)
        tensors = {name: found.tensors[name] for name in found.tensors}
        for name, tensor in weights.items():
            tensors = (
                {**tensors, name: tensor} if tensor is not None else {n: t for n, t in tensors.items() if n != name}
            )
        where = folder.parent / "spoilt"
        return read_checkpoint(write_checkpoint(where, tensors, found.config if config is None else config))

    return change


def test_missing_extra_and_misshaped_weights_are_named(spoil):
    name = "embedding.token.weight"
    with pytest.raises(InvalidInput, match=r"does not hold 'embedding\.token\.weight'"):
        load_model(spoil(**{name: None}))


def test_extra_weights_are_named(spoil):
    with pytest.raises(InvalidInput, match="also holds 'surprise'"):
        load_model(spoil(surprise=torch.ones(1)))


def test_misshaped_weights_are_named_with_what_was_expected(spoil):
    with pytest.raises(InvalidInput, match=r"has the shape \[3, 16\]; config.json makes it \[280, 16\]"):
        load_model(spoil(**{"embedding.token.weight": torch.ones(3, 16)}))


def test_whole_numbers_are_no_weights(spoil):
    with pytest.raises(InvalidInput, match="holds int64"):
        load_model(spoil(**{"embedding.token.weight": torch.ones(280, 16, dtype=torch.long)}))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("d_model", 0, "d_model"),
        ("d_model", 17, "d_model"),
        ("d_model", "16", "d_model should be a whole number"),
        ("d_model", 2**40, "d_model is 1099511627776; at most 2,147,483,647"),
        ("vocabulary", 281, r"\[281, 16\]"),
        ("stack.layers", 10**9, r"stack.layers is 1000000000; at most \d+ is possible here"),
        ("stack.layers", 3, "does not hold"),
        ("stack.layers", 1, "also holds"),
        ("kind", "transformer", "kind"),
        ("stack.norm.kind", "batch", "stack.norm.kind"),
        ("dropuot", 0.1, "dropuot: there is no such key"),
        ("dropout", 7.0, "dropout"),
        ("special.end", "x", "special.end"),
    ],
)
def test_a_config_that_does_not_fit_says_field_value_and_range(spoil, model, path, value, said):
    data = plain(model.config)
    *above, last = path.split(".")
    inner = data
    for key in above:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(InvalidInput, match=said):
        load_model(spoil(data))


def test_too_large_for_this_machine_is_refused_before_a_number_is_read(folder, monkeypatch):
    checkpoint = read_checkpoint(folder)
    monkeypatch.setattr(memory, "available", lambda: 1000)
    monkeypatch.setattr(type(checkpoint.tensors), "__getitem__", lambda *a: pytest.fail("read"))
    with pytest.raises(NoRoom, match="needs about"):
        load_model(checkpoint)


def test_config_json_in_a_folder_that_was_edited_by_hand(folder):
    data = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(data | {"dropout": 0.5}))
    with pytest.raises(InvalidInput, match=r"config\.json"):
        read_checkpoint(folder)
    write_manifest(folder)
    assert load_model(read_checkpoint(folder)).config.dropout == 0.5
