"""`peasy look`."""

import pytest

TEXT = "I love pizza"


def test_one_line_per_head(peasy, model_folder):
    ran = peasy("look", model_folder, TEXT)
    assert ran.code == 0
    assert "strongest links" in ran.out
    assert "Next token" in ran.out
    assert "ablate it to" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_attention_of_a_query_word(peasy, model_folder):
    ran = peasy("look", model_folder, TEXT, "--query", "pizza", "--top", 2)
    assert '"pizza" attends to' in ran.out
    lines = [line for line in ran.out.splitlines() if line[:4].strip() in ("0.0", "0.1", "1.0", "1.1")]
    assert len(lines) == 4


def test_head_lens_steps_ranking_and_tiles(peasy, model_folder):
    one = ("--layer", 1, "--head", 0)
    assert "layer 1, head 0" in peasy("look", model_folder, TEXT, *one).out.lower()
    assert "top prediction" in peasy("look", model_folder, TEXT, "--lens").out
    assert "Softmax" in peasy("look", model_folder, TEXT, *one, "--steps").out
    assert "Attention heads of" in peasy("look", model_folder, f"{TEXT}. I love AI.", "--rank", "induction").out
    assert "3 tokens" in peasy("look", model_folder, "-", "--overview", "max", "--tile", 2, stdin=f"{TEXT}\n").out


def test_ablation(peasy, model_folder):
    ran = peasy("look", model_folder, TEXT, "--off", "1.0", "--off", "0")
    assert ran.code == 0
    assert "layer 1, head 0 ablated" in ran.out
    assert "before" in ran.out


def test_every_intervention(peasy, model_folder):
    ran = peasy(
        "look", model_folder, TEXT, "--even", "1.0", "--cut", "pizza:love", "--layer", 0, "--patch", "I love AI",
        "--word", "pizza",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    out = " ".join(ran.out.split())
    assert "layer 1, head 0 attends uniformly" in out
    assert '"pizza" cannot attend to "love" in layer 0' in out
    assert 'context of layer 0 at all positions from "I love AI"' in out


def test_rollout_and_generation_trace(peasy, model_folder):
    assert "Rollout multiplies" in " ".join(peasy("look", model_folder, TEXT, "--rollout").out.split())
    ran = peasy("look", model_folder, TEXT, "--write", 2, "--json")
    assert len(ran.json["result"]["steps"]) == 2
    assert len(peasy("look", model_folder, TEXT, "--write", 2, "--beam", 2, "--json").json["result"]["beams"]) == 2


def test_attention_of_a_dataset_is_saved(peasy, model_folder, tmp_path):
    ran = peasy("look", model_folder, "-", "--keep", "looks", "--budget", "1KB", stdin="I love pizza\nI love AI\n")
    assert ran.code == 0, ran.err
    assert "2 texts" in ran.out
    assert sorted(file.name for file in (tmp_path / "looks").iterdir())[-1] == "looks.json"


def test_json_and_files(peasy, model_folder, tmp_path):
    result = peasy("look", model_folder, TEXT, "--json").json["result"]
    assert result["tokens"]["pieces"] == ["I", "love", "pizza"]
    assert len(result["captures"]) == 2
    assert peasy("look", model_folder, TEXT, "--out", "look.html").code == 0
    assert "pizza" in (tmp_path / "look.html").read_text()


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (("--layer", 9), 4, "no layer 9"),
        (("--query", "oven"), 4, "not in the text"),
        (("--rank", "size"), 4, "cannot be ranked"),
        (("--off", "x"), 4, "is not a head"),
        (("--cut", "pizza"), 4, "is not a pair query:key"),
        (("--patch", "I love AI"), 2, "needs one --layer"),
        (("--word", "AI"), 2, "need an intervention"),
        (("--steps",), 2, "needs one --layer"),
        (("--budget", 10), 6, "the budget is 10 bytes"),
        (("--align",), 4, "no cross-attention"),
    ],
)
def test_errors(peasy, model_folder, more, code, message):
    ran = peasy("look", model_folder, TEXT, *more)
    assert ran.code == code
    assert message in " ".join(ran.err.split())


def test_unknown_model_and_empty_text(peasy, model_folder):
    assert peasy("look", "no-such", TEXT).code == 3
    assert peasy("look", model_folder, "").code == 4


def test_effect_on_a_dataset(peasy, tmp_path):
    """The loss is reported with and without the intervention, and differs."""
    (tmp_path / "few.txt").write_text("The pizza came out of the oven and it tasted good.\n" * 6, encoding="utf-8")
    ran = peasy("look", "stories", "The pizza", "--off", "1", "--data", tmp_path / "few.txt", "--json")
    assert ran.code == 0, ran.err
    name, before, after = ran.json["result"]["measures"][0]
    measures = peasy("evaluate", "stories", tmp_path / "few.txt", "--json").json["result"]["measures"]
    assert before == pytest.approx(measures[name], abs=1e-5)
    assert before != after


def test_attention_over_training(peasy, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    (tmp_path / "few.txt").write_text("the cat sat on the mat\n" * 40, encoding="utf-8")
    shape = ("--set", "context=8", "--set", "short=null", "--set", "tokenizer.by=characters", "--set", "save=2")
    trained = peasy(
        "train", "gpt", "--preset", "tiny", "--steps", 4, "--data", tmp_path / "few.txt", "--run", "r", *shape
    )
    assert trained.code == 0, trained.err
    ran = peasy("look", "r", "--film")
    assert ran.code == 0, ran.err
    assert "Attention over training" in ran.out
    assert "after step 4" in ran.out
    path = tmp_path / "film.html"
    assert peasy("look", "r", "--film", "--out", path).code == 0
    assert all(f"after step {step}" in path.read_text(encoding="utf-8") for step in (2, 4))
