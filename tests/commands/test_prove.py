"""`prove`: a model by name or object, on given prompts; a function by file or object."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import peasy
from peasy.commands.load import load
from peasy.commands.prove import DoctorResult, FolderResult, ProveResult, prove
from peasy.errors import InvalidInput, NotFound, UsageError
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.verification import equality


@pytest.fixture
def brief(monkeypatch):
    """Skip equalities that these tests do not check."""
    kept = ("cached", "batched", "padded", "exported")
    monkeypatch.setattr(equality, "CHECKS", {name: equality.CHECKS[name] for name in kept})


def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2)
    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True) @ v


def test_prove_is_public():
    assert peasy.prove.__wrapped__ is prove


def test_model_on_given_prompts(foreign, brief):
    result = prove(str(foreign), ["The pizza", "came out of the oven"])
    assert isinstance(result, ProveResult)
    assert result.passed
    assert result.proof["exported = original"].distance < 1e-6
    data = json.loads(json.dumps(result.data()))
    assert (data["passed"], data["num_sequences"], data["model_kind"]) == (True, 2, "decoder")
    assert data["verdict"].endswith("all hold.")
    assert {equality["name"] for equality in data["equalities"]} >= {"cached = uncached", "padded = unpadded"}


def test_default_prompts_are_truncated(encoder, brief):
    result = prove(load(encoder))
    assert result.passed
    assert any("default sentences" in note for note in result.proof.notes)
    assert any("cut to their first 9 tokens" in note for note in result.proof.notes)
    assert "An encoder cannot generate text" in result.text()


def test_model_without_tokenizer_uses_random_ids(brief):
    model = build(preset("translator-tiny"), seed=1)
    result = prove(model)
    assert result.passed
    assert any("random" in note for note in result.proof.notes)
    with pytest.raises(NotFound, match="no tokenizer"):
        prove(model, "Hello")


def test_failing_equality_is_named(decoder, brief, monkeypatch):
    from peasy.models.transformer import Decoder

    right = Decoder.forward_varlen
    monkeypatch.setattr(
        Decoder, "forward_varlen", lambda self, *args, **options: [-logits for logits in right(self, *args, **options)]
    )
    result = prove(load(decoder), "The pizza came out")
    assert not result.passed
    failed = next(equality for equality in result.data()["equalities"] if equality["verdict"] == "fails")
    assert failed["name"] == "single = batched"
    assert failed["divergence"]["position"] == 0
    assert "single = batched fails" in result.verdict
    assert "position 0" in result.text()


@pytest.mark.parametrize("prompt", ["", ["fine", ""]])
def test_empty_prompt_is_rejected(decoder, prompt):
    with pytest.raises(InvalidInput, match="no tokens"):
        prove(load(decoder), prompt)


def test_function_object_is_diagnosed():
    result = prove(attention)
    assert isinstance(result, DoctorResult)
    assert (result.passed, result.mistakes) == (False, ("no scale",))
    data = json.loads(json.dumps(result.data()))
    assert data["findings"][0]["formula"] == "scaled = QKᵀ / √d_k"
    assert "fix" in result.text()
    assert prove(torch.nn.MultiheadAttention(8, 2)).passed


def test_call_is_for_functions_only(decoder):
    assert prove(attention, call="attention(q, k, v)").mistakes == ("no scale",)
    with pytest.raises(UsageError, match="a model does not need them"):
        prove(load(decoder), call="model(q)")


def test_file_without_function_name_lists_functions(tmp_path):
    (tmp_path / "mine.py").write_text("def attend(q, k, v):\n    return v\n", encoding="utf-8")
    with pytest.raises(UsageError, match="Which function") as error:
        prove("mine.py")
    assert error.value.hint == "peasy prove mine.py:attend"
    with pytest.raises(NotFound, match=r"no file other\.py"):
        prove("other.py:attend")


@pytest.mark.parametrize("suffix", ["html", "md", "tex", "csv", "json"])
def test_diagnosis_can_be_saved(suffix, tmp_path):
    path = prove(attention).save(tmp_path / f"found.{suffix}")
    assert "no scale" in path.read_text(encoding="utf-8")


def test_folder_gives_a_table_and_a_junit_report(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    wrong = "import numpy as np\n\n\ndef attention(q, k, v):\n    s = q @ k.swapaxes(-1, -2)\n"
    (folder / "mine.py").write_text(
        wrong + "    e = np.exp(s)\n    return e / e.sum(-1, keepdims=True) @ v\n", encoding="utf-8"
    )
    (folder / "broken.py").write_text("def attention(q, k, v):\n    return softmax(q @ k)\n", encoding="utf-8")
    said = []
    result = prove(str(folder), announce=said.append)
    assert "tests and READMEs are tried" in said[0]
    assert isinstance(result, FolderResult)
    assert (result.passed, result.verdict) == (False, "2 examined: 0 equal, 1 wrong, 1 not compared.")
    assert [row["passed"] for row in result.data()["diagnoses"]] == [None, False]
    assert "mine.py:attention" in result.text()
    report = ElementTree.parse(result.save(tmp_path / "report.xml")).getroot()
    assert (report.get("failures"), report.get("skipped")) == ("1", "1")


def test_junit_report_of_one_function(tmp_path):
    report = ElementTree.parse(prove(attention).save(tmp_path / "report.xml")).getroot()
    assert "no scale" in report.find("testcase/failure").get("message")
