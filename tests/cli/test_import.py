"""`peasy import`."""

import json

import pytest

from peasy.checkpoint.huggingface import write_folder
from peasy.cli import command
from peasy.cli.command import Flags
from peasy.models.build import build
from peasy.models.preset import preset


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    shape = {"num_layers": 1, "attention": {"num_heads": 2}, "feedforward": {"d_ff": 32}}
    settings = preset("gpt2", vocab_size=40, d_model=16, max_seq_len=8, stack=shape)
    return write_folder(tmp_path / "tiny", settings, build(settings).state_dict())


def test_import_with_a_name(peasy, folder, tmp_path):
    ran = peasy("import", folder, "--name", "mine")
    assert ran.code == 0
    assert "gpt2" in ran.out
    assert "peasy models mine" in ran.err
    assert (tmp_path / "home" / "runs" / "mine" / "manifest.json").is_file()
    assert "mine" in peasy("models").out


def test_json(peasy, folder, tmp_path):
    output = peasy("import", folder, "--json").json
    assert output["result"]["name"] == "tiny"
    assert output["result"]["family"] == "gpt2"
    assert output["files"] == [str(tmp_path / "home" / "runs" / "tiny")]


def corrupt(folder, kind):
    config = json.loads((folder / "config.json").read_text())
    if kind == "architecture":
        config |= {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}
    elif kind == "size":
        config["n_embd"] = 18
    (folder / "config.json").write_text("" if kind == "empty" else json.dumps(config))
    if kind == "pickle":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    elif kind == "gone":
        (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("architecture", 4, "'mamba' is not supported"),
        ("size", 4, "18"),
        ("empty", 4, "is empty"),
        ("pickle", 4, "a pickle file, which can run code"),
        ("gone", 3, "no model.safetensors"),
    ],
)
def test_invalid_model_is_rejected(peasy, folder, tmp_path, kind, code, message):
    corrupt(folder, kind)
    ran = peasy("import", folder)
    assert ran.code == code
    assert message in ran.err
    assert not (tmp_path / "home" / "runs" / "tiny").exists()


def test_second_import_is_rejected(peasy, folder):
    assert peasy("import", folder).code == 0
    ran = peasy("import", folder)
    assert ran.code == 4
    assert "never overwrites" in ran.err


def test_prompts_only_on_a_terminal(monkeypatch, capsys):
    assert command.confirm_callback(Flags(yes=True))("?") is True
    assert command.confirm_callback(Flags()) is None  # a test has no terminal
    for name in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{name}.isatty", lambda: True, raising=False)
    assert command.confirm_callback(Flags(json=True)) is None
    for typed, answer in (("y\n", True), ("YES\n", True), ("\n", False), ("", False), ("no\n", False)):
        monkeypatch.setattr("sys.stdin.readline", lambda typed=typed: typed, raising=False)
        assert command._prompt_yes_no("Download it (3 MB)?") is answer
    assert "Download it (3 MB)? [y/N]" in capsys.readouterr().err
